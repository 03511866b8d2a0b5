package gateway

//lint:file-ignore SA1019 what newer protocols drop is passed through for the clients and servers that use it

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
	"writ/internal/mcpclient"
)

func toolNames(t *testing.T, cs *mcp.ClientSession) []string {
	t.Helper()
	var out []string
	for tool, err := range cs.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tool.Name)
	}
	return out
}

func listOf(names ...string) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":%q,"inputSchema":{"type":"object"}}`, n)
	}
	return `"result":{"tools":[` + b.String() + `]}`
}

func TestAThousandTools(t *testing.T) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("tool-%04d", i)
	}
	answers := map[string]string{"initialize": hello, "tools/call": `"result":{"content":[{"type":"text","text":"x"}]}`,
		"tools/list": strings.Replace(listOf(names[:600]...), `"result":{`, `"result":{"nextCursor":"second",`, 1), "tools/list second": listOf(names[600:]...)}
	for _, size := range []int{0, 64, 1000, 999} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			w := newWorld(t, peer{alias: "peer", reach: scripted(t, answers)})
			w.cfg.PageSize = size
			g, _ := w.start()
			cs := dial(t, g, "local:1", nil)
			if got := toolNames(t, cs); len(got) != 1000 || got[0] != "tool-0000" || got[999] != "tool-0999" {
				t.Errorf("%d tools", len(got))
			}
			for _, i := range []int{0, 599, 600, 999} {
				wantText(t, call(t, cs, names[i], nil), false, "x")
			}
			if _, err := cs.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: "nonsense"}); err == nil || !strings.Contains(err.Error(), "cursor") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNamesAndCollisions(t *testing.T) {
	one := scripted(t, map[string]string{"initialize": hello, "tools/list": listOf("b__c", "d")})
	two := scripted(t, map[string]string{"initialize": hello, "tools/list": listOf("c", "e", "resources-read")})
	w := newWorld(t, peer{alias: "a", reach: one}, peer{alias: "a__b", reach: two, yaml: "allowed: [c, e, resources-read]\n"})
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	if got := fmt.Sprint(toolNames(t, cs)); got != "[a__b__c a__d a__b__e]" {
		t.Error(got)
	}
	for _, want := range []string{"a__b.c", "is that of a.b__c already", "a__b.resources-read", "reserved"} {
		if !strings.Contains(w.log.String(), want) {
			t.Errorf("%q is not in the log: %s", want, w.log.String())
		}
	}
}

// TestWhoHadTheNameKeepsIt: a newcomer that collides is left out although its connection comes first.
func TestWhoHadTheNameKeepsIt(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, &mcp.ServerOptions{HasTools: true})
	reach := ofServer(t, server)
	two := scripted(t, map[string]string{"initialize": hello, "tools/list": listOf("c"), "tools/call": `"result":{"content":[{"type":"text","text":"the old one"}]}`})
	w := newWorld(t, peer{alias: "a", reach: reach}, peer{alias: "a__b", reach: two})
	g, _ := w.start()
	e := &ears{}
	cs := dial(t, g, "local:1", e.options())
	wantText(t, call(t, cs, "a__b__c", nil), false, "the old one")
	mcp.AddTool(server, &mcp.Tool{Name: "b__c"}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the new one"}}}, nil, nil
	})
	e.wait(t, "tools changed")
	if got := fmt.Sprint(toolNames(t, cs)); got != "[a__b__c]" {
		t.Error(got)
	}
	wantText(t, call(t, cs, "a__b__c", nil), false, "the old one")
	if !strings.Contains(w.log.String(), "a.b__c") {
		t.Error(w.log.String())
	}
}

func TestQuarantine(t *testing.T) {
	reach := scripted(t, map[string]string{"initialize": hello, "tools/list": listOf("same", "changed", "new", "unlisted", "idle")})
	same := definitionOf(t, `{"name":"same","inputSchema":{"type":"object"}}`)
	w := newWorld(t, peer{alias: "peer", reach: reach, yaml: "allowed: [same, changed, new, idle]\nroles: {idle: [admin]}\n", pins: map[string]string{"same": same, "changed": "0000", "idle": "0"}})
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	if got := fmt.Sprint(toolNames(t, cs)); got != "[same]" {
		t.Error(got)
	}
	for _, name := range []string{"changed", "new", "unlisted", "idle"} {
		if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name}); err == nil || !strings.Contains(err.Error(), "unknown tool") {
			t.Errorf("%s: %v", name, err)
		}
	}
	log := w.log.String()
	for _, want := range []string{"peer.changed", "its definition changed since it was accepted", "peer.new", "it is new since", "--accept", "peer.idle"} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in the log: %s", want, log)
		}
	}
	if strings.Contains(log, "unlisted") || len(w.rows()) != 0 {
		t.Error(log, w.rows())
	}
	inv, err := g.Inventory(t.Context())
	if err != nil || len(inv) != 1 || len(inv[0].Tools) != 1 || len(inv[0].Problems) != 3 {
		t.Errorf("%+v, %v", inv, err)
	}
}

func definitionOf(t *testing.T, raw string) string {
	t.Helper()
	specs, problems := mcpclient.ReadTools([]json.RawMessage{json.RawMessage(raw)}, nil, false)
	if len(specs) != 1 {
		t.Fatal(problems)
	}
	return specs[0].Definition
}

// TestSeveralUpstreamsShareResources: what is whose is found by listing, by template and by what a result links to.
func TestSeveralUpstreamsShareResources(t *testing.T) {
	caps := `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{}},"serverInfo":{"name":"s","version":"1"},"instructions":"of %s"}`
	of := func(name, more string) mcpclient.Config {
		return scripted(t, map[string]string{"initialize": fmt.Sprintf(caps, name), "tools/list": listOf("link"),
			"resources/list":           `"result":{"resources":[{"uri":"x://` + name + `","name":"n"},{"uri":"x://both","name":"n"}` + more + `]}`,
			"resources/templates/list": `"result":{"resourceTemplates":[{"uriTemplate":"t://` + name + `/{id}","name":"n"}]}`,
			"resources/read":           `"result":{"contents":[{"uri":"u","text":"` + name + `"}]}`,
			"prompts/list":             `"result":{"prompts":[{"name":"p","title":"P"}]}`,
			"prompts/get p":            `"result":{"description":"` + name + `","messages":[]}`,
			"completion/complete":      `"result":{"completion":{"values":["` + name + `"]}}`,
			"tools/call":               `"result":{"content":[{"type":"resource_link","uri":"hidden://` + name + `","name":"h"}]}`})
	}
	w := newWorld(t, peer{alias: "one", reach: of("one", "")}, peer{alias: "two", reach: of("two", "")}, peer{alias: "three", reach: scripted(t, map[string]string{"initialize": hello, "tools/list": listOf("x")})})
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	if got := cs.InitializeResult().Instructions; !strings.Contains(got, "## one\n\n") || !strings.Contains(got, "of two") {
		t.Error(got)
	}
	read := func(uri string) string {
		res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil {
			return err.Error()
		}
		return res.Contents[0].Text
	}
	for uri, want := range map[string]string{"x://one": "one", "x://two": "two", "x://both": "one", "t://two/7": "two", "hidden://two": "no upstream has the resource"} {
		if got := read(uri); !strings.Contains(got, want) {
			t.Errorf("%s: %s", uri, got)
		}
	}
	call2, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "two__link"})
	if err != nil || len(call2.Content) != 1 {
		t.Fatal(err)
	}
	if got := read("hidden://two"); got != "two" {
		t.Error(got)
	}
	list, err := cs.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 3 {
		t.Errorf("%s, %v", jsonOf(list), err)
	}
	all, err := cs.ListPrompts(t.Context(), nil)
	if err != nil || len(all.Prompts) != 2 || all.Prompts[1].Name != "two__p" || all.Prompts[1].Title != "P" {
		t.Errorf("%s, %v", jsonOf(all), err)
	}
	p, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "two__p"})
	if err != nil || p.Description != "two" {
		t.Errorf("%s, %v", jsonOf(p), err)
	}
	for ref, want := range map[*mcp.CompleteReference]string{{Type: "ref/prompt", Name: "two__p"}: "two", {Type: "ref/resource", URI: "t://two/{id}"}: "two"} {
		c, err := cs.Complete(t.Context(), &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: "a"}})
		if err != nil || c.Completion.Values[0] != want {
			t.Errorf("%s, %v", jsonOf(c), err)
		}
	}
	for _, row := range w.rows() {
		if row.State != writ.Succeeded {
			t.Errorf("%+v", row)
		}
	}
}
