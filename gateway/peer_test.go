package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
	"writ/internal/mcpclient"
	"writ/store"
)

// TestMain is also the program of an upstream that can be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("GATEWAY_PEER"); dir != "" {
		if err := peerServer(dir, nil).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	os.Exit(m.Run())
}

// process is a peer over stdio. Each effect is a file of its own in dir.
func process(t *testing.T, dir string) mcpclient.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return mcpclient.Config{Command: self, Env: map[string]string{"GATEWAY_PEER": dir}}
}

// inProcess is a peer over HTTP in this process: hung is told of each call of hang.
func inProcess(t *testing.T, dir string, hung chan string) (mcpclient.Config, *mcp.Server) {
	t.Helper()
	s := peerServer(dir, hung)
	return ofServer(t, s), s
}

// ofServer serves a server of the SDK over HTTP.
func ofServer(t *testing.T, s *mcp.Server) mcpclient.Config {
	t.Helper()
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return mcpclient.Config{URL: h.URL}
}

type doArgs struct {
	What string `json:"what,omitempty"`
	Big  int    `json:"big,omitempty"`
}

// effect leaves a file, named by what is done and the key that came with it.
func effect(dir, what string, meta mcp.Meta) (int, error) {
	key, _ := meta["writ/key"].(string)
	f, err := os.CreateTemp(dir, fmt.Sprintf("effect-%s-%s-*", what, key))
	if err != nil {
		return 0, err
	}
	f.Close()
	all, err := filepath.Glob(filepath.Join(dir, "effect-"+what+"-*"))
	return len(all), err
}

func peerServer(dir string, hung chan string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "peer", Version: "1"}, &mcp.ServerOptions{Instructions: "be careful", PageSize: 1000})
	text := func(format string, args ...any) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
	}
	mcp.AddTool(s, &mcp.Tool{Name: "do"}, func(_ context.Context, req *mcp.CallToolRequest, in doArgs) (*mcp.CallToolResult, any, error) {
		n, err := effect(dir, "do", req.Params.Meta)
		if err != nil {
			return nil, nil, err
		}
		res := text("done %s, %d times%s", in.What, n, strings.Repeat(" and more", in.Big))
		res.StructuredContent = map[string]any{"times": n}
		return res, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "hang"}, func(ctx context.Context, req *mcp.CallToolRequest, _ doArgs) (*mcp.CallToolResult, any, error) {
		if _, err := effect(dir, "hang", req.Params.Meta); err != nil {
			return nil, nil, err
		}
		if hung != nil {
			hung <- "begun"
		}
		<-ctx.Done()
		if hung != nil {
			hung <- "stopped"
		}
		return text("never"), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "die"}, func(_ context.Context, req *mcp.CallToolRequest, _ doArgs) (*mcp.CallToolResult, any, error) {
		if _, err := effect(dir, "die", req.Params.Meta); err != nil {
			return nil, nil, err
		}
		os.Exit(3)
		return nil, nil, nil
	})
	return s
}

func effects(t *testing.T, dir, what string) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "effect-"+what+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// rows are all rows of the ledger.
func (w *world) rows() []store.Action {
	w.t.Helper()
	rows, err := w.store.Actions(context.Background(), store.ActionFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

func (w *world) one(tool string) store.Action {
	w.t.Helper()
	var found []store.Action
	for _, r := range w.rows() {
		if r.Tool == tool {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		w.t.Fatalf("%d rows of %s: %+v", len(found), tool, found)
	}
	return found[0]
}

func key(k string) map[string]any { return map[string]any{"writ/key": k} }

func wantText(t *testing.T, res *mcp.CallToolResult, isError bool, parts ...string) {
	t.Helper()
	got := textOf(t, res)
	if res.IsError != isError {
		t.Errorf("isError %v: %s", res.IsError, got)
	}
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("%q is not in %q", p, got)
		}
	}
}

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, nil)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	g, stop := w.start()
	cs := dial(t, g, "local:1", nil)
	first := call(t, cs, "do", map[string]any{"what": "a"}, key("k1"))
	wantText(t, first, false, "done a, 1 times")
	again := call(t, cs, "do", map[string]any{"what": "a"}, key("k1"))
	if got, want := jsonOf(again), jsonOf(first); got != want {
		t.Errorf("the stored outcome is another one:\n%s\n%s", got, want)
	}
	wantText(t, call(t, cs, "do", map[string]any{"what": "b"}, key("k1")), true, "recorded with other arguments")
	wantText(t, call(t, cs, "hang", map[string]any{"what": "a"}, key("k1")), true, "recorded with other arguments")
	wantText(t, call(t, cs, "do", map[string]any{"what": "a"}), false, "2 times")
	wantText(t, call(t, cs, "do", map[string]any{"what": "a"}), false, "3 times")
	for _, bad := range []any{"", 7, strings.Repeat("x", 257), nil} {
		wantText(t, call(t, cs, "do", nil, map[string]any{"writ/key": bad}), true, "writ/key")
	}
	wantText(t, call(t, cs, "do", map[string]any{"what": "long", "big": 9000}, key("large")), false, "4 times and more")

	other := dial(t, g, "local:2", nil)
	wantText(t, call(t, other, "do", map[string]any{"what": "b"}, key("k1")), false, "5 times") // another principal's key
	cs.Close()
	other.Close()
	stop()

	g, _ = w.start() // another process on the same data
	cs = dial(t, g, "local:1", nil)
	if got := jsonOf(call(t, cs, "do", map[string]any{"what": "a"}, key("k1"))); got != jsonOf(first) {
		t.Errorf("after a restart %s", got)
	}
	wantText(t, call(t, cs, "do", map[string]any{"what": "long", "big": 9000}, key("large")), false, "4 times and more")
	if n := effects(t, dir, "do"); n != 5 {
		t.Errorf("%d effects", n)
	}
}

func TestConcurrentEqualKeys(t *testing.T) {
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, nil)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	g, _ := w.start()
	sessions := []*mcp.ClientSession{dial(t, g, "local:1", nil), dial(t, g, "local:1", nil)}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			res, err := sessions[i%2].CallTool(context.Background(), &mcp.CallToolParams{Name: "do", Arguments: map[string]any{"what": fmt.Sprint(i / 10)}, Meta: key(fmt.Sprint(i / 10))})
			if err != nil || res.IsError || !strings.Contains(jsonOf(res), fmt.Sprintf("done %d", i/10)) {
				t.Errorf("%+v, %v", jsonOf(res), err)
			}
		})
	}
	wg.Wait()
	if n := effects(t, dir, "do"); n != 2 {
		t.Errorf("%d effects of 2 keys", n)
	}
}

func TestUpstreamDies(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, peer{alias: "a", reach: process(t, dir)}, peer{alias: "b", reach: process(t, dir)})
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	wantText(t, call(t, cs, "a__die", nil, key("k")), true, "unknown: it may have happened", "not repeated")
	if row := w.one("a.die"); row.State != writ.Indeterminate || row.Failure != "connection_lost" {
		t.Errorf("%+v", row)
	}
	wantText(t, call(t, cs, "b__do", nil), false, "done")
	wantText(t, call(t, cs, "a__die", nil, key("k")), true, "unknown: it may have happened")
	wantText(t, call(t, cs, "a__do", nil), false, "done") // it has come back
	if n := effects(t, dir, "die"); n != 1 {
		t.Errorf("%d effects", n)
	}
	// The key that the upstream got is the row's own.
	if all, _ := filepath.Glob(filepath.Join(dir, "effect-die-"+w.one("a.die").IdempotencyKey+"-*")); len(all) != 1 {
		t.Errorf("the key did not arrive: %v", all)
	}
}

func TestUpstreamThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, peer{alias: "a", yaml: "allowed: [do]\n", reach: mcpclient.Config{Command: "/nonexistent/program"}}, peer{alias: "b", reach: process(t, dir)})
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 3 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "a__do"}); err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Error(err)
	}
	if !strings.Contains(w.log.String(), "cannot be reached") {
		t.Error(w.log.String())
	}
}

// TestUpstreamThatCannotComeBack: a call to a server that has gone for good was not started.
func TestUpstreamThatCannotComeBack(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "peer")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	reach := process(t, dir)
	reach.Command = link
	w := newWorld(t, peer{alias: "a", reach: reach})
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	wantText(t, call(t, cs, "die", nil), true, "unknown")
	res := call(t, cs, "do", nil)
	wantText(t, res, true, "not started", "nothing has happened")
	if row := w.one("a.do"); row.State != writ.Failed || row.Failure != "not_started" {
		t.Errorf("%+v", row)
	}
	if effects(t, dir, "do") != 0 {
		t.Error("it ran")
	}
}

func TestSlowUpstream(t *testing.T) {
	dir := t.TempDir()
	for _, effect := range []string{"once", "none"} {
		t.Run(effect, func(t *testing.T) {
			hung := make(chan string, 4)
			reach, _ := inProcess(t, dir, hung)
			w := newWorld(t, peer{alias: "peer", reach: reach, yaml: "allowed: [hang]\nlimits: {hang: {timeout: 100ms}}\ntool_traits: {hang: {strategy: exploration, effect: " + effect + "}}\n"})
			g, _ := w.start()
			cs := dial(t, g, "local:1", nil)
			res := call(t, cs, "hang", nil)
			row := w.one("peer.hang")
			if effect == "once" {
				wantText(t, res, true, "unknown: it may have happened", "no answer within 100ms")
				if row.State != writ.Indeterminate || row.Failure != "timeout" {
					t.Errorf("%+v", row)
				}
			} else {
				wantText(t, res, true, "no effect")
				if row.State != writ.Failed || row.Failure != "timeout" {
					t.Errorf("%+v", row)
				}
			}
			if <-hung != "begun" || <-hung != "stopped" {
				t.Error("the upstream was not told to stop")
			}
		})
	}
}

func TestCancelledAfterDispatch(t *testing.T) {
	hung := make(chan string, 4)
	reach, _ := inProcess(t, t.TempDir(), hung)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "hang", Meta: key("k")})
		result <- err
	}()
	if <-hung != "begun" {
		t.Fatal()
	}
	cancel()
	if <-result == nil {
		t.Error("no error")
	}
	if <-hung != "stopped" {
		t.Error("the upstream was not interrupted")
	}
	until(t, "the row is settled", func() bool { return w.one("peer.hang").State.Settled() })
	if row := w.one("peer.hang"); row.State != writ.Indeterminate || row.Failure != "interrupted" {
		t.Errorf("%+v", row)
	}
	wantText(t, call(t, cs, "hang", nil, key("k")), true, "unknown: it may have happened")
}

// gate is a store whose first admission is answered once its asker has gone.
type gate struct {
	store.Store
	once     sync.Once
	admitted chan struct{}
}

func (g *gate) Apply(ctx context.Context, b *store.Batch) error {
	err := g.Store.Apply(ctx, b)
	if len(b.Actions) == 1 && b.Actions[0].State == writ.Admitted {
		g.once.Do(func() {
			close(g.admitted)
			<-ctx.Done()
		})
	}
	return err
}

func TestCancelledBeforeDispatch(t *testing.T) {
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, nil)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	admitted := make(chan struct{})
	w.over(&gate{Store: w.store, admitted: admitted})
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "do", Meta: key("k")})
		result <- err
	}()
	<-admitted
	cancel()
	if <-result == nil {
		t.Error("no error")
	}
	until(t, "the row is settled", func() bool { return w.one("peer.do").State.Settled() })
	if row := w.one("peer.do"); row.State != writ.Withheld || row.Failure != "cancelled" {
		t.Errorf("%+v", row)
	}
	wantText(t, call(t, cs, "do", nil, key("k")), true, "not executed")
	if effects(t, dir, "do") != 0 {
		t.Error("it ran")
	}
}

func jsonOf(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
