package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"writ"
)

// far is a server over HTTP that this test writes by hand, so that it can be as bad as it likes. What it counts is the
// truth.
type far struct {
	*httptest.Server
	mu       sync.Mutex
	seen     map[string]int // by method of the message, "GET", "DELETE"
	headers  http.Header    // of the last message
	session  string
	sessions int
	tools    string
	call     func(w http.ResponseWriter, r *http.Request, id json.RawMessage, params json.RawMessage)
	get      func(w http.ResponseWriter, r *http.Request)
	first    func(w http.ResponseWriter, r *http.Request, method string) bool // takes the request if it likes
}

func farServer(t *testing.T) *far {
	f := &far{seen: map[string]int{}, tools: `[{"name":"act","inputSchema":{"type":"object"}},{"name":"other","inputSchema":{"type":"object"}}]`}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

func (f *far) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[what]
}

func (f *far) serve(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &m)
	what := m.Method
	if r.Method != http.MethodPost {
		what = r.Method
	}
	f.mu.Lock()
	f.seen[what]++
	f.headers = r.Header.Clone()
	session, first, call, get := f.session, f.first, f.call, f.get
	f.mu.Unlock()
	switch given := r.Header.Get("Mcp-Session-Id"); {
	case first != nil && first(w, r, what):
	case r.Method == http.MethodDelete:
	case what == "initialize":
		f.mu.Lock()
		f.sessions++
		f.session = fmt.Sprintf("session-%d", f.sessions)
		w.Header().Set("Mcp-Session-Id", f.session)
		f.mu.Unlock()
		reply(w, m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"far","version":"1"}}`)
	case what == "server/discover":
		http.Error(w, "what?", http.StatusBadRequest)
	case given != session:
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodGet && get != nil:
		get(w, r)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case what == "tools/list":
		f.mu.Lock()
		tools := f.tools
		f.mu.Unlock()
		reply(w, m.ID, `{"tools":`+tools+`}`)
	case what == "ping":
		reply(w, m.ID, `{}`)
	case what == "tools/call" && call != nil:
		call(w, r, m.ID, m.Params)
	case what == "tools/call":
		reply(w, m.ID, `{"content":[{"type":"text","text":"done"}]}`)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// set changes what the server does, between requests.
func (f *far) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *far) expire() { f.set(func() { f.session = "none" }) }

func reply(w http.ResponseWriter, id json.RawMessage, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func events(w http.ResponseWriter) func(format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	return func(format string, args ...any) {
		fmt.Fprintf(w, format, args...)
		w.(http.Flusher).Flush()
	}
}

func hangUp(w http.ResponseWriter) {
	if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
		c.Close()
	}
}

func remote(t *testing.T, url string, change func(*Config)) *Server {
	t.Helper()
	cfg := Config{Alias: "far", URL: url, Headers: map[string]string{"Authorization": "Bearer s3cret"}, Log: testLog(t)}
	if change != nil {
		change(&cfg)
	}
	return open(t, cfg)
}

func act(s *Server) (writ.Result, error) {
	return s.Call(context.Background(), writ.Call{Tool: "act", IdempotencyKey: "key-1", ToolCallID: "call-1", Params: json.RawMessage(`{}`)})
}

func TestRemoteLifecycle(t *testing.T) {
	f := farServer(t)
	var params atomic.Value
	f.call = func(w http.ResponseWriter, _ *http.Request, id, p json.RawMessage) {
		params.Store(string(p))
		reply(w, id, `{"content":[{"type":"text","text":"done"}]}`)
	}
	s := remote(t, f.URL, nil)
	if f.count("initialize") != 0 {
		t.Error("connected before it was needed")
	}
	tools, problems, err := s.Tools(t.Context())
	if err != nil || len(tools) != 2 || len(problems) != 0 {
		t.Fatal(tools, problems, err)
	}
	if text(t, call(t, s, "act", `{"a":1}`)) != "done" {
		t.Error("the answer is lost")
	}
	if _, err := act(s); err != nil {
		t.Fatal(err)
	}
	if p := params.Load().(string); !strings.Contains(p, `"writ/key":"key-1"`) || !strings.Contains(p, `"writ/tool_call_id":"call-1"`) {
		t.Errorf("params %s", p)
	}
	f.set(func() {
		if f.headers.Get("Authorization") != "Bearer s3cret" || f.headers.Get("Mcp-Protocol-Version") != "2025-11-25" {
			t.Errorf("headers %v", f.headers)
		}
	})
	if h := s.Health(); !h.Running || h.Starts != 1 || h.Failures != 0 || h.PID != 0 {
		t.Errorf("health %+v", h)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if f.count("DELETE") != 1 || s.Health().Running {
		t.Errorf("%d farewells, health %+v", f.count("DELETE"), s.Health())
	}
	_, err = act(s)
	wantNotStarted(t, err, "closed")
}

// TestRemoteOutcomes: after each, the server's own count says what really happened, and the session still serves.
func TestRemoteOutcomes(t *testing.T) {
	type handler = func(w http.ResponseWriter, r *http.Request, id, params json.RawMessage)
	long := strings.Repeat("x", 2<<20)
	for name, tc := range map[string]struct {
		call    handler
		unknown string // a word of the error
		failed  string // a word of the answer by which the tool failed
	}{
		"dies after the effect": {call: func(w http.ResponseWriter, _ *http.Request, _, _ json.RawMessage) { hangUp(w) }, unknown: "EOF"},
		"half an answer": {call: func(w http.ResponseWriter, _ *http.Request, id, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[`, id)
			w.(http.Flusher).Flush()
			hangUp(w)
		}, unknown: "cut off"},
		"half a stream": {call: func(w http.ResponseWriter, _ *http.Request, id, _ json.RawMessage) {
			events(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"res", id)
		}, unknown: ""},
		"an empty stream": {call: func(w http.ResponseWriter, _ *http.Request, _, _ json.RawMessage) { events(w) }, unknown: ""},
		"an answer to somebody else": {call: func(w http.ResponseWriter, _ *http.Request, _, _ json.RawMessage) {
			reply(w, json.RawMessage("4711"), `{"content":[]}`)
		}, unknown: "no answer to this request"},
		"no JSON": {call: func(w http.ResponseWriter, _ *http.Request, _, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "<html>")
		}, unknown: "no answer to this request"},
		"another content type": {call: func(w http.ResponseWriter, _ *http.Request, _, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>hello")
		}, unknown: `with "text/html"`},
		"taken and nothing said": {call: func(w http.ResponseWriter, _ *http.Request, _, _ json.RawMessage) { w.WriteHeader(http.StatusAccepted) }, unknown: "HTTP 202"},
		"huge": {call: func(w http.ResponseWriter, _ *http.Request, id, _ json.RawMessage) {
			reply(w, id, `{"content":[{"type":"text","text":"`+long+`"}]}`)
		}, unknown: "too large"},
		"huge in a stream": {call: func(w http.ResponseWriter, _ *http.Request, id, _ json.RawMessage) {
			events(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"%s\"}]}}\n\n", id, long)
		}, unknown: "too large"},
		"deep": {call: func(w http.ResponseWriter, _ *http.Request, id, _ json.RawMessage) {
			reply(w, id, strings.Repeat("[", 2000)+strings.Repeat("]", 2000))
		}, unknown: "nested too deeply"},
		"bad gateway":     {call: status(http.StatusBadGateway, ""), unknown: "HTTP 502"},
		"gateway timeout": {call: status(http.StatusGatewayTimeout, ""), unknown: "HTTP 504"},
		"server error":    {call: status(http.StatusInternalServerError, "oops"), unknown: "HTTP 500"},
		"unauthorized":    {call: status(http.StatusUnauthorized, ""), failed: "HTTP 401 Unauthorized"},
		"too many":        {call: status(http.StatusTooManyRequests, ""), failed: "HTTP 429"},
		"an error with a status": {call: status(http.StatusInternalServerError, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"busy"}}`),
			failed: "busy (code -32000)"},
		"redirected": {call: func(w http.ResponseWriter, _ *http.Request, _, _ json.RawMessage) {
			w.Header().Set("Location", "http://169.254.169.254/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, failed: "redirects are not followed"},
		"an error": {call: func(w http.ResponseWriter, _ *http.Request, id, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such thing"}}`, id)
		}, failed: "no such thing (code -32602)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := farServer(t)
			f.call = tc.call
			s := remote(t, f.URL, func(c *Config) { c.MaxResult = 1 << 20 })
			res, err := act(s)
			if tc.failed != "" {
				if err != nil || !res.IsError || !strings.Contains(text(t, res), tc.failed) {
					t.Errorf("%+v, %v", res, err)
				}
			} else {
				wantUnknown(t, err)
				if err != nil && (!strings.Contains(err.Error(), tc.unknown) || strings.Contains(err.Error(), "s3cret")) {
					t.Errorf("%v", err)
				}
			}
			if n := f.count("tools/call"); n != 1 {
				t.Errorf("the call was sent %d times", n)
			}
			f.set(func() { f.call = nil })
			if _, err := act(s); err != nil {
				t.Errorf("the next call: %v", err)
			}
			if n := f.count("initialize"); n != 1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

func status(code int, body string) func(w http.ResponseWriter, r *http.Request, id, params json.RawMessage) {
	return func(w http.ResponseWriter, _ *http.Request, _, _ json.RawMessage) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func TestRemoteStreamsOfEveryKind(t *testing.T) {
	for name, stream := range map[string]string{
		"plain":           "data: %s\n\n",
		"CRLF":            "event: message\r\ndata: %s\r\n\r\n",
		"CR":              "id: 1\rdata: %s\r\r",
		"comments":        ": hello\n\n:\nretry\nno field at all\ndata: %s\n\n",
		"other events":    "event: ping\ndata: {}\n\ndata: %s\n\n",
		"garbage first":   "data: this is no message\n\ndata: {\"jsonrpc\":\"2.0\"}\n\ndata: %s\n\n",
		"no end":          "data: %s",
		"a line too many": "data\ndata:\ndata: %s\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := farServer(t)
			f.call = func(w http.ResponseWriter, _ *http.Request, id, _ json.RawMessage) {
				events(w)(stream, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}`, id))
			}
			if res, err := act(remote(t, f.URL, nil)); err != nil || text(t, res) != "done" {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	t.Run("a server that holds on", func(t *testing.T) {
		f := farServer(t)
		f.call = func(w http.ResponseWriter, r *http.Request, id, _ json.RawMessage) {
			events(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", id)
			<-r.Context().Done()
		}
		if _, err := act(remote(t, f.URL, nil)); err != nil {
			t.Error(err)
		}
	})
}

// TestRemoteStreamIsContinued: the connection breaks, the call does not: the rest of its stream is asked for.
func TestRemoteStreamIsContinued(t *testing.T) {
	f := farServer(t)
	var id atomic.Value
	f.call = func(w http.ResponseWriter, _ *http.Request, got, _ json.RawMessage) {
		id.Store(string(got))
		events(w)("id: e-1\nretry: 10\ndata:\n\n")
	}
	f.get = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-ID") == "" {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		events(w)("id: e-2\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"late\"}]}}\n\n", id.Load())
	}
	s := remote(t, f.URL, nil)
	if res, err := act(s); err != nil || text(t, res) != "late" || f.count("tools/call") != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	f.set(func() { f.get = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) } })
	_, err := act(s)
	wantUnknown(t, err)
	if err == nil || !strings.Contains(err.Error(), "could not be continued: HTTP 404") || f.count("tools/call") != 2 {
		t.Errorf("%v", err)
	}
	f.set(func() { f.call = nil })
	if _, err := act(s); err != nil || f.count("initialize") != 1 {
		t.Errorf("%v, %d sessions", err, f.count("initialize"))
	}
}

func TestRemoteSessionExpires(t *testing.T) {
	f := farServer(t)
	s := remote(t, f.URL, nil)
	if _, err := act(s); err != nil {
		t.Fatal(err)
	}
	f.expire()
	_, err := act(s)
	wantNotStarted(t, err, "has ended the session")
	if n := f.count("tools/call"); n != 2 {
		t.Errorf("%d calls were sent", n)
	}
	if _, err := act(s); err != nil {
		t.Errorf("the next call: %v", err)
	}
	if h := s.Health(); h.Starts != 2 || h.Failures != 0 {
		t.Errorf("health %+v", h)
	}
	f.expire()
	if tools, _, err := s.Tools(t.Context()); err != nil || len(tools) != 2 {
		t.Errorf("a listing may be asked for again: %v, %v", tools, err)
	}

	// A session that was idle is tried before a call is entrusted to it.
	s = remote(t, f.URL, func(c *Config) { c.IdleCheck = time.Nanosecond })
	if _, err := act(s); err != nil {
		t.Fatal(err)
	}
	f.expire()
	n := f.count("tools/call")
	if _, err := act(s); err != nil || f.count("tools/call") != n+1 || f.count("ping") == 0 {
		t.Errorf("%v, %d calls, %d pings", err, f.count("tools/call")-n, f.count("ping"))
	}
}

func TestRemoteServerDiesAndComesBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	s := remote(t, "http://"+addr, nil)
	_, err = act(s)
	wantNotStarted(t, err, "refused")
	if h := s.Health(); h.Failures != 1 || h.LastError == "" || strings.Contains(h.LastError, "s3cret") {
		t.Errorf("health %+v", h)
	}
	f := farServer(t)
	front := newFront(t, addr, f.Listener.Addr().String())
	if _, err := act(s); err != nil {
		t.Fatal(err)
	}
	front.Close()
	_, err = act(s)
	wantNotStarted(t, err, "refused")
	n := f.count("tools/call")
	f.expire()
	newFront(t, addr, f.Listener.Addr().String())
	if _, err := act(s); err != nil || f.count("tools/call") != n+1 || f.count("initialize") != 2 {
		t.Errorf("%v, %d calls, %d sessions", err, f.count("tools/call")-n, f.count("initialize"))
	}
}

// front is a listener at a fixed address that passes bytes on, so that a server can go and come.
type front struct {
	l  net.Listener
	wg sync.WaitGroup
}

func newFront(t *testing.T, addr, to string) *front {
	t.Helper()
	f := &front{}
	until(t, "the address is free", func() bool {
		l, err := net.Listen("tcp", addr)
		f.l = l
		return err == nil
	})
	f.wg.Go(func() {
		for {
			c, err := f.l.Accept()
			if err != nil {
				return
			}
			f.wg.Go(func() {
				defer c.Close()
				b, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer b.Close()
				f.wg.Go(func() { _, _ = io.Copy(b, c); b.(*net.TCPConn).CloseWrite() })
				_, _ = io.Copy(c, b)
			})
		}
	})
	t.Cleanup(f.Close)
	return f
}

// Close stops listening; what is connected stays.
func (f *front) Close() { f.l.Close() }

func TestRemoteSlowServersAreBounded(t *testing.T) {
	for _, what := range []string{"server/discover", "initialize", "notifications/initialized", "tools/list"} {
		t.Run(what, func(t *testing.T) {
			f := farServer(t)
			f.first = func(_ http.ResponseWriter, r *http.Request, method string) bool {
				if method == what {
					<-r.Context().Done()
				}
				return method == what
			}
			s := remote(t, f.URL, func(c *Config) { c.ConnectTimeout = 200 * time.Millisecond })
			start := time.Now()
			_, _, err := s.Tools(t.Context())
			if err == nil || time.Since(start) > 20*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
	}
	t.Run("GET", func(t *testing.T) { // the stream of notices never begins: nobody waits for it
		f := farServer(t)
		f.get = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		if _, err := act(remote(t, f.URL, nil)); err != nil {
			t.Error(err)
		}
	})
	t.Run("tools/call", func(t *testing.T) {
		f := farServer(t)
		f.call = func(_ http.ResponseWriter, r *http.Request, _, _ json.RawMessage) { <-r.Context().Done() }
		s := remote(t, f.URL, nil)
		if _, _, err := s.Tools(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := s.Call(ctx, writ.Call{Tool: "act"})
		wantUnknown(t, err)
		until(t, "the server hears of it", func() bool { return f.count("notifications/cancelled") == 1 })
		result := make(chan error, 1)
		go func() {
			_, err := act(s)
			result <- err
		}()
		until(t, "the call is running", func() bool { return f.count("tools/call") == 2 })
		start := time.Now()
		if err := s.Close(); err != nil || time.Since(start) > 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		wantUnknown(t, <-result)
	})
	t.Run("DELETE", func(t *testing.T) {
		f := farServer(t)
		f.first = func(_ http.ResponseWriter, r *http.Request, method string) bool {
			if method == "DELETE" {
				<-r.Context().Done()
			}
			return method == "DELETE"
		}
		s := remote(t, f.URL, nil)
		if _, err := act(s); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := s.Close(); err != nil || time.Since(start) > 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestRemoteNotices(t *testing.T) {
	f := farServer(t)
	send := make(chan string)
	f.get = func(w http.ResponseWriter, r *http.Request) {
		write := events(w)
		write(": open\n\n")
		for {
			select {
			case text, ok := <-send:
				if !ok {
					return
				}
				write("%s", text)
			case <-r.Context().Done():
				return
			}
		}
	}
	s := remote(t, f.URL, nil)
	if tools, _, err := s.Tools(t.Context()); err != nil || len(tools) != 2 {
		t.Fatal(tools, err)
	}
	until(t, "the stream of notices is open", func() bool { return f.count("GET") == 1 })
	send <- ": awake\n\n"
	until(t, "its opening is noticed", func() bool {
		n := f.count("tools/list")
		if _, _, err := s.Tools(t.Context()); err != nil {
			t.Fatal(err)
		}
		return f.count("tools/list") == n
	})
	f.mu.Lock()
	f.tools = `[{"name":"other","inputSchema":{"type":"object"}}]`
	f.mu.Unlock()
	send <- "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"
	until(t, "the change is heard of", s.Changed)
	if _, err := act(s); !errors.Is(err, writ.ErrVanished) {
		t.Errorf("got %v", err)
	}
	if tools, _, err := s.Tools(t.Context()); err != nil || len(tools) != 1 || s.Changed() {
		t.Errorf("%v, %v, changed %v", tools, err, s.Changed())
	}
	close(send) // the server closes the stream, in good order
	until(t, "a change may have been missed", s.Changed)
	if _, err := s.Call(t.Context(), writ.Call{Tool: "other"}); err != nil || f.count("initialize") != 1 {
		t.Errorf("%v, %d sessions", err, f.count("initialize"))
	}
}

func TestRemoteConfiguration(t *testing.T) {
	for name, cfg := range map[string]Config{
		"both": {Command: "x", URL: "http://h"}, "another scheme": {URL: "ftp://h"}, "credentials": {URL: "http://u:s3cret@h"},
		"no host": {URL: "http://"}, "a header that breaks lines": {URL: "http://h", Headers: map[string]string{"A": "s3cret\nB: c"}},
		"a header of the protocol": {URL: "http://h", Headers: map[string]string{"mcp-session-id": "s3cret"}},
	} {
		if _, err := Open(cfg); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := farServer(t)
	f.first = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		w.Header().Set("Location", "/mcp/")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	}
	_, err := act(remote(t, f.URL, nil))
	wantNotStarted(t, err, "HTTP 307", "configure the address")
	f.set(func() {
		f.first = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
	})
	_, err = act(remote(t, f.URL+"?key=s3cret", nil))
	wantNotStarted(t, err, "HTTP 401 Unauthorized")
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a secret is shown: %v", err)
	}
}
