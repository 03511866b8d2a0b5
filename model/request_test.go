package model_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"writ"
	"writ/model/anthropic"
	"writ/model/openai"
)

func textPart(s string, cache bool) writ.Part {
	return writ.Part{Kind: writ.PartText, Text: s, Cache: cache}
}

// nativeRequest has everything that a request of the native dialect can have.
func nativeRequest() *writ.ModelRequest {
	tool := func(name, schema string) writ.ToolDef {
		return writ.ToolDef{Name: name, Description: "The tool " + name + ".", Schema: json.RawMessage(schema)}
	}
	result := func(id string, isErr bool, content ...writ.Content) writ.Part {
		return writ.Part{Kind: writ.PartToolResult, ID: id, IsError: isErr, Content: content}
	}
	text := func(s string) writ.Content { return writ.Content{Kind: writ.ContentText, Text: s} }
	png := []byte("\x89PNG\r\n")
	return &writ.ModelRequest{Model: "m-1", Dialect: writ.Native, MaxTokens: 2048, Call: "t/2/1",
		System: []writ.Part{textPart("Protocol and <instructions> & \"rules\".", true)},
		Tools: []writ.ToolDef{
			tool("fs__write", `{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}},"required":["path","text"],"additionalProperties":false}`),
			tool("odd__none", ``),
			tool("odd__union", `{"$schema":"http://json-schema.org/draft-07/schema#","oneOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"array"}},"required":["b"]}]}`),
			tool("web__search", `{"type":"object","properties":{"z":{"type":"string"},"q":{"type":"string","default":"x"}},"required":["q"]}`),
		},
		Messages: []writ.Message{
			{Role: writ.RoleUser, Parts: []writ.Part{textPart("Look at this.", false), {Kind: writ.PartBlob, Data: png, MIME: "image/png", Name: "a.png"},
				{Kind: writ.PartBlob, Data: []byte("%PDF-1.7"), MIME: "application/pdf", Name: "b.pdf"}, {Kind: writ.PartBlob, Data: []byte("a,b\n1,2\n"), MIME: "text/csv; charset=utf-8"},
				{Kind: writ.PartBlob, Data: []byte{0, 1}, MIME: "application/zip", Name: "c.zip"}, textPart("  \n", true)}},
			{Role: writ.RoleAssistant, Parts: []writ.Part{
				{Kind: writ.PartThinking, Text: "Anthropic's.", Opaque: json.RawMessage(`"c2ln+/=="`)},
				{Kind: writ.PartThinking, Text: "OpenAI's.", Opaque: json.RawMessage(`{"item":{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA+/=="},"after":{"calls":1}}`)},
				{Kind: writ.PartThinking, Text: "Nobody's."},
				textPart("I search.", false),
				{Kind: writ.PartToolUse, ID: "tc_1", Name: "web__search", Args: json.RawMessage(`{"q":"a<b", "z": "é"}`)},
				{Kind: writ.PartToolUse, ID: "tc_" + strings.Repeat("2", 60), Name: "fs__write", Args: json.RawMessage(`not json`)}}},
			{Role: writ.RoleUser, Parts: []writ.Part{
				textPart("[notice] said beside the results", false),
				result("tc_1", false, text("three hits"), writ.Content{Kind: writ.ContentJSON, JSON: json.RawMessage(`{"n":3}`)}, writ.Content{Kind: writ.ContentBlob, Data: png, MIME: "image/png"},
					writ.Content{Kind: writ.ContentLink, URI: "https://example.org/a", Name: "a"}),
				{Kind: writ.PartToolResult, ID: "tc_" + strings.Repeat("2", 60), IsError: true, Content: []writ.Content{text("failed"), {Kind: writ.ContentBlob, Data: png, MIME: "image/png"}}, Cache: true}}},
			{Role: writ.RoleUser, Parts: []writ.Part{textPart("Second question.", true)}},
			{Role: writ.RoleAssistant, Parts: []writ.Part{{Kind: writ.PartToolUse, ID: "tc_3", Name: "web__search", Args: json.RawMessage(`{"q":"y"}`)}}},
			{Role: writ.RoleUser, Parts: []writ.Part{{Kind: writ.PartToolResult, ID: "tc_3", Cache: true}}},
			{Role: writ.RoleUser, Parts: []writ.Part{textPart("ANNOUNCE", false)}},
		}}
}

func channelRequest() *writ.ModelRequest {
	return &writ.ModelRequest{Model: "m-1", Dialect: writ.Channel, Call: "t/1/1", System: []writ.Part{textPart("Protocol.", true)},
		Messages: []writ.Message{
			{Role: writ.RoleUser, Parts: []writ.Part{textPart("go", true)}},
			{Role: writ.RoleUser, Parts: []writ.Part{textPart("[round 1]\n[result of tc_1] succeeded", true)}},
			{Role: writ.RoleUser, Parts: []writ.Part{textPart("ANNOUNCE", false)}},
		}}
}

// TestRequests holds the JSON body of a fixed request against a golden file, which differs in white space only.
func TestRequests(t *testing.T) {
	answerOnly := nativeRequest()
	answerOnly.NoTools = true
	answerOnly.Messages = answerOnly.Messages[:1]
	answerOnly.Tools = answerOnly.Tools[:1]
	noTools := nativeRequest()
	noTools.Tools = nil
	anth := func(hc *http.Client) (closer, error) {
		return anthropic.New(anthropic.Config{APIKey: key, ThinkingBudget: 4096, CacheTTL: "1h", HTTP: hc})
	}
	adaptive := func(hc *http.Client) (closer, error) {
		return anthropic.New(anthropic.Config{APIKey: key, ThinkingBudget: anthropic.Adaptive, Effort: "high", HTTP: hc})
	}
	oai := func(api string) func(hc *http.Client) (closer, error) {
		return func(hc *http.Client) (closer, error) {
			return openai.New(openai.Config{APIKey: key, API: api, ReasoningEffort: "low", ReasoningSummary: "auto", HTTP: hc})
		}
	}
	for _, c := range []struct {
		golden string
		open   func(*http.Client) (closer, error)
		req    *writ.ModelRequest
	}{
		{"anthropic-native", anth, nativeRequest()},
		{"anthropic-channel", anth, channelRequest()},
		{"anthropic-answer-only", anth, answerOnly},
		{"anthropic-no-tools-defined", anth, noTools},
		{"anthropic-adaptive", adaptive, channelRequest()},
		{"openai-chat-native", oai(openai.Chat), nativeRequest()},
		{"openai-chat-channel", oai(openai.Chat), channelRequest()},
		{"openai-chat-answer-only", oai(openai.Chat), answerOnly},
		{"openai-responses-native", oai(openai.Responses), nativeRequest()},
		{"openai-responses-channel", oai(openai.Responses), channelRequest()},
		{"openai-responses-answer-only", oai(openai.Responses), answerOnly},
	} {
		t.Run(c.golden, func(t *testing.T) {
			w := &wire{}
			m, err := c.open(w.client())
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			var bodies []string
			for range 3 {
				for range m.Stream(t.Context(), c.req) {
				}
				bodies = append(bodies, string(w.body))
			}
			if bodies[0] != bodies[1] || bodies[1] != bodies[2] {
				t.Error("the same request gives other bytes")
			}
			var got bytes.Buffer
			if err := json.Indent(&got, []byte(bodies[0]), "", "  "); err != nil {
				t.Fatal(err)
			}
			for _, r := range m.Mended() {
				got.WriteString("\n// " + r)
			}
			path := "testdata/request/" + c.golden + ".json"
			if *update {
				if err := os.WriteFile(path, append(got.Bytes(), '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got.String()+"\n"); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestNew: a configuration that cannot work is refused before any call, and no message holds the key.
func TestNew(t *testing.T) {
	for _, c := range []struct {
		want string
		err  error
	}{
		{"anthropic: an API key is required", second(anthropic.New(anthropic.Config{}))},
		{"anthropic: cache lifetime \"2h\": 5m or 1h", second(anthropic.New(anthropic.Config{APIKey: key, CacheTTL: "2h"}))},
		{"anthropic: thinking budget 5: at least 1024, 0 for none, -1 for as the model decides", second(anthropic.New(anthropic.Config{APIKey: key, ThinkingBudget: 5}))},
		{"anthropic: the base URL is none: write scheme://host[:port][/path]", second(anthropic.New(anthropic.Config{APIKey: key, BaseURL: "localhost"}))},
		{"anthropic: the API key holds a line break", second(anthropic.New(anthropic.Config{APIKey: key + "\n"}))},
		{"anthropic: max tokens -1: not negative", second(anthropic.New(anthropic.Config{APIKey: key, MaxTokens: -1}))},
		{"openai: an API key is required", second(openai.New(openai.Config{}))},
		{"openai: API \"chit\": responses or chat", second(openai.New(openai.Config{APIKey: key, API: "chit"}))},
		{"openai: the base URL is none: write scheme://host[:port][/path]", second(openai.New(openai.Config{BaseURL: "::"}))},
		{"openai: the API key holds a line break", second(openai.New(openai.Config{APIKey: key + "\r"}))},
		{"openai: max tokens -1: not negative", second(openai.New(openai.Config{APIKey: key, MaxTokens: -1}))},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got %v, want %s", c.err, c.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestNoKey: a local server has no key, and none is sent; the environment's is not read.
func TestNoKey(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", key)
	t.Setenv("ANTHROPIC_API_KEY", key)
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "x-api-key: "+key)
	for _, v := range vendors {
		f := loadFixture(t, v.name, "testdata/wire/"+v.name+"/text.sse")
		s := play(t, f, 0)
		var m closer
		var err error
		switch v.name {
		case "anthropic":
			m, err = anthropic.New(anthropic.Config{BaseURL: s.URL, Model: "m"})
		default:
			m, err = openai.New(openai.Config{BaseURL: s.URL, Model: "m", API: strings.TrimPrefix(v.name, "openai-")})
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(m.Stream(t.Context(), request())); !strings.Contains(got, `"finish":"stop"`) {
			t.Errorf("%s without a key: %s", v.name, got)
		}
		if len(s.keys) != 1 || s.keys[0] != "" {
			t.Errorf("%s sent the key %q", v.name, s.keys)
		}
		_ = m.Close()
	}
}
