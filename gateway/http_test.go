package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
	"writ/store"
)

const initBody = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"w","version":"1"}}}`

// post sends one message as a client would, changed by each of the functions.
func post(t *testing.T, url, body string, change ...func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, c := range change {
		c(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestWhoIsLetIn(t *testing.T) {
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, nil)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	token, path, err := NewToken(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if b, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(b)) != token {
		t.Errorf("%q, %v", b, err)
	}
	if again, _, err := NewToken(w.dir); err != nil || again == token {
		t.Error("two starts have the same token", err)
	}
	alice := Bearer(token, "alice")
	url := serve(t, w, HTTP{Hosts: []string{"gw.example"}, Authenticate: func(r *http.Request) (string, bool) {
		if r.Header.Get("Authorization") == "Bearer bobs" {
			return "bob", true
		}
		return alice(r)
	}})
	good := header("Authorization", "Bearer "+token)
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	for _, c := range []struct {
		name   string
		status int
		change []func(*http.Request)
	}{
		{"no token", 401, nil},
		{"another token", 401, []func(*http.Request){header("Authorization", "Bearer "+token+"x")}},
		{"no scheme", 401, []func(*http.Request){header("Authorization", token)}},
		{"a rebound name", 403, []func(*http.Request){good, host("evil.example")}},
		{"a rebound name with a port", 403, []func(*http.Request){good, host("127.0.0.1.evil.example:80")}},
		{"a page of elsewhere", 403, []func(*http.Request){good, header("Origin", "https://evil.example")}},
		{"a page of nowhere", 403, []func(*http.Request){good, header("Origin", "null")}},
		{"good", 200, []func(*http.Request){good}},
		{"localhost", 200, []func(*http.Request){good, host("localhost:7777"), header("Origin", "http://localhost:6274")}},
		{"IPv6", 200, []func(*http.Request){good, host("[::1]:7777")}},
		{"a served name", 200, []func(*http.Request){good, host("GW.example:443"), header("Origin", "https://gw.example")}},
	} {
		if resp, text := post(t, url, initBody, c.change...); resp.StatusCode != c.status {
			t.Errorf("%s: %s %s", c.name, resp.Status, text)
		}
	}
	resp, _ := post(t, url, initBody, good)
	session := header("Mcp-Session-Id", resp.Header.Get("Mcp-Session-Id"))
	for who, want := range map[string]int{"Bearer " + token: 200, "Bearer bobs": 404} {
		if resp, text := post(t, url, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, session, header("Authorization", who)); resp.StatusCode != want {
			t.Errorf("%s: %s %s", who, resp.Status, text)
		}
	}
	if resp, _ := post(t, url, strings.Repeat("x", maxBody+1), good, session); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Error(resp.Status)
	}
}

// TestWhereItIs: which hosts and pages are let in where others can reach the gateway.
func TestWhereItIs(t *testing.T) {
	near, far := HTTP{Hosts: []string{"gw.example"}}, HTTP{Hosts: []string{"gw.example"}, Remote: true}
	for host, want := range map[string][2]bool{"192.0.2.7:80": {false, true}, "[2001:db8::1]": {false, true}, "[::ffff:127.0.0.1]:80": {true, true},
		"localhost.": {true, true}, "gw.example.:80": {true, true}, "192.0.2.7.evil.example": {false, false}, "": {false, false}} {
		if got := [2]bool{near.here(host), far.here(host)}; got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
	for origin, want := range map[string]bool{"http://192.0.2.7:80": true, "http://192.0.2.8:80": false, "http://192.0.2.7:81": false,
		"https://gw.example": true, "http://localhost:3000": true, "null": false} {
		if got := far.ours(origin, "192.0.2.7:80"); got != want {
			t.Errorf("%s: %v", origin, got)
		}
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:80": true, "[::1]:80": true, "localhost:0": true, ":80": false, "0.0.0.0:80": false, "192.168.0.1:1": false, "nonsense": false} {
		if Loopback(addr) != want {
			t.Error(addr)
		}
	}
}

// TestStatelessRequests: each is an invocation of its own, and they share the upstream.
func TestStatelessRequests(t *testing.T) {
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, nil)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	g, stop := w.start()
	h := httptest.NewServer(g.Handler(HTTP{Authenticate: anybody, Stateless: true}))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: h.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := cs.InitializeResult().ProtocolVersion; v != "2026-07-28" {
		t.Error(v)
	}
	if got := fmt.Sprint(toolNames(t, cs)); got != "[die do hang]" {
		t.Error(got)
	}
	for i := range 3 {
		wantText(t, call(t, cs, "do", map[string]any{"what": "x"}), false, fmt.Sprintf("%d times", i+1))
	}
	first := call(t, cs, "do", nil, key("k"))
	if got := call(t, cs, "do", nil, key("k")); textOf(t, got) != textOf(t, first) {
		t.Error(jsonOf(got))
	}
	// The same id twice is two calls: there is no session that it could be unique in.
	for range 2 {
		if resp, text := post(t, h.URL, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do","arguments":{"what":"old"}}}`); !strings.Contains(text, "done old") {
			t.Errorf("%s %s", resp.Status, text)
		}
	}
	if n := effects(t, dir, "do"); n != 6 {
		t.Errorf("%d effects", n)
	}
	cs.Close()
	stop()
	turns := map[string]bool{}
	for _, row := range w.rows() {
		turns[row.Turn] = true
		turn, err := w.store.Turn(t.Context(), row.Turn)
		if err != nil || turn.State != store.TurnAnswered || turn.Kind != store.KindGateway {
			t.Errorf("%+v, %v", turn, err)
		}
	}
	if len(turns) != 6 {
		t.Errorf("%d invocations", len(turns))
	}
}

// TestIdleSessionsEnd: a session over HTTP that nobody asks anything ends, and its history is committed.
func TestIdleSessionsEnd(t *testing.T) {
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, nil)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	w.cfg.Idle = 50 * time.Millisecond
	g, _ := w.start()
	h := httptest.NewServer(g.Handler(HTTP{Authenticate: anybody}))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	resp, _ := post(t, h.URL, initBody)
	session := header("Mcp-Session-Id", resp.Header.Get("Mcp-Session-Id"))
	if _, text := post(t, h.URL, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"do","arguments":{}}}`, session); !strings.Contains(text, "done") {
		t.Error(text)
	}
	row := w.one("peer.do")
	until(t, "the invocation has ended", func() bool {
		turn, err := w.store.Turn(context.Background(), row.Turn)
		return err == nil && turn.State == store.TurnAnswered
	})
	events, err := w.store.History(t.Context(), row.Conversation, 0, 0)
	if err != nil || len(events) != 6 { // the action's three, the invocation's three
		t.Errorf("%d events, %v", len(events), err)
	}
	until(t, "the session is gone", func() bool {
		resp, _ := post(t, h.URL, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, session)
		return resp.StatusCode == http.StatusNotFound
	})
}

// TestSessionsAreBounded: each has processes of its own, so there are only so many; one that ends makes room.
func TestSessionsAreBounded(t *testing.T) {
	reach, _ := inProcess(t, t.TempDir(), nil)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	w.cfg.Sessions = 1
	url := serve(t, w, HTTP{Authenticate: anybody})
	resp, _ := post(t, url, initBody)
	if _, text := post(t, url, initBody); !strings.Contains(text, "as many as it takes") {
		t.Error(text)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Mcp-Session-Id", resp.Header.Get("Mcp-Session-Id"))
	if gone, err := http.DefaultClient.Do(req); err != nil || gone.StatusCode/100 != 2 {
		t.Fatalf("%+v, %v", gone, err)
	}
	until(t, "there is room", func() bool {
		_, text := post(t, url, initBody)
		return strings.Contains(text, "serverInfo")
	})
}

// TestQuietSessionsRest: over stdio the session stays, and what it had done is committed; it goes on with another
// invocation.
func TestQuietSessionsRest(t *testing.T) {
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, nil)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	w.cfg.Idle = 50 * time.Millisecond
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	turns := map[string]bool{}
	for i := range 2 {
		wantText(t, call(t, cs, "do", nil), false, fmt.Sprintf("%d times", i+1))
		rows := w.rows()
		turn := rows[len(rows)-1].Turn
		turns[turn] = true
		until(t, "the invocation has ended", func() bool {
			turn, err := w.store.Turn(context.Background(), turn)
			return err == nil && turn.State == store.TurnAnswered
		})
	}
	if len(turns) != 2 {
		t.Errorf("%d invocations", len(turns))
	}
}

// TestClientGoesInTheMiddle: what its call did is unknown, and its upstream is told to stop.
func TestClientGoesInTheMiddle(t *testing.T) {
	hung := make(chan string, 4)
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, hung)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	g, _ := w.start()
	cs, cut := dialCut(t, g, "local:1", nil)
	go func() { _, _ = cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "hang"}) }()
	if <-hung != "begun" {
		t.Fatal()
	}
	cut()
	if <-hung != "stopped" {
		t.Fatal()
	}
	row := w.one("peer.hang")
	until(t, "the invocation has ended", func() bool {
		turn, err := w.store.Turn(context.Background(), row.Turn)
		return err == nil && turn.State == store.TurnAnswered
	})
	if row := w.one("peer.hang"); row.State != writ.Indeterminate {
		t.Errorf("%+v", row)
	}
}

// TestGatewayClosesInTheMiddle: what runs is interrupted and unknown, and nothing stays behind.
func TestGatewayClosesInTheMiddle(t *testing.T) {
	hung := make(chan string, 4)
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, hung)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	g, stop := w.start()
	cs := dial(t, g, "local:1", nil)
	result := make(chan *mcp.CallToolResult, 1)
	go func() {
		res, _ := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "hang", Meta: key("k")})
		result <- res
	}()
	if <-hung != "begun" {
		t.Fatal()
	}
	stop()
	if res := <-result; res != nil {
		wantText(t, res, true, "unknown: it may have happened")
	}
	row := w.one("peer.hang")
	turn, err := w.store.Turn(t.Context(), row.Turn)
	if err != nil || turn.State != store.TurnAnswered || row.State != writ.Indeterminate {
		t.Errorf("%+v, %+v, %v", row, turn, err)
	}
}
