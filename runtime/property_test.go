package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"writ"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

// The property: whatever a model writes in whatever pieces, and wherever its streams break, every effect happens at most
// once, every row ends with exactly one result, every request is a well-formed history, nothing that was refused was
// shown, the pieces make no difference, and what a crash leaves can be recovered.

// world is one conversation as it will be played: tools, and what the model writes in each generation.
type world struct {
	dialect  writ.Dialect
	react    string
	tools    string // a tools/ file
	messages []message
}

type message struct {
	acts   []act
	cut    int // of 100: how much of it arrives; 100 = all
	finish writ.Finish
	fails  writ.ErrorClass
}

// act is one action of a message. Its secrets stand in what it would show.
type act struct {
	tool, params, notes, answer string
	malformed                   bool
}

var worlds = rapid.Custom(func(t *rapid.T) world {
	w := world{dialect: rapid.SampledFrom([]writ.Dialect{writ.Channel, writ.Native}).Draw(t, "dialect")}
	// Whether an unknown outcome comes before the next admission is a race, so here none holds anything back.
	w.react = fmt.Sprintf("on_unknown: continue, dialect: %s, max_rounds: %d, max_repairs: %d, max_actions_per_round: %d, on_refusal: %s, stop_on_failure: %v", w.dialect,
		rapid.IntRange(1, 4).Draw(t, "rounds"), rapid.IntRange(0, 3).Draw(t, "repairs"), rapid.IntRange(1, 5).Draw(t, "cap"),
		rapid.SampledFrom([]string{"stop", "continue"}).Draw(t, "on refusal"), rapid.Bool().Draw(t, "stop on failure"))
	var b strings.Builder
	for i := range 5 {
		strategy := rapid.SampledFrom([]string{"neutral", "neutral", "neutral", "exploration", "exploitation", "unknown", "exploration, exploitation"}).Draw(t, "strategy")
		fmt.Fprintf(&b, "t%d: {strategy: [%s], early: %v, effect: %s, outcomes: [%s]", i, strategy, rapid.IntRange(0, 3).Draw(t, "early") > 0,
			rapid.SampledFrom([]string{"once", "once", "idempotent", "none"}).Draw(t, "effect"),
			rapid.SampledFrom([]string{"{text: fine}", "{text: fine}", "{error: no}", "{unknown: lost}", "{not_started: down}", "{panic: ouch}"}).Draw(t, "outcome"))
		if rapid.Bool().Draw(t, "schema?") {
			b.WriteString(", schema: {type: object, properties: {n: {type: integer}}}")
		}
		if rapid.IntRange(0, 3).Draw(t, "writes?") == 0 {
			b.WriteString(", writes: [path]")
		}
		b.WriteString("}\n")
	}
	w.tools = b.String()
	for m := range rapid.IntRange(1, 6).Draw(t, "messages") {
		w.messages = append(w.messages, drawMessage(t, w.dialect, m))
	}
	return w
})

func drawMessage(t *rapid.T, d writ.Dialect, m int) message {
	msg := message{cut: 100, finish: writ.FinishStop}
	for i := range rapid.IntRange(0, 5).Draw(t, "actions") {
		a := act{tool: fmt.Sprintf("t.t%d", rapid.IntRange(0, 5).Draw(t, "tool")), notes: fmt.Sprintf("secret-%d-%d", m, i), // t5 is unknown
			params:    rapid.SampledFrom([]string{`{}`, `{"n":1}`, `{"n":1.0}`, `{"n":2}`, `{"n":"one"}`, `{"n":1,"path":"p"}`, `{"n":1,"path":"./p"}`}).Draw(t, "params"),
			malformed: rapid.IntRange(0, 9).Draw(t, "malformed?") == 0}
		if d == writ.Channel && rapid.IntRange(0, 5).Draw(t, "final?") == 0 {
			a.tool, a.answer = "", fmt.Sprintf("secret-%d-%d", m, i)
		}
		msg.acts = append(msg.acts, a)
	}
	switch rapid.IntRange(0, 4).Draw(t, "end") {
	case 0:
		msg.cut, msg.finish = rapid.IntRange(0, 100).Draw(t, "cut"), writ.FinishCut
	case 1:
		msg.cut, msg.finish = rapid.IntRange(0, 100).Draw(t, "cut"), writ.FinishLength
	case 2:
		msg.fails = rapid.SampledFrom([]writ.ErrorClass{writ.ErrorNetwork, writ.ErrorOverloaded, writ.ErrorAuth}).Draw(t, "error")
	case 3:
		msg.finish = writ.FinishTools
	}
	return msg
}

// events are the model events of a message, its texts cut by pieces.
func (m message) events(d writ.Dialect, pieces func(string) []string) []writ.ModelEvent {
	var out []writ.ModelEvent
	if d == writ.Channel {
		s := "<channel:thinking>hm</channel:thinking>\n"
		for _, a := range m.acts {
			s += a.channel()
		}
		for _, p := range pieces(s[:len(s)*m.cut/100]) {
			out = append(out, writ.ModelEvent{Kind: writ.ModelText, Text: p})
		}
		return out
	}
	blocks := [][]writ.ModelEvent{{{Kind: writ.ModelText, Text: "so"}, {Kind: writ.ModelBlockEnd}}}
	for i, a := range m.acts {
		args := a.params
		if a.malformed {
			args = "{" + args
		}
		blocks = append(blocks, []writ.ModelEvent{{Kind: writ.ModelToolOpen, Block: i + 1, ID: "same", Name: a.tool}, {Kind: writ.ModelToolArgs, Block: i + 1, Text: args},
			{Kind: writ.ModelBlockEnd, Block: i + 1}})
	}
	all := slices.Concat(blocks...)
	for _, e := range all[:len(all)*m.cut/100] {
		for _, p := range pieces(e.Text) {
			e.Text = p
			out = append(out, e)
		}
		if e.Text == "" {
			out = append(out, e)
		}
	}
	return out
}

func (a act) channel() string {
	q := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	s := fmt.Sprintf(`{"action":"call_tool","notes":%s,"tool_call":{"tool_id":%q,"params":%s}}`, q(a.notes), a.tool, a.params)
	if a.tool == "" {
		s = fmt.Sprintf(`{"action":"complete","final_answer":%s}`, q(a.answer))
	}
	if a.malformed {
		s = strings.Replace(s, ":", "::", 2)
	}
	return "<channel:action>" + s + "</channel:action>\n"
}

// playing plays the messages of a world, then an answer.
type playing struct {
	w      world
	pieces func(string) []string
	next   atomic.Int64
}

func (s *playing) Stream(ctx context.Context, req *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	n := int(s.next.Add(1)) - 1
	if n >= len(s.w.messages) {
		return answering(s.w.dialect).Stream(ctx, req)
	}
	m := s.w.messages[n]
	return func(yield func(writ.ModelEvent, error) bool) {
		for _, e := range m.events(s.w.dialect, s.pieces) {
			if !yield(e, nil) {
				return
			}
		}
		switch {
		case m.fails != "":
			yield(writ.ModelEvent{}, &writ.ModelError{Class: m.fails, Message: "broken"})
		case m.finish != writ.FinishCut:
			yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: m.finish}, nil)
		}
	}
}

func (w world) bench(t failer, st store.Store, dir string, pieces func(string) []string) *bench {
	b := benchIn(t, transcript{archive: &txtar.Archive{Files: []txtar.File{
		{Name: "agent.yaml", Data: []byte(agentWith(w.react, ""))}, {Name: "tools/t", Data: []byte(w.tools)},
		{Name: "model", Data: []byte("writ_recording: 1\ndialect: channel\nrounds: [{text: unused}]\n")},
	}}}, st, dir)
	b.model.Model = &playing{w: w, pieces: pieces}
	return b
}

func whole(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func TestAnyConversation(t *testing.T) {
	dirs := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(dirs, "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		w := worlds.Draw(t, "world")
		first := w.play(t, dir+"/1", whole)
		for i, pieces := range []func(string) []string{
			func(s string) []string { return strings.Split(s, "") },
			func(s string) []string {
				var out []string
				for s != "" {
					n := min(rapid.IntRange(1, 40).Draw(t, "piece"), len(s))
					out = append(out, s[:n])
					s = s[n:]
				}
				return out
			},
		} {
			if got := w.play(t, fmt.Sprint(dir, "/", i+2), pieces); got != first {
				t.Fatalf("in pieces:\n%s\nwhole:\n%s", got, first)
			}
		}
		w.crash(t, dir+"/crash")
	})
}

// play runs the conversation and returns what came out.
func (w world) play(t *rapid.T, dir string, pieces func(string) []string) string {
	b := w.bench(t, memory.Open(), dir, pieces)
	rt := b.runtime()
	out, err := b.say(rt, "go")
	if err != nil {
		t.Fatalf("turn: %v", err)
	}
	if err := rt.Close(); err != nil {
		t.Fatal(err)
	}
	b.nextTurn(rt)
	b.checkHistory()
	keys := map[string]bool{}
	for _, k := range b.tools["t"].keys {
		if keys[k] {
			t.Errorf("an effect happened twice: %s", k)
		}
		keys[k] = true
	}
	for _, r := range b.rows() {
		if ran := keys[r.IdempotencyKey]; !r.State.Settled() || ran == (r.State == writ.Withheld) {
			t.Errorf("%s is %s, and ran: %v", r.ID, r.State, ran)
		}
	}
	b.nothingRefusedShown()
	return outcomeText(out) + b.ledgerText() + b.callsText() + b.eventsText()
}

// nothingRefusedShown: no event holds the secret of an action that was refused. Generations are counted as their ends
// come by.
func (b *bench) nothingRefusedShown() {
	b.t.Helper()
	generation := 0
	var secrets []string
	for _, e := range b.events {
		switch e.Type {
		case runtime.EventRefused:
			secrets = append(secrets, fmt.Sprintf("secret-%d-%d", generation, *e.Index))
		case runtime.EventGenerationEnded:
			generation++
		}
	}
	for _, e := range b.events {
		all, err := json.Marshal(e)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, s := range secrets {
			if strings.Contains(string(all), s) {
				b.t.Errorf("%s of a refused action was shown: %s", s, all)
			}
		}
	}
}

// crash fails one write of the conversation in one way and recovers.
func (w world) crash(t *rapid.T, dir string) {
	b := w.bench(t, memory.Open(), dir, whole)
	var writes atomic.Int64
	b.store = &store.Fault{Store: b.store, Before: func(*store.Batch) error { writes.Add(1); return nil }}
	if _, err := b.say(b.runtime(), "go"); err != nil {
		t.Fatal(err)
	}
	at := rapid.IntRange(1, int(writes.Load())).Draw(t, "write")
	m := rapid.SampledFrom(crashModes).Draw(t, "mode")
	crashAt(func(st store.Store) *bench { return w.bench(t, st, dir+"-2", whole) }, []string{"go"}, m, at)
}
