package model_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"writ"
	"writ/config"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
	"writ/tool/gofunc"
)

const agentYAML = `
react: {dialect: native, max_repairs: 2, max_rounds: 4}
surfaces: {as_consumer: {default_agent: main, agents: {main: {tools: [{kind: go, alias: probe, allowed: ["*"]}]}}}}
`

// probe is the tool that counts: its record of calls is the truth.
type probe struct {
	mu    sync.Mutex
	calls []string
	gate  func() // at the first call
}

func (p *probe) did(call writ.Call) writ.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call.Tool+" "+string(call.Params))
	if len(p.calls) == 1 {
		p.gate()
	}
	return writ.TextResult("done")
}

func (p *probe) set(t testing.TB) *gofunc.Funcs {
	t.Helper()
	explore, exploit, neutral, early := writ.Exploration, writ.Exploitation, writ.Neutral, writ.EarlyProfile
	type number struct {
		N int `json:"n"`
	}
	type place struct {
		Place string `json:"place"`
	}
	type name struct {
		Name string `json:"name"`
	}
	type file struct {
		Path    string `json:"path"`
		Content string `json:"content,omitempty"`
	}
	set, err := gofunc.Set(
		gofunc.Func("add", "Adds.", func(_ context.Context, c writ.Call, _ number) (writ.Result, error) { return p.did(c), nil },
			gofunc.Options{Effect: writ.EffectNone, Traits: &writ.DeclaredTraits{Strategy: &explore}}),
		gofunc.Func("look", "Looks.", func(_ context.Context, c writ.Call, _ place) (writ.Result, error) { return p.did(c), nil },
			gofunc.Options{Effect: writ.EffectNone, Traits: &writ.DeclaredTraits{Strategy: &explore}}),
		gofunc.Func("ping", "Answers.", func(_ context.Context, c writ.Call, _ struct{}) (writ.Result, error) { return p.did(c), nil },
			gofunc.Options{Effect: writ.EffectNone, Traits: &writ.DeclaredTraits{Strategy: &explore}}),
		gofunc.Func("save", "Saves.", func(_ context.Context, c writ.Call, _ file) (writ.Result, error) { return p.did(c), nil },
			gofunc.Options{Traits: &writ.DeclaredTraits{Strategy: &exploit}}),
		gofunc.Func("launch", "Launches.", func(_ context.Context, c writ.Call, _ name) (writ.Result, error) { return p.did(c), nil },
			gofunc.Options{Traits: &writ.DeclaredTraits{Strategy: &neutral, Execution: &early}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// turn is what came of a fixture played to the real runtime.
type turn struct {
	outcome runtime.Outcome
	ledger  string
	exit    int
	server  *server
	probe   *probe
}

// runTurn runs one turn on a fixture: the real runtime and store, the real SDK, a Go tool.
func runTurn(t *testing.T, f fixture, chunk int) turn {
	t.Helper()
	s := play(t, f, chunk)
	m := f.open(t, s.URL)
	dir := t.TempDir()
	cfg, report := config.Parse("agent.yaml", []byte(agentYAML), dir)
	if !report.OK() {
		t.Fatal(report.Err())
	}
	agent, err := cfg.Agent("")
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{gate: func() { close(s.gate) }}
	set := p.set(t)
	defer set.Close()
	st := memory.Open()
	var mu sync.Mutex
	ids := map[string]int{}
	rt, err := runtime.New(runtime.Config{Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }, Store: st, Key: []byte("0123456789abcdef"), Dir: dir, Holder: "test", CallGrace: time.Second,
		NewID: func(prefix string) string {
			mu.Lock()
			defer mu.Unlock()
			ids[prefix]++
			return fmt.Sprintf("%s%d", prefix, ids[prefix])
		}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := rt.Run(t.Context(), runtime.Input{Agent: agent, Conversation: "conv", Message: "go",
		Connections: []runtime.Connection{{Config: agent.Connections[0], Tools: set, Effects: set.Effects()}},
		Model:       func(context.Context) (writ.Model, string, error) { return m, "", nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(); err != nil {
		t.Fatal(err)
	}
	return turn{outcome: out, ledger: ledger(t, st, p), exit: exitCode(out), server: s, probe: p}
}

// exitCode is what `writ run` ends with (docs/cli.md).
func exitCode(o runtime.Outcome) int {
	switch o.State {
	case store.TurnAnswered:
		return 0
	case store.TurnInterrupted:
		return 130
	}
	return 3
}

// ledger writes the rows of the ledger, and holds them against the tool's own count.
func ledger(t *testing.T, st store.Store, p *probe) string {
	t.Helper()
	rows, err := st.Actions(context.Background(), store.ActionFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ran := 0
	for _, r := range rows {
		s := fmt.Sprintf("`%s` %s", r.Tool, r.State)
		if r.Early {
			s += " early"
		}
		if r.State == writ.Succeeded {
			ran++
		}
		if !r.State.Settled() {
			t.Errorf("%s is %s after the turn", r.Tool, r.State)
		}
		out = append(out, s)
	}
	if ran != len(p.calls) {
		t.Errorf("the ledger knows of %d calls, the tool of %d: %v", ran, len(p.calls), p.calls)
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// summary tells the events of a golden file in a line.
func summary(t *testing.T, f fixture) (events, finish string) {
	t.Helper()
	data, err := os.ReadFile(strings.TrimSuffix(f.path, ".sse") + ".events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	type block struct {
		kind, name, text string
		open             bool
		late             bool
	}
	var blocks []*block
	byNumber := map[int]*block{}
	at := func(n int, kind string) *block {
		b := byNumber[n]
		if b == nil {
			b = &block{kind: kind, open: true}
			byNumber[n] = b
			blocks = append(blocks, b)
		}
		return b
	}
	finish = "cut"
	for row := range strings.Lines(string(data)) {
		var l line
		if err := json.Unmarshal([]byte(row), &l); err != nil {
			t.Fatal(err)
		}
		switch l.Kind {
		case "text", "thinking":
			raw, _ := hex.DecodeString(l.Bytes)
			at(*l.Block, l.Kind).text += l.Text + string(raw)
		case "tool_open":
			at(*l.Block, "call").name = l.Name
		case "tool_args":
			b := at(*l.Block, "call")
			b.late = b.late || !b.open
			b.text += l.Text
		case "block_end":
			at(*l.Block, "thinking").open = false
		case "finish":
			finish = string(l.Finish)
		case "error":
			finish = "error " + string(l.Class)
		}
	}
	var parts []string
	for _, b := range blocks {
		s := b.kind
		switch {
		case b.kind == "call":
			s = fmt.Sprintf("`%s%s`", b.name, b.text)
		case b.kind == "text":
			s = fmt.Sprintf("%q", b.text)
		}
		if b.open {
			s += " open"
		}
		if b.late {
			s += " late"
		}
		parts = append(parts, s)
	}
	if len(parts) == 0 {
		parts = []string{"none"}
	}
	return strings.Join(parts, ", "), finish
}

const providersDoc = "../docs/providers.md"

// TestWireTurns plays every fixture to the runtime, in every cutting, and holds docs/providers.md against what comes
// out: a fixture without a row, a row without a fixture and a wrong row fail.
func TestWireTurns(t *testing.T) {
	for _, v := range vendors {
		t.Run(v.name, func(t *testing.T) {
			list := fixtures(t, v.name)
			rows := make([]string, len(list))
			t.Run("fixtures", func(t *testing.T) {
				for i, f := range list {
					t.Run(f.name, func(t *testing.T) {
						t.Parallel()
						for _, chunk := range chunkings {
							got := runTurn(t, f, chunk)
							events, finish := summary(t, f)
							row := strings.ReplaceAll(fmt.Sprintf("`%s`: %s | %s | %s | %s | %d", f.name, f.about, events, finish, got.ledger, got.exit), "\n", " ")
							switch {
							case rows[i] == "":
								rows[i] = row
							case rows[i] != row:
								t.Errorf("in chunks of %d the turn is another:\n%s\n%s", chunk, rows[i], row)
							}
						}
					})
				}
			})
			compareTable(t, v.name, rows)
		})
	}
}

func compareTable(t *testing.T, vendor string, rows []string) {
	t.Helper()
	table := "| fixture | model events | finish | ledger | exit |\n|---|---|---|---|---|\n"
	for _, r := range rows {
		table += "| " + r + " |\n"
	}
	doc, err := os.ReadFile(providersDoc)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- fixtures "+vendor+" -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(doc), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table of %s", providersDoc, vendor)
	}
	if *update {
		if err := os.WriteFile(providersDoc, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(got, table); d != "" {
		t.Errorf("%s (-document +measured):\n%s", providersDoc, d)
	}
}

// TestThinkingGoesBack: what a vendor signed is in the next request, byte for byte, at its place.
func TestThinkingGoesBack(t *testing.T) {
	for _, c := range []struct {
		vendor, fixture string
		want            []string // in this order
	}{
		{"anthropic", "thinking_signature", []string{`"signature":"EqQBCgIYAhIM+/=="`, `"thinking":"I should add."`, `"name":"probe__add"`}},
		{"anthropic", "thinking_redacted", []string{`"data":"EmwKAhgB/+=="`, `"type":"redacted_thinking"`, `"name":"probe__add"`}},
		{"anthropic", "thinking_interleaved", []string{`"signature":"c2lnMQ=="`, `"input":{"n":1}`, `"signature":"c2lnMg=="`, `"input":{"n":2}`}},
		{"openai-responses", "reasoning_encrypted", []string{`{"type":"reasoning","id":"rs_0","summary":[],"encrypted_content":"gAAAAAB+/=="}`, `"arguments":"{\"n\":1}"`}},
		{"openai-responses", "reasoning_interleaved", []string{`"encrypted_content":"gAAAAAB1"`, `"arguments":"{\"n\":1}"`, `"encrypted_content":"gAAAAAB2"`, `"arguments":"{\"n\":2}"`}},
	} {
		got := runTurn(t, loadFixture(t, c.vendor, "testdata/wire/"+c.vendor+"/"+c.fixture+".sse"), 0)
		requests := got.server.requests()
		if len(requests) != 2 {
			t.Fatalf("%s: %d requests", c.fixture, len(requests))
		}
		rest := string(requests[1])
		for _, w := range c.want {
			_, after, ok := strings.Cut(rest, w)
			if !ok {
				t.Errorf("%s/%s: %s is not in its place in\n%s", c.vendor, c.fixture, w, requests[1])
				break
			}
			rest = after
		}
	}
}

// TestStartsWhileTheNextBlockStreams: a detached call starts when its block has ended, while the message goes on. The
// server sends nothing more until the tool has been called.
func TestStartsWhileTheNextBlockStreams(t *testing.T) {
	for _, v := range vendors {
		f := loadFixture(t, v.name, "testdata/early/"+v.name+".sse")
		got := runTurn(t, f, 7)
		if got.outcome.State != store.TurnAnswered || got.ledger != "`probe.launch` succeeded early, `probe.add` succeeded" {
			t.Errorf("%s: %s, ledger %s", v.name, got.outcome.State, got.ledger)
		}
	}
}
