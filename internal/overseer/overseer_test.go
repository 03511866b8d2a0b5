package overseer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"writ"
	"writ/internal/stream"
)

// table is the tools of the tests: tool ids are a letter for the strategy, a dot and anything.
func table(tool string) (Tool, bool) {
	kinds := map[string]writ.Strategy{"x": explore, "w": exploit, "n": neutral, "u": 0, "xw": explore | exploit}
	kind, name, _ := strings.Cut(tool, ".")
	s, ok := kinds[kind]
	t := Tool{Traits: writ.Traits{Strategy: s}}
	switch name {
	case "file":
		t.Paths = writ.ToolPaths{Writes: []string{"path"}}
	case "read":
		t.Paths = writ.ToolPaths{Reads: []string{"path"}}
	case "ns":
		t.Namespaces = map[string]writ.Traits{"mem": {Strategy: neutral}, "mail": {Strategy: exploit}}
	}
	return t, ok
}

func call(tool, params string) string {
	return fmt.Sprintf(`<channel:action>{"action":"call_tool","notes":"N","tool_call":{"tool_id":%q,"params":%s},"final_answer":"LEAK"}</channel:action>`, tool, params)
}

func final(action, answer string) string {
	return fmt.Sprintf(`<channel:action>{"action":%q,"final_answer":%q}</channel:action>`, action, answer)
}

// log writes outputs one a line, adjacent shown text joined.
type log struct {
	lines []string
	last  *Shown
}

func (l *log) out(o Output) bool {
	switch o := o.(type) {
	case Verdict:
		s := fmt.Sprintf("verdict %d", o.Index)
		if o.Tool != "" {
			s += " " + o.Tool
		}
		switch {
		case o.Accepted && o.Claimed != nil:
			s += fmt.Sprintf(" claims %d", o.Claimed.Prior)
		case o.Accepted:
			s += " ok"
		default:
			s += " " + string(o.Code)
			if o.Against != nil {
				s += fmt.Sprintf(" against %d%s", o.Against.Index, o.Against.ActionID)
			}
		}
		l.lines = append(l.lines, s)
	case Shown:
		if l.last != nil && l.last.Lane == o.Lane && l.last.Index == o.Index && l.last.Arg == o.Arg {
			l.last.Text += o.Text
		} else {
			l.last = &o
			l.lines = append(l.lines, "")
		}
		l.lines[len(l.lines)-1] = fmt.Sprintf("%s %d %s%q", [...]string{"", "notes", "arg", "answer", "text"}[o.Lane], o.Index, o.Arg, l.last.Text)
		return true
	case Closed:
		s := fmt.Sprintf("closed %d", o.Decision.Index)
		if p := o.Decision.Problem; p != nil {
			s += " " + string(p.Code)
		}
		l.lines = append(l.lines, s)
	case Ended:
		s := "ended " + string(o.Finish)
		if o.Answer {
			s += fmt.Sprintf(" answer %q", o.Text)
		} else if o.Text != "" {
			s += fmt.Sprintf(" notes %q", o.Text)
		}
		l.lines = append(l.lines, s)
	case Passed:
		s := o.Event.Kind.String()
		if n := len(l.lines); n > 0 && l.lines[n-1] == s {
			return true // deltas
		}
		l.lines = append(l.lines, s)
	}
	l.last = nil
	return true
}

// without drops the lines with one of the words, to keep a table short.
func (l *log) without(words ...string) string {
	var out []string
	for _, s := range l.lines {
		if w, _, _ := strings.Cut(s, " "); !contains(words, w) {
			out = append(out, s)
		}
	}
	return strings.Join(out, "\n")
}

func contains(words []string, w string) bool {
	for _, v := range words {
		if v == w {
			return true
		}
	}
	return false
}

// judge runs a channel message through parser and overseer, in chunks of n bytes.
func judge(cfg Config, n int, f writ.Finish, in string) (*log, *Overseer) {
	l := &log{}
	p := stream.NewChannel(stream.Options{})
	if cfg.Lookup == nil {
		cfg.Lookup = table
	}
	o := New(cfg)
	feed := func(e stream.Event) bool { return o.Feed(e, l.out) }
	for len(in) > 0 && !o.Stopped() {
		piece := in[:min(n, len(in))]
		in = in[len(piece):]
		p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: piece}, feed)
	}
	if o.Stopped() {
		f = writ.FinishCut
	}
	p.Finish(f, feed)
	return l, o
}

func native(cfg Config, f writ.Finish, in ...writ.ModelEvent) (*log, *Overseer) {
	l := &log{}
	p := stream.NewNative(stream.Options{})
	if cfg.Lookup == nil {
		cfg.Lookup = table
	}
	o := New(cfg)
	feed := func(e stream.Event) bool { return o.Feed(e, l.out) }
	for _, e := range in {
		if o.Stopped() {
			f = writ.FinishCut
			break
		}
		p.Feed(e, feed)
	}
	p.Finish(f, feed)
	return l, o
}

// equal compares lines; white space around lines does not count.
func equal(t *testing.T, got, want string) {
	t.Helper()
	trim := func(s string) []string {
		var out []string
		for _, l := range strings.Split(s, "\n") {
			if l = strings.TrimSpace(l); l != "" {
				out = append(out, l)
			}
		}
		return out
	}
	if d := cmp.Diff(trim(want), trim(got)); d != "" {
		t.Fatalf("(-want +got)\n%s", d)
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		in   string
		cfg  Config
		want string // verdicts only
	}{
		{"first whatever its strategy", call("u.a", "{}"), Config{}, "verdict 0 u.a ok"},
		{"reads together", call("x.a", "{}") + call("x.b", "{}") + call("n.c", "{}"), Config{}, "verdict 0 x.a ok\nverdict 1 x.b ok\nverdict 2 n.c ok"},
		{"write after read", call("x.a", "{}") + call("w.b", "{}"), Config{}, "verdict 0 x.a ok\nverdict 1 w.b strategy_incompatible against 0"},
		{"read after write", call("w.a", "{}") + call("x.b", "{}"), Config{}, "verdict 0 w.a ok\nverdict 1 x.b ok"},
		{"against all, not the last", call("x.a", "{}") + call("n.b", "{}") + call("w.c", "{}"), Config{}, "verdict 0 x.a ok\nverdict 1 n.b ok\nverdict 2 w.c strategy_incompatible against 0"},
		{"unknown second", call("n.a", "{}") + call("u.b", "{}"), Config{}, "verdict 0 n.a ok\nverdict 1 u.b strategy_incompatible against 0"},
		{"unknown first", call("u.a", "{}") + call("n.b", "{}"), Config{}, "verdict 0 u.a ok\nverdict 1 n.b strategy_incompatible against 0"},
		{"mixed", call("xw.a", "{}") + call("x.b", "{}") + call("w.c", "{}"), Config{Continue: true}, "verdict 0 xw.a ok\nverdict 1 x.b ok\nverdict 2 w.c strategy_incompatible against 0"},
		{"unknown tool", call("n.a", "{}") + call("q.a", "{}"), Config{}, "verdict 0 n.a ok\nverdict 1 q.a unknown_tool"},
		{"cap first, before the tool is looked up", call("n.a", "{}") + call("n.b", "{}") + call("q.c", "{}"), Config{MaxActions: 2}, "verdict 0 n.a ok\nverdict 1 n.b ok\nverdict 2 q.c too_many_actions against 1"},
		{"one action", call("n.a", "{}") + final("complete", "x"), Config{MaxActions: 1}, "verdict 0 n.a ok\nverdict 1 too_many_actions against 0"},
		{"the cap counts accepted ones", call("x.a", "{}") + call("w.b", "{}") + call("x.c", "{}") + call("x.d", "{}"), Config{MaxActions: 2, Continue: true},
			"verdict 0 x.a ok\nverdict 1 w.b strategy_incompatible against 0\nverdict 2 x.c ok\nverdict 3 x.d too_many_actions against 2"},
		{"eight by default", strings.Repeat(call("n.a", "{}"), 9), Config{}, strings.Join(eight(), "\n") + "\nverdict 8 n.a too_many_actions against 7"},
		{"final after neutral", call("n.a", "{}") + final("complete", "x"), Config{}, "verdict 0 n.a ok\nverdict 1 ok"},
		{"final after a read", call("x.a", "{}") + final("complete", "x"), Config{}, "verdict 0 x.a ok\nverdict 1 final_after_non_neutral against 0"},
		{"neutral after final, then a read", final("exit", "") + call("n.a", "{}") + call("x.b", "{}"), Config{}, "verdict 0 ok\nverdict 1 n.a ok\nverdict 2 x.b non_neutral_after_final against 0"},
		{"second final", final("complete", "x") + final("exit", ""), Config{}, "verdict 0 ok\nverdict 1 second_final against 0"},
		{"malformed first, then valid ones with their own index", `<channel:action>{"action":</channel:action>` + call("n.a", "{}"), Config{Continue: true}, "verdict 0 arguments_unparsable\nverdict 1 n.a ok"},
		{"malformed does not stop", `<channel:action>{}</channel:action>` + call("n.a", "{}"), Config{}, "verdict 0 invalid_action\nverdict 1 n.a ok"},
		{"cut before its identity", call("n.a", "{}") + `<channel:action>{"action":"call_`, Config{}, "verdict 0 n.a ok\nverdict 1 truncated"},

		{"same target", call("w.file", `{"path":"a/./b.txt"}`) + call("w.file", `{"path":"a/b.txt"}`), Config{}, "verdict 0 w.file ok\nverdict 1 w.file same_target against 0"},
		{"other target", call("w.file", `{"path":"a"}`) + call("w.file", `{"path":"b"}`), Config{}, "verdict 0 w.file ok\nverdict 1 w.file ok"},
		{"one of several targets", call("w.file", `{"path":"a"}`) + call("w.file", `{"path":["b","conv:fi:a"]}`), Config{}, "verdict 0 w.file ok\nverdict 1 w.file same_target against 0"},
		{"reads what a sibling writes", call("w.file", `{"path":"a"}`) + call("x.read", `{"path":"./a"}`), Config{}, "verdict 0 w.file ok\nverdict 1 x.read consumes_sibling against 0"},
		{"a nested reference", call("w.file", `{"path":"out/a.md"}`) + call("w.x", `{"doc":[{"content":"\u0072ef: out/a.md"}]}`), Config{}, "verdict 0 w.file ok\nverdict 1 w.x consumes_sibling against 0"},
		{"a reference to a file of the conversation", call("w.file", `{"path":"out/a.md"}`) + call("n.x", `{"f":"conv:fi:out/../out/a.md"}`), Config{}, "verdict 0 w.file ok\nverdict 1 n.x consumes_sibling against 0"},
		{"a path in passing is no reference", call("w.file", `{"path":"a"}`) + call("w.x", `{"s":"a","path":"a"}`), Config{}, "verdict 0 w.file ok\nverdict 1 w.x ok"},
		{"an empty path is no target", call("w.file", `{"path":""}`) + call("w.file", `{"path":" "}`), Config{}, "verdict 0 w.file ok\nverdict 1 w.file ok"},
		{"the matrix is quicker than the target", call("x.file", `{"path":"a"}`) + call("w.file", `{"path":"a"}`), Config{}, "verdict 0 x.file ok\nverdict 1 w.file strategy_incompatible against 0"},
		{"paths by the runtime's own rule", call("w.file", `{"path":"A"}`) + call("w.file", `{"path":"a"}`), Config{CanonPath: strings.ToLower}, "verdict 0 w.file ok\nverdict 1 w.file same_target against 0"},

		{"namespace makes it neutral", call("w.ns", `{"namespace":"Mem:","b":1}`) + final("complete", "x"), Config{}, "verdict 0 w.ns ok\nverdict 1 ok"},
		{"namespace with a kind", call("w.ns", `{"namespace":"mem:record"}`) + final("complete", "x"), Config{}, "verdict 0 w.ns ok\nverdict 1 ok"},
		{"another namespace", call("w.ns", `{"namespace":"cnv"}`) + final("complete", "x"), Config{}, "verdict 0 w.ns ok\nverdict 1 final_after_non_neutral against 0"},
		{"no namespace", call("n.ns", `{"b":1}`) + final("complete", "x"), Config{}, "verdict 0 n.ns ok\nverdict 1 ok"},
		{"null is no namespace", call("n.ns", `{"namespace":null}`) + final("complete", "x"), Config{}, "verdict 0 n.ns ok\nverdict 1 ok"},
		{"a namespace that cannot be compared", call("n.ns", `{"namespace":["mem"]}`) + final("complete", "x"), Config{}, "verdict 0 n.ns ok\nverdict 1 final_after_non_neutral against 0"},
		{"a namespace too long to be compared", call("n.ns", `{"namespace":"mem`+strings.Repeat(" ", stream.MaxArgumentValue)+`"}`) + final("complete", "x"), Config{}, "verdict 0 n.ns ok\nverdict 1 final_after_non_neutral against 0"},
		{"a nested namespace selects nothing", call("n.ns", `{"o":{"namespace":"mail"}}`) + final("complete", "x"), Config{}, "verdict 0 n.ns ok\nverdict 1 ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range []int{1, 7, 1 << 20} {
				l, o := judge(c.cfg, n, writ.FinishStop, c.in)
				equal(t, l.without("notes", "arg", "answer", "closed", "ended"), c.want)
				refused := false // by the overseer itself; what is malformed or cut stops nothing
				for line := range strings.Lines(c.want) {
					own := !strings.Contains(line, " ok")
					for _, code := range []writ.Code{writ.CodeTruncated, writ.CodeInvalidAction, writ.CodeArgumentsUnparsable, writ.CodeRequestConflict} {
						own = own && !strings.Contains(line, string(code))
					}
					refused = refused || own
				}
				if o.Stopped() != (refused && !c.cfg.Continue) {
					t.Errorf("stopped = %v", o.Stopped())
				}
				if strings.Contains(strings.Join(l.lines, "\n"), "LEAK") {
					t.Errorf("an answer beside a tool call was shown")
				}
			}
		})
	}
}

func eight() []string {
	var out []string
	for i := range 8 {
		out = append(out, fmt.Sprintf("verdict %d n.a ok", i))
	}
	return out
}

// TestGates: what waits, what flushes, what is dropped, and in which order things go out.
func TestGates(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		cfg            Config
	}{
		{"arguments before identity wait for the verdict", `<channel:action>{"tool_call":{"params":{"a":"1"},"tool_id":"n.a"},"notes":"hi","action":"call_tool"}</channel:action>`, `
			verdict 0 n.a ok
			arg 0 a"1"
			notes 0 "hi"
			closed 0
			ended stop`, Config{}},
		{"a refused one shows nothing", call("x.a", `{}`) + call("w.b", `{"a":"secret"}`), `
			verdict 0 x.a ok
			notes 0 "N"
			closed 0
			verdict 1 w.b strategy_incompatible against 0
			closed 1 truncated
			ended cut`, Config{}},
		{"nor when the round goes on", call("x.a", `{}`) + call("w.b", `{"a":"secret"}`) + final("complete", "secret") + "<channel:summary>s</channel:summary>", `
			verdict 0 x.a ok
			notes 0 "N"
			closed 0
			verdict 1 w.b strategy_incompatible against 0
			closed 1
			verdict 2 final_after_non_neutral against 0
			closed 2
			Summary
			ended stop`, Config{Continue: true}},
		{"an accepted answer streams", `<channel:thinking>t</channel:thinking>` + final("complete", "bye"), `
			Thinking
			ThinkingClosed
			verdict 0 ok
			answer 0 "bye"
			closed 0
			ended stop`, Config{}},
		{"an answer before its action waits", `<channel:action>{"final_answer":"bye","action":"exit"}</channel:action>`, `
			verdict 0 ok
			answer 0 "bye"
			closed 0
			ended stop`, Config{}},
		{"malformed after it was accepted", `<channel:action>{"action":"complete","final_answer":"by` + "\n" + `e"}</channel:action>` + call("n.a", "{}"), `
			verdict 0 ok
			answer 0 "by"
			closed 0 arguments_unparsable
			verdict 1 n.a ok
			notes 1 "N"
			closed 1
			ended stop`, Config{}},
		{"malformed after it was accepted leaves the list", `<channel:action>{"action":"call_tool","tool_call":{"tool_id":"u.a","params":7}}</channel:action>` + call("x.b", "{}"), `
			verdict 0 u.a ok
			closed 0 arguments_unparsable
			verdict 1 x.b ok
			notes 1 "N"
			closed 1
			ended stop`, Config{Continue: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range []int{3, 1 << 20} {
				l, _ := judge(c.cfg, n, writ.FinishStop, c.in)
				equal(t, strings.Join(l.lines, "\n"), c.want)
			}
		})
	}
}

func TestState(t *testing.T) {
	_, o := judge(Config{}, 1<<20, writ.FinishStop, call("n.a", "{}")+final("complete", "bye"))
	if d := cmp.Diff(State{Answers: []Answered{{1, "bye", true}}, TextClosed: true}, o.State()); d != "" {
		t.Error(d)
	}
	_, o = judge(Config{}, 1<<20, writ.FinishCut, `<channel:action>{"action":"complete","final_answer":"by`)
	if d := cmp.Diff(State{Answers: []Answered{{0, "by", false}}, TextClosed: true}, o.State()); d != "" {
		t.Error(d)
	}
	_, o = judge(Config{}, 1<<20, writ.FinishCut, `<channel:action>{"action":"complete","final_answer":"bye"`)
	if d := cmp.Diff(State{Answers: []Answered{{0, "bye", true}}, TextClosed: true}, o.State()); d != "" {
		t.Error(d)
	}
	_, o = judge(Config{}, 1<<20, writ.FinishStop, call("x.a", "{}")+final("complete", "never"))
	if d := cmp.Diff(State{TextClosed: true}, o.State()); d != "" {
		t.Error(d)
	}
}

func tool(block int, id, args string) []writ.ModelEvent {
	return []writ.ModelEvent{{Kind: writ.ModelToolOpen, Block: block, Name: id}, {Kind: writ.ModelToolArgs, Block: block, Text: args}, {Kind: writ.ModelBlockEnd, Block: block}}
}

func say(block int, s string) []writ.ModelEvent {
	return []writ.ModelEvent{{Kind: writ.ModelText, Block: block, Text: s}, {Kind: writ.ModelBlockEnd, Block: block}}
}

func join(parts ...[]writ.ModelEvent) []writ.ModelEvent {
	var out []writ.ModelEvent
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func TestNativeText(t *testing.T) {
	for _, c := range []struct {
		name   string
		in     []writ.ModelEvent
		finish writ.Finish
		cfg    Config
		want   string
	}{
		{"text alone is the answer", say(0, "hi"), "stop", Config{}, `text 0 "hi"
			TextClosed
			ended stop answer "hi"`},
		{"beside neutral calls too", join(say(0, "hi"), tool(1, "n.a", "{}"), say(2, " you")), "stop", Config{}, `text 0 "hi"
			TextClosed
			verdict 0 n.a ok
			closed 0
			text 1 " you"
			TextClosed
			ended stop answer "hi you"`},
		{"a tool_calls finish makes it notes", join(say(0, "hi"), tool(1, "n.a", "{}")), "tool_calls", Config{}, `text 0 "hi"
			TextClosed
			verdict 0 n.a ok
			closed 0
			ended tool_calls notes "hi"`},
		{"after a read it is held, and is notes", join(say(0, "hi"), tool(1, "x.a", "{}"), say(2, "done")), "stop", Config{}, `text 0 "hi"
			TextClosed
			verdict 0 x.a ok
			closed 0
			TextClosed
			notes -1 "done"
			ended stop notes "hidone"`},
		{"text forbids no call", join(say(0, "hi"), tool(1, "w.a", `{"a":"1"}`)), "tool_calls", Config{}, `text 0 "hi"
			TextClosed
			verdict 0 w.a ok
			arg 0 a"1"
			closed 0
			ended tool_calls notes "hi"`},
		{"blank text is no answer", say(0, " \n"), "stop", Config{}, `text 0 " \n"
			TextClosed
			ended stop notes " \n"`},
		{"cut off", []writ.ModelEvent{{Kind: writ.ModelText, Text: "hi"}}, "cut", Config{}, `text 0 "hi"
			ended cut notes "hi"`},
		{"a refusal that does not stop the round", join(say(0, "hi"), tool(1, "q.a", "{}")), "stop", Config{Continue: true}, `text 0 "hi"
			TextClosed
			verdict 0 q.a unknown_tool
			closed 0
			ended stop answer "hi"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := native(c.cfg, c.finish, c.in...)
			equal(t, strings.Join(l.lines, "\n"), c.want)
		})
	}
	_, o := native(Config{}, "cut", writ.ModelEvent{Kind: writ.ModelText, Text: "hi"})
	if s := o.State(); s.Text != "hi" || s.TextClosed {
		t.Errorf("state %+v", s)
	}
}

// TestStoppedTextIsNoAnswer: whatever finish the caller makes up for a stream that a refusal stopped.
func TestStoppedTextIsNoAnswer(t *testing.T) {
	l := &log{}
	o := New(Config{Lookup: table})
	p := stream.NewNative(stream.Options{})
	feed := func(e stream.Event) bool { return o.Feed(e, l.out) }
	for _, e := range join(say(0, "let me see"), tool(1, "q.a", "{}")) {
		p.Feed(e, feed)
	}
	p.Finish(writ.FinishStop, feed)
	if last := l.lines[len(l.lines)-1]; last != `ended stop notes "let me see"` {
		t.Error(last)
	}
}

// TestNativeOrder: verdicts come in index order whatever order blocks close in.
func TestNativeOrder(t *testing.T) {
	open := func(block int, id string) writ.ModelEvent {
		return writ.ModelEvent{Kind: writ.ModelToolOpen, Block: block, Name: id}
	}
	args := func(block int, s string) writ.ModelEvent {
		return writ.ModelEvent{Kind: writ.ModelToolArgs, Block: block, Text: s}
	}
	end := func(block int) writ.ModelEvent { return writ.ModelEvent{Kind: writ.ModelBlockEnd, Block: block} }
	for _, c := range []struct {
		name string
		in   []writ.ModelEvent
		want string
	}{
		{"the second closes before the first is judged", []writ.ModelEvent{open(0, "w.ns"), open(1, "n.a"), args(1, `{"a":1}`), end(1), args(0, `{"namespace":"mem"`), args(0, `}`), end(0)}, `
			verdict 0 w.ns ok
			arg 0 namespace"mem"
			verdict 1 n.a ok
			arg 1 a"1"
			closed 1
			closed 0
			ended tool_calls`},
		{"a sibling's target is not known yet", []writ.ModelEvent{open(0, "w.file"), open(1, "w.file"), args(1, `{"path":"a"}`), end(1), args(0, `{"path":"./a"}`), end(0)}, `
			verdict 0 w.file ok
			arg 0 path"./a"
			closed 0
			verdict 1 w.file same_target against 0
			closed 1
			ended tool_calls`},
		{"cut off while another waits for its target", []writ.ModelEvent{open(0, "w.file"), open(1, "w.file"), args(1, `{"path":"a"}`), end(1)}, `
			verdict 0 w.file ok
			closed 0 truncated
			verdict 1 w.file ok
			arg 1 path"a"
			closed 1
			ended tool_calls`},
		{"judged and closed goes out before an earlier one closes", []writ.ModelEvent{open(0, "n.a"), open(1, "n.b"), args(1, `{}`), end(1), open(2, "n.c")}, `
			verdict 0 n.a ok
			verdict 1 n.b ok
			closed 1
			verdict 2 n.c ok
			closed 0 truncated
			closed 2 truncated
			ended tool_calls`},
		{"the name comes after the end of another", []writ.ModelEvent{open(0, ""), open(1, "n.b"), args(1, `{}`), end(1), open(0, "x.a"), args(0, "{}"), end(0)}, `
			verdict 0 x.a ok
			verdict 1 n.b ok
			closed 1
			closed 0
			ended tool_calls`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := native(Config{}, writ.FinishTools, c.in...)
			equal(t, strings.Join(l.lines, "\n"), c.want)
		})
	}
}

func TestPriors(t *testing.T) {
	row := func(id, tool string, s writ.Strategy, writes ...string) Prior {
		return Prior{ActionID: id, Tool: tool, Index: 0, Strategy: s, Writes: writes}
	}
	// same claims the first unclaimed row whose id is the argument "is".
	same := func(rows ...Prior) func(*stream.Decision) Claim {
		taken := map[int]bool{}
		return func(d *stream.Decision) Claim {
			var p struct{ Is, Not string }
			_ = json.Unmarshal(d.Params, &p)
			for i, r := range rows {
				if !taken[i] && (r.ActionID == p.Is || r.ActionID == p.Not) {
					taken[i] = true
					return Claim{Claimed: p.Is != "", Conflict: p.Not != "", Prior: i}
				}
			}
			return Claim{}
		}
	}
	for _, c := range []struct {
		name string
		rows []Prior
		max  int
		in   string
		want string
	}{
		{"a row stands for the matrix", []Prior{row("A", "u.z", unknown)}, 0, call("n.a", "{}"), "verdict 0 n.a strategy_incompatible against 0A"},
		{"and for the cap", []Prior{row("A", "n.z", neutral)}, 1, call("n.a", "{}"), "verdict 0 n.a too_many_actions against 0A"},
		{"and for the final answer", []Prior{row("A", "n.z", neutral)}, 0, final("complete", "x"), "verdict 0 ok"},
		{"and for targets", []Prior{row("A", "n.z", neutral, "a")}, 0, call("w.file", `{"path":"./a"}`), "verdict 0 w.file same_target against 0A"},
		{"claimed, it counts once", []Prior{row("A", "n.z", neutral)}, 2, call("n.z", `{"is":"A"}`) + call("n.a", "{}") + call("n.b", "{}"),
			"verdict 0 n.z claims 0\nverdict 1 n.a ok\nverdict 2 n.b too_many_actions against 1"},
		{"claimed even where a new one would be refused", []Prior{row("A", "n.z", neutral), row("B", "n.z", neutral)}, 1, call("n.z", `{"is":"B"}`) + call("n.z", `{"is":"A"}`),
			"verdict 0 n.z claims 1\nverdict 1 n.z claims 0"},
		{"twins are claimed one by one, a third is new", []Prior{row("A", "n.z", neutral), row("A", "n.z", neutral)}, 0, strings.Repeat(call("n.z", `{"is":"A"}`), 3),
			"verdict 0 n.z claims 0\nverdict 1 n.z claims 1\nverdict 2 n.z ok"},
		{"other arguments of a dispatched row", []Prior{row("A", "n.z", neutral)}, 0, call("n.z", `{"not":"A"}`) + call("n.a", "{}"), "verdict 0 n.z request_conflict against 0A\nverdict 1 n.a ok"},
		{"another call of the tool is judged as new", []Prior{row("A", "n.z", neutral)}, 0, call("n.z", `{"is":"C"}`), "verdict 0 n.z ok"},
		{"a malformed one claims nothing", []Prior{row("A", "n.z", neutral)}, 0, call("n.z", `[]`), "verdict 0 n.z arguments_unparsable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := judge(Config{Priors: c.rows, MaxActions: c.max, Claim: same(c.rows...), Continue: true}, 5, writ.FinishStop, c.in)
			equal(t, l.without("notes", "arg", "answer", "closed", "ended"), c.want)
		})
	}
}

func TestRetract(t *testing.T) {
	o := New(Config{Lookup: table})
	var got []Verdict
	out := func(v Output) bool {
		if v, ok := v.(Verdict); ok {
			got = append(got, v)
		}
		if c, ok := v.(Closed); ok && c.Decision.Index == 0 {
			o.Retract(0) // its arguments do not fit, says the runtime
		}
		return true
	}
	p := stream.NewChannel(stream.Options{})
	p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: call("u.a", "{}") + call("w.b", "{}")}, func(e stream.Event) bool { return o.Feed(e, out) })
	if len(got) != 2 || !got[1].Accepted {
		t.Fatalf("%+v", got)
	}
	o.Retract(7) // nothing
}

// TestReasons: each names index, tool, the strategies of both sides, and what to do next.
func TestReasons(t *testing.T) {
	nearest := func(string) string { return "n.near" }
	for _, c := range []struct {
		in   string
		want string
	}{
		{call("x.a", "{}") + call("w.b", "{}"), "action 1 (w.b, exploitation): it cannot follow action 0 (x.a, exploration) in one round, whose result you have not seen. " +
			"Next: read that result, then call it in the next round if it is still right."},
		{call("x.a", "{}") + final("complete", "a"), "action 1 (complete): a final answer cannot stand in one round with action 0 (x.a, exploration), whose result you have not seen. " +
			"Next: read that result, then answer in the next round."},
		{call("q.a", "{}"), `action 0 (q.a, unknown): there is no tool "q.a" here. Next: if you meant n.near, call that.`},
		{final("exit", "") + call("x.a", "{}"), "action 1 (x.a, exploration): it comes after action 0 (exit), and only neutral tools may follow a final answer. " +
			"Next: call it in a round of its own, before the final answer."},
		{`<channel:action>{"action":"exit"`, `action 0 (exit): `},
		{call("w.file", `{"path":"a"}`) + call("w.file", `{"path":"a"}`), `action 1 (w.file, exploitation): it writes "a", which action 0 (w.file, exploitation) writes already in this round. ` +
			"Next: read that result, then write in the next round, or use another path."},
		{call(strings.Repeat("long", 100), "{}"), "action 0 (longlong"},
	} {
		var last Verdict
		o := New(Config{Lookup: table, Nearest: nearest})
		p := stream.NewChannel(stream.Options{})
		feed := func(e stream.Event) bool {
			return o.Feed(e, func(v Output) bool {
				if v, ok := v.(Verdict); ok {
					last = v
				}
				return true
			})
		}
		p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: c.in}, feed)
		if strings.HasSuffix(c.want, ".") && last.Reason != c.want || !strings.HasPrefix(last.Reason, c.want) && last.Code != "" || len(last.Reason) > 600 {
			t.Errorf("got  %s\nwant %s", last.Reason, c.want)
		}
	}
}
