package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ/admission"
	"writ/config"
	"writ/internal/mcpclient"
	"writ/store"
	"writ/store/memory"
)

// world is a gateway with everything around it.
type world struct {
	t     *testing.T
	store store.Store
	dir   string
	cfg   Config
	log   *logBuffer
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// peer is one upstream of a test: how it is configured and reached.
type peer struct {
	alias string
	yaml  string // more of its connection
	reach mcpclient.Config
	pins  map[string]string
}

// newWorld compiles a configuration for the peers as an administrator would write it.
func newWorld(t *testing.T, peers ...peer) *world {
	t.Helper()
	w := &world{t: t, store: memory.Open(), dir: t.TempDir(), log: &logBuffer{}}
	agent := agentFor(t, "", peers...)
	w.cfg = Config{Agent: agent, Store: w.store, Dir: w.dir, Holder: "test", Prefix: len(peers) > 1, Debounce: time.Millisecond,
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	w.cfg.Ledger = admission.New(admission.Config{Store: w.store, Key: []byte(strings.Repeat("k", 32))})
	for _, p := range peers {
		c, ok := agent.Connection(p.alias)
		if !ok {
			t.Fatalf("no connection %s", p.alias)
		}
		w.cfg.Upstreams = append(w.cfg.Upstreams, Upstream{Connection: c, Client: p.reach, Pins: p.pins})
	}
	return w
}

func agentFor(t *testing.T, react string, peers ...peer) *config.Agent {
	t.Helper()
	var b strings.Builder
	b.WriteString("mcp:\n  services:\n")
	for _, p := range peers {
		fmt.Fprintf(&b, "    %s: {command: \"true\"}\n", p.alias)
	}
	b.WriteString(react + "surfaces:\n  as_consumer:\n    agents:\n      main:\n        tools:\n")
	for _, p := range peers {
		fmt.Fprintf(&b, "          - kind: mcp\n            server_id: %s\n            alias: %s\n", p.alias, p.alias)
		if !strings.Contains(p.yaml, "allowed:") {
			b.WriteString("            allowed: ['*']\n")
		}
		for line := range strings.Lines(p.yaml) {
			b.WriteString("            " + line)
		}
		b.WriteString("\n")
	}
	cfg, report := config.Parse("writ.yaml", []byte(b.String()), t.TempDir())
	if !report.OK() {
		t.Fatalf("%v\n%s", report.Err(), b.String())
	}
	agent, err := cfg.Agent("main")
	if err != nil {
		t.Fatal(err)
	}
	return agent
}

// over puts the gateway on another store.
func (w *world) over(s store.Store) {
	w.cfg.Store = s
	w.cfg.Ledger = admission.New(admission.Config{Store: s, Key: []byte(strings.Repeat("k", 32))})
}

// start starts the gateway; it is closed with the test, or by the returned function.
func (w *world) start() (*Gateway, func()) {
	w.t.Helper()
	g, err := New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	var once sync.Once
	stop := func() {
		once.Do(func() {
			if err := g.Close(); err != nil {
				w.t.Error(err)
			}
		})
	}
	w.t.Cleanup(stop)
	return g, stop
}

// dial connects a client of the official SDK over a pipe, as over stdio.
func dial(t *testing.T, g *Gateway, principal string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	cs, _ := dialCut(t, g, principal, opts)
	return cs
}

// dialCut is dial, and cut ends the connection as the death of the client's process would.
func dialCut(t *testing.T, g *Gateway, principal string, opts *mcp.ClientOptions) (cs *mcp.ClientSession, cut func()) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	cut = func() { inW.Close(); outR.Close() }
	served := make(chan error, 1)
	go func() {
		served <- g.ServeStdio(context.Background(), inR, outW, principal)
		outW.Close()
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	cs, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cut(); cs.Close(); <-served })
	return cs, cut
}

// npm is an official server of npm over stdio.
func npm(t *testing.T, name string, args ...string) mcpclient.Config {
	t.Helper()
	script, err := filepath.Abs("../testdata/npm/node_modules/@modelcontextprotocol/" + name + "/dist/index.js")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(script); err != nil {
		t.Fatalf("the official servers are not installed: run make setup (%v)", err)
	}
	return mcpclient.Config{Command: "node", Args: append([]string{script}, args...), Env: map[string]string{"HOME": t.TempDir()}}
}

func textOf(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	if len(res.Content) == 0 {
		t.Fatalf("no content: %+v", res)
	}
	c, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("no text: %T", res.Content[0])
	}
	return c.Text
}

func call(t *testing.T, cs *mcp.ClientSession, name string, args map[string]any, meta ...map[string]any) *mcp.CallToolResult {
	t.Helper()
	p := &mcp.CallToolParams{Name: name, Arguments: args}
	if len(meta) > 0 {
		p.Meta = meta[0]
	}
	res, err := cs.CallTool(t.Context(), p)
	if err != nil {
		t.Fatalf("calling %s: %v", name, err)
	}
	return res
}
