package recorded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"writ"
)

func parse(t *testing.T, s string) *Recording {
	t.Helper()
	r, err := Parse("r.yaml", []byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lines writes what a stream yields, one event a line.
func lines(seq iter.Seq2[writ.ModelEvent, error]) string {
	var b strings.Builder
	for e, err := range seq {
		if err != nil {
			fmt.Fprintf(&b, "error %v\n", err)
			continue
		}
		switch e.Kind {
		case writ.ModelText:
			fmt.Fprintf(&b, "text %d %q\n", e.Block, e.Text)
		case writ.ModelThinking:
			fmt.Fprintf(&b, "thinking %d %q\n", e.Block, e.Text)
		case writ.ModelToolOpen:
			fmt.Fprintf(&b, "open %d %s %s\n", e.Block, e.ID, e.Name)
		case writ.ModelToolArgs:
			fmt.Fprintf(&b, "args %d %q\n", e.Block, e.Text)
		case writ.ModelBlockEnd:
			fmt.Fprintf(&b, "end %d %s\n", e.Block, e.Opaque)
		case writ.ModelUsage:
			fmt.Fprintf(&b, "usage %v\n", e.Usage)
		case writ.ModelFinish:
			fmt.Fprintf(&b, "finish %s\n", e.Finish)
		}
	}
	return b.String()
}

func TestEvents(t *testing.T) {
	for _, c := range []struct{ name, round, want string }{
		{"text in pieces, cut inside a character", "{text: 'aé', chunk_bytes: 2, usage: {output: 3}}", "text 0 \"a\\xc3\"\ntext 0 \"\\xa9\"\nend 0 \nusage {0 3 0 0}\nfinish stop\n"},
		{"no text", "{text: ''}", "end 0 \nfinish stop\n"},
		{"length", "{text: a, finish: length}", "text 0 \"a\"\nend 0 \nfinish length\n"},
		{"cut", "{text: a, finish: cut}", "text 0 \"a\"\n"},
		{"an error after text", "{text: a, finish: 'error:overloaded'}", "text 0 \"a\"\nerror model: overloaded: recorded error\n"},
		{"an error alone", "{finish: 'error:auth'}", "error model: auth: recorded error\n"},
		{"refusal", "{finish: refusal}", "finish refusal\n"},
		{"parts", `
    chunk_bytes: 4
    parts:
      - {thinking: hm, signature: 'a"b'}
      - text: one moment
      - open: {block: 5, id: "", tool: ""}
      - args: {block: 5, text: '{"n":'}
      - open: {block: 5, id: x, tool: probe.add}
      - wait: 5m
      - text: more
      - args: {block: 5, text: "1}"}
      - close: {block: 5}
      - open: {block: 9, tool: probe.sub}
`, `thinking 0 "hm"
end 0 "a\"b"
text 1 "one "
text 1 "mome"
text 1 "nt"
end 1 
open 5  
args 5 "{\"n\""
args 5 ":"
open 5 x probe.add
text 6 "more"
end 6 
args 5 "1}"
end 5 
open 9  probe.sub
finish tool_calls
`},
		{"unclosed text", "{parts: [{text: a, unclosed: true}], finish: cut}", "text 0 \"a\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := parse(t, head+"  - "+c.round+"\n")
			if d := cmp.Diff(c.want, lines(r.Round(0))); d != "" {
				t.Error(d)
			}
		})
	}
	r := parse(t, channelHead+"  - parts: [{thinking: a}, {text: b}]\n")
	if got := lines(r.Round(0)); got != "thinking 0 \"a\"\nend 0 \ntext 1 \"b\"\nend 1 \nfinish stop\n" {
		t.Error(got)
	}
	if got := lines(r.Round(1)) + lines(r.Round(-1)); got != "" {
		t.Errorf("a round that is not there yields %s", got)
	}
}

// TestStopRanging: the caller may stop at any event.
func TestStopRanging(t *testing.T) {
	r := parse(t, head+"  - {text: abcdef, chunk_bytes: 1, usage: {input: 1}}\n")
	for n := range 9 {
		i := 0
		for range r.Round(0) {
			if i == n {
				break
			}
			i++
		}
		if i != n {
			t.Fatalf("%d events", i)
		}
	}
}

func wantInvalid(t *testing.T, seq iter.Seq2[writ.ModelEvent, error], message string) {
	t.Helper()
	n := 0
	for _, err := range seq {
		n++
		var me *writ.ModelError
		if !errors.As(err, &me) || me.Class != writ.ErrorInvalid || me.Message != message {
			t.Errorf("got %v\nwant %s", err, message)
		}
	}
	if n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestModel(t *testing.T) {
	r := parse(t, head+"  - {text: a, expect: ['weather in Zürich', '\"n\":1', result, catalog]}\n  - {text: b, expect: [b, c]}\n  - text: c\n")
	m := r.Model()
	ctx := t.Context()
	req := &writ.ModelRequest{Dialect: writ.Native, Call: "t1/0/0", System: []writ.Part{{Kind: writ.PartText, Text: "catalog"}}, Messages: []writ.Message{
		{Role: writ.RoleUser, Parts: []writ.Part{{Kind: writ.PartText, Text: "the weather in Zürich"}}},
		{Role: writ.RoleAssistant, Parts: []writ.Part{{Kind: writ.PartToolUse, Args: json.RawMessage(`{"n":1}`)}}},
		{Role: writ.RoleUser, Parts: []writ.Part{{Kind: writ.PartToolResult, Content: []writ.Content{{Kind: writ.ContentText, Text: "the result"}}}}},
	}}
	seq := m.Stream(ctx, req)
	if m.Used() != 0 {
		t.Error("a stream that nobody reads takes a round")
	}
	if got := lines(seq); !strings.HasPrefix(got, "text 0 \"a\"") || m.Used() != 1 {
		t.Error(got, m.Used())
	}
	wantInvalid(t, m.Stream(ctx, &writ.ModelRequest{Call: "t1/1/0", System: []writ.Part{{Text: "b"}}}),
		`recording r.yaml, round 2 (t1/1/0) expects "c" in the request, which does not have it`)
	wantInvalid(t, m.Stream(ctx, &writ.ModelRequest{Dialect: writ.Channel}), "recording r.yaml speaks the native dialect and the request the channel one")
	for range 2 {
		wantInvalid(t, m.Stream(ctx, &writ.ModelRequest{Call: "t1/2/1"}), "recording r.yaml has 3 rounds; call 4 (t1/2/1) has none")
	}
	m = r.Model()
	m.Skip(-1)
	if m.Skip(2); m.Used() != 2 {
		t.Errorf("skipped to %d", m.Used())
	}
	if got := lines(m.Stream(ctx, &writ.ModelRequest{})); !strings.HasPrefix(got, "text 0 \"c\"") {
		t.Error(got)
	}
	if m.Skip(1 << 40); m.Used() != 3 {
		t.Errorf("skipped to %d", m.Used())
	}
}

func TestConcurrentCallsTakeEachRoundOnce(t *testing.T) {
	var b strings.Builder
	for i := range 50 {
		fmt.Fprintf(&b, "  - text: r%d\n", i)
	}
	m := parse(t, head+b.String()).Model()
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			first, _, _ := strings.Cut(lines(m.Stream(t.Context(), &writ.ModelRequest{})), "\n")
			mu.Lock()
			defer mu.Unlock()
			seen[first]++
		})
	}
	wg.Wait()
	if len(seen) != 50 || m.Used() != 50 {
		t.Errorf("%d rounds played, %d used", len(seen), m.Used())
	}
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := parse(t, head+"  - {text: abcdef, chunk_bytes: 2, chunk_delay: 10s}\n  - parts: [{wait: 5m}, {text: a}]\n  - parts: [{wait: 5m}, {text: a}]\n").Model()
		start := time.Now()
		lines(m.Stream(t.Context(), &writ.ModelRequest{}))
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("three pieces took %s", d)
		}
		start = time.Now()
		if got := lines(m.Stream(t.Context(), &writ.ModelRequest{})); time.Since(start) != 5*time.Minute {
			t.Error(got, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		for _, err := range m.Stream(ctx, &writ.ModelRequest{}) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("the context ended after 1s and the wait after %s", d)
		}
	})
}

// TestEndedContext: no event comes after the context has ended, delays or not.
func TestEndedContext(t *testing.T) {
	m := parse(t, head+"  - {text: abc, chunk_bytes: 1}\n").Model()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range m.Stream(ctx, &writ.ModelRequest{}) {
		cancel()
		if n++; n > 1 && !errors.Is(err, context.Canceled) {
			t.Errorf("event %d after the end: %v", n, err)
		}
	}
	if n != 2 {
		t.Errorf("%d events", n)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(head+"  - text: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Load(path); err != nil || r.Len() != 1 || r.Name() != path {
		t.Error(r, err)
	}
	if err := os.WriteFile(path, []byte(head+"  - txt: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || err.Error() != path+`:4:5: unknown key "txt" in a round (hint: did you mean "text"?)` {
		t.Error(err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a directory loads")
	}
}
