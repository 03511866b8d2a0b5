package gateway

//lint:file-ignore SA1019 what newer protocols drop is passed through for the clients and servers that use it

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
	"writ/internal/mcpclient"
)

// ears is a client that answers everything and keeps what it is told.
type ears struct {
	mu   sync.Mutex
	said []string
	more chan struct{}
}

func (e *ears) hear(s string) {
	e.mu.Lock()
	e.said = append(e.said, s)
	e.mu.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// wait waits until something was said that begins so.
func (e *ears) wait(t *testing.T, begins string) string {
	t.Helper()
	for {
		e.mu.Lock()
		i := slices.IndexFunc(e.said, func(s string) bool { return strings.HasPrefix(s, begins) })
		var said string
		if i >= 0 {
			said = e.said[i]
		}
		e.mu.Unlock()
		if i >= 0 {
			return said
		}
		select {
		case <-e.more:
		case <-t.Context().Done():
			t.Fatalf("never heard %q", begins)
		}
	}
}

func (e *ears) options() *mcp.ClientOptions {
	e.more = make(chan struct{}, 1)
	return &mcp.ClientOptions{
		CreateMessageHandler: func(_ context.Context, req *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			e.hear("sampling " + jsonOf(req.Params.Messages))
			return &mcp.CreateMessageResult{Model: "m-1", Role: "assistant", StopReason: "endTurn", Content: &mcp.TextContent{Text: "sampled"}}, nil
		},
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			e.hear("elicit " + req.Params.Message)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "check": true}}, nil
		},
		LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) {
			e.hear("log " + string(req.Params.Level) + " " + req.Params.Logger + " " + jsonOf(req.Params.Data))
		},
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			e.hear("progress " + jsonOf(req.Params))
		},
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) {
			e.hear("updated " + req.Params.URI)
		},
		ToolListChangedHandler:   func(context.Context, *mcp.ToolListChangedRequest) { e.hear("tools changed") },
		PromptListChangedHandler: func(context.Context, *mcp.PromptListChangedRequest) { e.hear("prompts changed") },
	}
}

func roots(cs *mcp.Client) {
	cs.AddRoots(&mcp.Root{URI: "file:///home/ada", Name: "home of ada"})
}

// TestOfficialEverythingAsksItsClient: what the TypeScript server asks in the middle of a call reaches the client.
func TestOfficialEverythingAsksItsClient(t *testing.T) {
	w := newWorld(t, peer{alias: "everything", reach: npm(t, "server-everything")})
	g, _ := w.start()
	e := &ears{}
	here, there := mcp.NewInMemoryTransports()
	go func() { _ = g.Serve(context.Background(), here, "local:1") }()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, e.options())
	roots(client)
	cs, err := client.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	init := cs.InitializeResult()
	if c := init.Capabilities; c.Tools == nil || c.Prompts == nil || c.Resources == nil || !c.Resources.Subscribe || c.Logging == nil || c.Completions == nil {
		t.Errorf("%s", jsonOf(c))
	}
	if init.Instructions == "" {
		t.Error("no instructions")
	}
	var names []string
	for tool, err := range cs.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	for _, want := range []string{"trigger-sampling-request", "get-roots-list", "trigger-elicitation-request"} { // offered to who can answer
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in %v", want, names)
		}
	}
	wantText(t, call(t, cs, "trigger-sampling-request", map[string]any{"prompt": "hello", "maxTokens": 10}), false, "sampled")
	if said := e.wait(t, "sampling "); !strings.Contains(said, "hello") {
		t.Error(said)
	}
	wantText(t, call(t, cs, "get-roots-list", nil), false, "file:///home/ada")
	res := call(t, cs, "trigger-elicitation-request", nil)
	if !strings.Contains(jsonOf(res), "Ada") {
		t.Error(jsonOf(res))
	}
	p := &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 0.1, "steps": 3}}
	p.SetProgressToken("mine-7")
	if _, err := cs.CallTool(t.Context(), p); err != nil {
		t.Error(err)
	}
	if said := e.wait(t, "progress "); !strings.Contains(said, `"mine-7"`) {
		t.Error(said)
	}
	read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "demo://resource/dynamic/text/1"})
	if err != nil || len(read.Contents) != 1 || !strings.Contains(read.Contents[0].Text, "Resource 1") {
		t.Errorf("%s, %v", jsonOf(read), err)
	}
	prompt, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "args-prompt", Arguments: map[string]string{"city": "Bern", "state": "BE"}})
	if err != nil || !strings.Contains(jsonOf(prompt), "Bern") {
		t.Errorf("%s, %v", jsonOf(prompt), err)
	}
	completion, err := cs.Complete(t.Context(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "completable-prompt"},
		Argument: mcp.CompleteParamsArgument{Name: "department", Value: "E"}})
	if err != nil || !slices.Contains(completion.Completion.Values, "Engineering") {
		t.Errorf("%s, %v", jsonOf(completion), err)
	}
	for _, row := range w.rows() {
		if row.State != writ.Succeeded {
			t.Errorf("%s: %s %s", row.Tool, row.State, row.Failure)
		}
	}
	if row := w.one("everything.resources-read"); row.Effect != "none" || row.Strategy != "exploration" {
		t.Errorf("%+v", row)
	}
}

// TestWhatTheServerTells: log messages, subscriptions and changed lists find their client, over HTTP too.
func TestWhatTheServerTells(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "peer", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil }, HasPrompts: true})
	mcp.AddTool(server, &mcp.Tool{Name: "talk"}, func(ctx context.Context, req *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
		err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "warning", Logger: "mouth", Data: map[string]any{"n": 1}})
		return &mcp.CallToolResult{}, nil, err
	})
	server.AddResource(&mcp.Resource{URI: "test://one", Name: "one"}, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		if req.Params.URI != "test://one" {
			return nil, mcp.ResourceNotFoundError(req.Params.URI)
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "test://one", Text: "1"}}}, nil
	})
	w := newWorld(t, peer{alias: "peer", reach: ofServer(t, server)})
	e := &ears{}
	cs := overGatewayHTTP(t, w, HTTP{Authenticate: anybody}, e.options())
	if err := cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "error"}); err != nil {
		t.Fatal(err)
	}
	call(t, cs, "talk", nil)
	if err := cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
		t.Fatal(err)
	}
	call(t, cs, "talk", nil)
	e.wait(t, `log warning mouth {"n":1}`)
	if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "test://one"}); err != nil {
		t.Fatal(err)
	}
	if err := server.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "test://one"}); err != nil {
		t.Fatal(err)
	}
	e.wait(t, "updated test://one")
	mcp.AddTool(server, &mcp.Tool{Name: "late"}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "late"}}}, nil, nil
	})
	e.wait(t, "tools changed")
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 2 {
		t.Errorf("%s, %v", jsonOf(list), err)
	}
	wantText(t, call(t, cs, "late", nil), false, "late") // by another invocation, which is bound to it
	server.AddPrompt(&mcp.Prompt{Name: "p"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "d", Messages: []*mcp.PromptMessage{}}, nil
	})
	e.wait(t, "prompts changed")
	if _, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "p"}); err != nil {
		t.Error(err)
	}
	if err := cs.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "test://one"}); err != nil {
		t.Error(err)
	}
	if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "test://none"}); err == nil {
		t.Error("read what is not there")
	}
}

// overGatewayHTTP connects a client of the official SDK to the gateway over HTTP.
func overGatewayHTTP(t *testing.T, w *world, cfg HTTP, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: serve(t, w, cfg)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

// scripted is an upstream that answers each method with the bytes it was given.
func scripted(t *testing.T, answers map[string]string) mcpclient.Config {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var msg struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name, Cursor string }
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&msg) != nil {
			rw.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if len(msg.ID) == 0 {
			rw.WriteHeader(http.StatusAccepted)
			return
		}
		body, ok := answers[msg.Method+" "+msg.Params.Name+msg.Params.Cursor]
		if !ok {
			body, ok = answers[msg.Method]
		}
		if !ok {
			body = `"error":{"code":-32601,"message":"no"}`
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.Write([]byte(`{"jsonrpc":"2.0","id":` + string(msg.ID) + `,` + body + `}`))
	}))
	t.Cleanup(h.Close)
	return mcpclient.Config{URL: h.URL}
}

const hello = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`

// TestNothingIsLost: what the SDK's types do not know reaches the client all the same, results and definitions and errors.
func TestNothingIsLost(t *testing.T) {
	tool := `{"name":"t","title":"T","description":"d","inputSchema":{"type":"object","x-own":[1.50]},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"x":1},"icons":[{"src":"data:,","sizes":["any"]}],"execution":{"taskSupport":"optional"},"_meta":{"a/b":{"c":[1]}},"newThing":{"k":12345678901234567890}}`
	result := `{"content":[{"type":"text","text":"<&>","annotations":{"priority":0.5},"_meta":{"k":1}},{"type":"hologram","data":{"deep":[1e400]}}],"structuredContent":{"n":12345678901234567890},"isError":false,"_meta":{"x":"y"},"newField":[null]}`
	w := newWorld(t, peer{alias: "peer", reach: scripted(t, map[string]string{
		"initialize": hello, "tools/list": `"result":{"tools":[` + tool + `,{"name":"bad","inputSchema":{"type":"object"}},{"name":"odd","inputSchema":{"type":"string"}}]}`,
		"tools/call t": `"result":` + result, "tools/call bad": `"error":{"code":-32042,"message":"go there","data":{"elicitations":[{"u":1}]}}`})})
	g, _ := w.start()
	raw := rawClient(t, g)
	raw.init(t)
	if got := raw.ask(t, `"l"`, "tools/list", `{}`); !strings.Contains(plain(t, got), plain(t, tool)) {
		t.Errorf("%s", got)
	}
	if !strings.Contains(w.log.String(), "peer.odd") {
		t.Error("the bad tool is not named: ", w.log.String())
	}
	for range 2 { // the second one is the stored outcome
		if got := raw.ask(t, `"c"`, "tools/call", `{"name":"t","arguments":{},"_meta":{"writ/key":"a"}}`); plain(t, got) != plain(t, `{"jsonrpc":"2.0","id":"c","result":`+result+`}`) {
			t.Errorf("%s", got)
		}
		got := raw.ask(t, `"e"`, "tools/call", `{"name":"bad","arguments":{},"_meta":{"writ/key":"b"}}`)
		if want := `{"jsonrpc":"2.0","id":"e","error":{"code":-32042,"message":"go there","data":{"elicitations":[{"u":1}]}}}`; plain(t, got) != plain(t, want) {
			t.Errorf("%s", got)
		}
	}
	if rows := w.rows(); len(rows) != 2 {
		t.Errorf("%d rows", len(rows))
	}
}

// plain is JSON with sorted keys and exact numbers.
func plain(t *testing.T, raw string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return jsonOf(v)
}

// wire is a client that writes JSON-RPC by hand.
type wire struct {
	conn mcp.Connection
}

func rawClient(t *testing.T, g *Gateway) *wire {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- g.Serve(context.Background(), here, "local:1") }()
	conn, err := there.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); <-served })
	return &wire{conn}
}

func (w *wire) init(t *testing.T) {
	t.Helper()
	w.ask(t, `"i"`, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"w","version":"1"}}`)
	w.write(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (w *wire) write(t *testing.T, text string) {
	t.Helper()
	msg, err := jsonrpc.DecodeMessage([]byte(text))
	if err == nil {
		err = w.conn.Write(t.Context(), msg)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ask sends a request and returns the answer to it.
func (w *wire) ask(t *testing.T, id, method, params string) string {
	t.Helper()
	w.write(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`)
	for {
		msg, err := w.conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if resp, ok := msg.(*jsonrpc.Response); ok {
			b, err := jsonrpc.EncodeMessage(resp)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
	}
}

// TestIDsHaveTypes: 1 and "1" are two calls; the same id again is the same call.
func TestIDsHaveTypes(t *testing.T) {
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, nil)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	g, _ := w.start()
	c := rawClient(t, g)
	c.init(t)
	for _, id := range []string{`1`, `"1"`, `1`, `"1"`, `"` + strings.Repeat("long", 100) + `"`} {
		if got := c.ask(t, id, "tools/call", `{"name":"do","arguments":{"what":"x"}}`); !strings.Contains(got, "done x") {
			t.Errorf("%s: %s", id, got)
		}
	}
	if n := effects(t, dir, "do"); n != 3 {
		t.Errorf("%d effects", n)
	}
	if got := c.ask(t, `1`, "tools/call", `{"name":"do","arguments":{"what":"y"}}`); !strings.Contains(got, "other arguments") {
		t.Error(got)
	}
	if got := c.ask(t, `7`, "tools/call", `{"name":"do","arguments":{"what":"x"},"_meta":{"writ/id":"i:1"}}`); !strings.Contains(got, "done x, 4") {
		t.Errorf("a client chose its own call id: %s", got)
	}
	for _, unparsable := range []string{`{"what":"x","what":"y"}`} {
		if got := c.ask(t, `8`, "tools/call", `{"name":"do","arguments":`+unparsable+`}`); !strings.Contains(got, "arguments_unparsable") {
			t.Error(got)
		}
	}
}

// TestEachAsksItsOwnClient: what a server asks in the middle of a call reaches the client whose call it is.
func TestEachAsksItsOwnClient(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "peer", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "who"}, func(ctx context.Context, req *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
		res, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who are you?"})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: jsonOf(res.Content["name"])}}}, nil, nil
	})
	w := newWorld(t, peer{alias: "peer", reach: ofServer(t, server)})
	url := serve(t, w, HTTP{Authenticate: anybody})
	var wg sync.WaitGroup
	for _, name := range []string{"ada", "bob", "eve"} {
		opts := &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": name}}, nil
		}}
		cs, err := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, opts).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer cs.Close()
		for range 10 {
			wg.Go(func() {
				res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "who"})
				if err != nil || res.IsError || !strings.Contains(jsonOf(res), name) {
					t.Errorf("%s: %s, %v", name, jsonOf(res), err)
				}
			})
		}
	}
	wg.Wait()
}
