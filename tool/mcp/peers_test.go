package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
)

// everything starts the official server over HTTP on a free port.
func everything(t *testing.T) (url string, kill func()) {
	t.Helper()
	script, err := filepath.Abs("../../testdata/npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(script); err != nil {
		t.Fatalf("the official servers are not installed: run make setup (%v)", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("node", script, "streamableHttp")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PORT=" + port}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	kill = func() {
		once.Do(func() {
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait()
		})
	}
	t.Cleanup(kill)
	until(t, "the server listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return "http://" + addr + "/mcp", kill
}

type progress struct {
	mu   sync.Mutex
	said []string
}

func (p *progress) hear(done, total float64, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, fmt.Sprint(done, "/", total, " ", message))
}

func (p *progress) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.said)
}

func TestOfficialEverythingOverHTTP(t *testing.T) {
	url, kill := everything(t)
	var heard progress
	s := open(t, Config{Alias: "everything", URL: url, Log: testLog(t)})
	tools, problems, err := s.Tools(t.Context())
	if err != nil || len(problems) != 0 {
		t.Fatal(problems, err)
	}
	got := names(tools)
	for _, want := range []string{"echo", "get-sum", "get-tiny-image", "get-structured-content", "trigger-long-running-operation"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %v", want, got)
		}
	}
	for _, not := range []string{"trigger-sampling-request", "get-roots-list", "trigger-elicitation-request"} {
		if slices.Contains(got, not) {
			t.Errorf("the server was offered what %s needs", not)
		}
	}
	if text(t, call(t, s, "echo", `{"message":"hi"}`)) != "Echo: hi" {
		t.Error("echo")
	}
	if res := call(t, s, "get-structured-content", `{"location":"Chicago"}`); len(res.Content) != 1 || !strings.Contains(string(res.Content[0].JSON), `"temperature":36`) {
		t.Errorf("%+v", res)
	}
	if res := call(t, s, "get-tiny-image", `{}`); len(res.Content) != 3 || !bytes.HasPrefix(res.Content[1].Data, []byte("\x89PNG")) {
		t.Errorf("%d parts", len(res.Content))
	}
	if res := call(t, s, "get-sum", `{"a":"x"}`); !res.IsError {
		t.Errorf("wrong arguments: %+v", res)
	}
	res, err := s.Call(t.Context(), writ.Call{Tool: "trigger-long-running-operation", ToolCallID: "c-9", Progress: heard.hear, Params: json.RawMessage(`{"duration":0.2,"steps":4}`)})
	if err != nil || res.IsError {
		t.Errorf("%+v, %v", res, err)
	}
	if said := heard.list(); len(said) < 3 || !strings.HasPrefix(said[0], "1/4") {
		t.Errorf("progress %q", said)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			res, err := s.Call(context.Background(), writ.Call{Tool: "echo", Params: json.RawMessage(fmt.Sprintf(`{"message":"%d"}`, i))})
			if err != nil || res.Content[0].Text != fmt.Sprintf("Echo: %d", i) {
				t.Errorf("call %d: %+v, %v", i, res, err)
			}
		})
	}
	wg.Wait()
	if h := s.Health(); h.Starts != 1 || h.Failures != 0 {
		t.Errorf("health %+v", h)
	}
	result := make(chan error, 1)
	heard.mu.Lock()
	heard.said = nil
	heard.mu.Unlock()
	go func() {
		_, err := s.Call(context.Background(), writ.Call{Tool: "trigger-long-running-operation", Progress: heard.hear, Params: json.RawMessage(`{"duration":600,"steps":6000}`)})
		result <- err
	}()
	until(t, "the call is running", func() bool { return len(heard.list()) > 0 })
	kill()
	wantUnknown(t, <-result)
	_, err = s.Call(t.Context(), writ.Call{Tool: "echo", Params: json.RawMessage(`{"message":"x"}`)})
	wantNotStarted(t, err)
}

// goServer is the SDK's own server with tools that count.
func goServer(t *testing.T, opts *sdk.StreamableHTTPOptions) (url string, effects *atomic.Int32, server *sdk.Server) {
	t.Helper()
	effects = &atomic.Int32{}
	server = sdk.NewServer(&sdk.Implementation{Name: "go", Version: "1"}, nil)
	type in struct {
		Steps int `json:"steps,omitempty"`
	}
	sdk.AddTool(server, &sdk.Tool{Name: "count"}, func(ctx context.Context, req *sdk.CallToolRequest, in in) (*sdk.CallToolResult, any, error) {
		n := effects.Add(1)
		for i := range in.Steps {
			if err := req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(),
				Progress: float64(i + 1), Total: float64(in.Steps), Message: "step"}); err != nil {
				return nil, nil, err
			}
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint(n)}}}, nil, nil
	})
	sdk.AddTool(server, &sdk.Tool{Name: "ask"}, func(ctx context.Context, req *sdk.CallToolRequest, _ any) (*sdk.CallToolResult, any, error) {
		answer := req.Params.InputResponses["q"]
		if answer == nil {
			return &sdk.CallToolResult{RequestState: "state-1", InputRequests: sdk.InputRequestMap{"q": &sdk.ElicitParams{Mode: "form", Message: "how many?",
				RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer"}}}}}}, nil, nil
		}
		effects.Add(1)
		e := answer.(*sdk.ElicitResult)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint(req.Params.RequestState, " ", e.Action, " ", e.Content["n"])}}}, nil, nil
	})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, opts))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h.URL, effects, server
}

func TestGoServer(t *testing.T) {
	for name, opts := range map[string]*sdk.StreamableHTTPOptions{
		"stateful": {}, "stateful with JSON": {JSONResponse: true}, "stateless": {Stateless: true}, "stateless with JSON": {Stateless: true, JSONResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			url, effects, _ := goServer(t, opts)
			var heard progress
			s := open(t, Config{Alias: "go", URL: url, Log: testLog(t)})
			tools, problems, err := s.Tools(t.Context())
			if err != nil || len(tools) != 2 || len(problems) != 0 {
				t.Fatal(tools, problems, err)
			}
			args := `{"steps":2}`
			if opts.JSONResponse { // one message has no room for another
				args = `{}`
			}
			for i := range 3 {
				res, err := s.Call(t.Context(), writ.Call{Tool: "count", Params: json.RawMessage(args), Progress: heard.hear})
				if err != nil || text(t, res) != fmt.Sprint(i+1) {
					t.Errorf("got %+v, %v", res, err)
				}
			}
			if !opts.JSONResponse {
				if said := heard.list(); len(said) != 6 || said[0] != "1/2 step" {
					t.Errorf("progress %q", said)
				}
			}
			if res := call(t, s, "count", `{"nobody":1}`); !res.IsError || effects.Load() != 3 {
				t.Errorf("%+v, %d effects", res, effects.Load())
			}
		})
	}
}

// TestQuestionsAreData: a call that asks ends; the answer comes with another call, from another client if need be.
func TestQuestionsAreData(t *testing.T) {
	url, effects, _ := goServer(t, &sdk.StreamableHTTPOptions{Stateless: true})
	s := open(t, Config{Alias: "go", URL: url, Log: testLog(t), AskInput: true})
	_, err := s.Call(t.Context(), writ.Call{Tool: "ask", Params: json.RawMessage(`{}`)})
	var asks *writ.InputRequired
	if !errors.As(err, &asks) || asks.State != "state-1" || errors.Is(err, writ.ErrNotStarted) {
		t.Fatalf("%+v, %v", asks, err)
	}
	var questions map[string]struct {
		Method string
		Params struct{ Message string }
	}
	if err := json.Unmarshal(asks.Requests, &questions); err != nil || questions["q"].Method != "elicitation/create" || questions["q"].Params.Message != "how many?" {
		t.Errorf("%s, %v", asks.Requests, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	input, err := asks.Answer(json.RawMessage(`{"q":{"action":"accept","content":{"n":7}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Alias: "go", URL: url, Log: testLog(t), AskInput: true})
	res, err := s.Call(t.Context(), writ.Call{Tool: "ask", Params: json.RawMessage(`{}`), Input: input})
	if err != nil || text(t, res) != "state-1 accept 7" || effects.Load() != 1 {
		t.Errorf("%+v, %v, %d effects", res, err, effects.Load())
	}
	_, err = s.Call(t.Context(), writ.Call{Tool: "ask", Input: json.RawMessage(`[]`)})
	wantNotStarted(t, err, "the answers")

	// Over stdio the same, once.
	mark := filepath.Join(t.TempDir(), "mark")
	_, err = hostile(t, "plain", func(c *Config) { c.AskInput = true }, mark).Call(t.Context(), writ.Call{Tool: "input-required"})
	if !errors.As(err, &asks) || len(lines(mark)) != 1 {
		t.Errorf("%v, sent %d times", err, len(lines(mark)))
	}
}

// TestQuestionsNobodyAnswers: without AskInput and Elicit no server is told that it may ask, and one that asks in the
// middle of a call hears that it is declined.
func TestQuestionsNobodyAnswers(t *testing.T) {
	for name, opts := range map[string]*sdk.StreamableHTTPOptions{"stateless": {Stateless: true}, "stateful": {}} {
		url, effects, _ := goServer(t, opts)
		res, err := open(t, Config{Alias: "go", URL: url, Log: testLog(t)}).Call(t.Context(), writ.Call{Tool: "ask"})
		if err != nil || effects.Load() > 1 {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		t.Logf("%s: %+v", name, res)
	}
	url, _, _ := goServer(t, &sdk.StreamableHTTPOptions{})
	s := open(t, Config{Alias: "go", URL: url, Log: testLog(t), Elicit: func(_ context.Context, params json.RawMessage) (json.RawMessage, error) {
		if !strings.Contains(string(params), "how many?") {
			t.Errorf("params %s", params)
		}
		return json.RawMessage(`{"action":"accept","content":{"n":3}}`), nil
	}})
	if got := text(t, call(t, s, "ask", `{}`)); got != "state-1 accept 3" {
		t.Errorf("got %q", got)
	}
}

// TestGoServerForgetsTheSession: the server closes an idle session; the next call gets a new one and is sent once.
func TestGoServerForgetsTheSession(t *testing.T) {
	url, effects, server := goServer(t, &sdk.StreamableHTTPOptions{})
	s := open(t, Config{Alias: "go", URL: url, Log: testLog(t), IdleCheck: time.Nanosecond})
	call(t, s, "count", `{}`)
	for ss := range server.Sessions() {
		ss.Close()
	}
	until(t, "the session is gone", func() bool { return len(slices.Collect(server.Sessions())) == 0 })
	call(t, s, "count", `{}`)
	if n := effects.Load(); n != 2 {
		t.Errorf("%d effects", n)
	}
	if h := s.Health(); h.Starts != 2 || h.Failures != 0 {
		t.Errorf("health %+v", h)
	}
	sdk.AddTool(server, &sdk.Tool{Name: "new"}, func(context.Context, *sdk.CallToolRequest, any) (*sdk.CallToolResult, any, error) {
		return nil, nil, nil
	})
	until(t, "the new tool is listed", func() bool {
		tools, _, err := s.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(tools) == 3
	})
}

func TestDefinitionsHaveDigests(t *testing.T) {
	f := farServer(t)
	digest := func(tool string) string {
		f.mu.Lock()
		f.tools = "[" + tool + "]"
		f.mu.Unlock()
		tools, problems, err := remote(t, f.URL, nil).Tools(t.Context())
		if err != nil || len(tools) != 1 || len(tools[0].Definition) != 64 {
			t.Fatal(tools, problems, err)
		}
		return tools[0].Definition
	}
	first := digest(`{"name":"a","description":"d","inputSchema":{"type":"object","properties":{"x":{},"y":{}}},"annotations":{"readOnlyHint":true}}`)
	if first != digest(`{"annotations":{"readOnlyHint":true}, "inputSchema":{"properties":{"y":{},"x":{}},"type":"object"},"description":"d","name":"a","_meta":{"n":1}}`) {
		t.Error("the order of keys counts")
	}
	all := []string{first}
	for _, changed := range []string{
		`{"name":"b","description":"d","inputSchema":{"type":"object","properties":{"x":{},"y":{}}},"annotations":{"readOnlyHint":true}}`,
		`{"name":"a","description":"D","inputSchema":{"type":"object","properties":{"x":{},"y":{}}},"annotations":{"readOnlyHint":true}}`,
		`{"name":"a","description":"d","inputSchema":{"type":"object","properties":{"x":{},"z":{}}},"annotations":{"readOnlyHint":true}}`,
		`{"name":"a","description":"d","inputSchema":{"type":"object","properties":{"x":{},"y":{}}},"annotations":{"readOnlyHint":false}}`,
		`{"name":"a","description":"d","inputSchema":{"type":"object","properties":{"x":{},"y":{}}}}`,
	} {
		if d := digest(changed); slices.Contains(all, d) {
			t.Errorf("unchanged for %s", changed)
		} else {
			all = append(all, d)
		}
	}
}
