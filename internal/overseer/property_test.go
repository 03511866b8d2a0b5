package overseer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"writ"
	"writ/internal/stream"
)

// The property: for random tables of tools and random messages, in both dialects, every chunking gives the same
// verdicts and the same shown text, nothing of a refused action is shown, and the verdicts are those of a plain reading
// of the rules.

// world is a random table of tools.
type world map[string]Tool

var strategies = rapid.Custom(func(t *rapid.T) writ.Strategy {
	return rapid.SampledFrom([]writ.Strategy{explore, exploit, neutral, neutral, 0, explore | exploit, exploit | neutral, unknown}).Draw(t, "strategy")
})

var worlds = rapid.Custom(func(t *rapid.T) world {
	w := world{}
	for i := range rapid.IntRange(1, 5).Draw(t, "tools") {
		tool := Tool{Traits: writ.Traits{Strategy: strategies.Draw(t, "s")}}
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 1:
			tool.Paths.Writes = []string{"path"}
		case 2:
			tool.Paths.Reads = []string{"path"}
		case 3:
			tool.Namespaces = map[string]writ.Traits{"a": {Strategy: strategies.Draw(t, "a")}, "b": {Strategy: strategies.Draw(t, "b")}}
		}
		w[fmt.Sprintf("t.%d", i)] = tool
	}
	return w
})

// act is one action of a random message.
type act struct {
	kind, tool, answer string
	params             map[string]any
	late               bool // channel: the parameters stand before the name
}

func acts(w world, dialect writ.Dialect) *rapid.Generator[[]act] {
	return rapid.Custom(func(t *rapid.T) []act {
		var out []act
		for i := range rapid.IntRange(0, 6).Draw(t, "actions") {
			a := act{kind: writ.ActionCall, tool: fmt.Sprintf("t.%d", rapid.IntRange(0, len(w)).Draw(t, "tool")), late: rapid.Bool().Draw(t, "late")}
			if dialect == writ.Channel && rapid.IntRange(0, 5).Draw(t, "final") == 0 {
				a = act{kind: writ.ActionComplete, answer: fmt.Sprintf("answer-of-%d </channel:action>\n\u00e9", i)}
			}
			a.params = map[string]any{"secret": fmt.Sprintf("secret-of-%d", i)}
			if rapid.Bool().Draw(t, "path?") {
				a.params["path"] = rapid.SampledFrom([]string{"p", "./p", "q", "ref:p", "x/../q"}).Draw(t, "path")
			}
			if rapid.Bool().Draw(t, "namespace?") {
				a.params["namespace"] = rapid.SampledFrom([]string{"a", "B:", "a:x", "c"}).Draw(t, "namespace")
			}
			out = append(out, a)
		}
		return out
	})
}

func (a act) json() string {
	p, _ := json.Marshal(a.params)
	return string(p)
}

func (a act) channel() string {
	q := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	switch {
	case a.kind != writ.ActionCall && a.late:
		return fmt.Sprintf("<channel:action>{\"final_answer\":%s,\"action\":%q}</channel:action>\n", q(a.answer), a.kind)
	case a.kind != writ.ActionCall:
		return fmt.Sprintf("<channel:action>{\"action\":%q,\"final_answer\":%s}</channel:action>\n", a.kind, q(a.answer))
	case a.late:
		return fmt.Sprintf("<channel:action>{\"tool_call\":{\"params\":%s,\"tool_id\":%q},\"action\":\"call_tool\"}</channel:action>", a.json(), a.tool)
	}
	return fmt.Sprintf("<channel:action>{\"action\":\"call_tool\",\"tool_call\":{\"tool_id\":%q,\"params\":%s}}</channel:action>", a.tool, a.json())
}

// expect is the plain reading of the rules: which actions are accepted, and the code of those that are not, up to the
// first when the round stops there.
func expect(w world, all []act, most int, goOn bool) []string {
	var out []string
	var accepted []act
	strategy := func(a act) writ.Strategy {
		t := w[a.tool]
		if ns, ok := a.params["namespace"].(string); ok && t.Namespaces != nil {
			ns = strings.ToLower(ns)
			for _, k := range []string{"a", "b"} {
				if ns == k || strings.HasPrefix(ns, k+":") {
					return t.Namespaces[k].Strategy
				}
			}
		}
		return t.Traits.Strategy
	}
	clean := map[any]string{"p": "p", "./p": "p", "ref:p": "p", "q": "q", "x/../q": "q"}
	code := func(a act) writ.Code {
		if len(accepted) >= most {
			return writ.CodeTooManyActions
		}
		if a.kind != writ.ActionCall {
			for _, b := range accepted {
				if b.kind != writ.ActionCall {
					return writ.CodeSecondFinal
				}
			}
			for _, b := range accepted {
				if !strategy(b).Only(neutral) {
					return writ.CodeFinalAfterNonNeutral
				}
			}
			return ""
		}
		t, ok := w[a.tool]
		if !ok {
			return writ.CodeUnknownTool
		}
		for _, b := range accepted {
			if b.kind != writ.ActionCall {
				if !strategy(a).Only(neutral) {
					return writ.CodeNonNeutralAfterFinal
				}
			} else if !Compatible(strategy(b), strategy(a)) {
				return writ.CodeStrategyIncompatible
			}
		}
		for _, b := range accepted {
			target, ok := clean[b.params["path"]]
			if !ok || b.kind != writ.ActionCall || w[b.tool].Paths.Writes == nil || clean[a.params["path"]] != target {
				continue
			}
			switch {
			case t.Paths.Writes != nil:
				return writ.CodeSameTarget
			case t.Paths.Reads != nil || a.params["path"] == "ref:p":
				return writ.CodeConsumesSibling
			}
		}
		return ""
	}
	for _, a := range all {
		c := code(a)
		out = append(out, string(c))
		if c == "" {
			accepted = append(accepted, a)
		} else if !goOn {
			break
		}
	}
	return out
}

// result is what a run gives, without regard to chunks.
type result struct {
	verdicts []string
	shown    map[string]string // lane, index, argument → text
	lines    string
}

func play(cfg Config, d writ.Dialect, events []writ.ModelEvent) result {
	r := result{shown: map[string]string{}}
	l := &log{}
	p := stream.New(d, stream.Options{})
	o := New(cfg)
	feed := func(e stream.Event) bool {
		return o.Feed(e, func(v Output) bool {
			switch v := v.(type) {
			case Verdict:
				r.verdicts = append(r.verdicts, string(v.Code))
			case Shown:
				r.shown[fmt.Sprintf("%d/%d/%s", v.Lane, v.Index, v.Arg)] += v.Text
			}
			return l.out(v)
		})
	}
	for _, e := range events {
		if o.Stopped() {
			break
		}
		p.Feed(e, feed)
	}
	p.Finish(writ.FinishTools, feed)
	r.lines = strings.Join(l.lines, "\n")
	return r
}

func TestEveryChunkingIsJudgedAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := worlds.Draw(t, "world")
		d := rapid.SampledFrom([]writ.Dialect{writ.Channel, writ.Native}).Draw(t, "dialect")
		all := acts(w, d).Draw(t, "actions")
		cfg := Config{MaxActions: rapid.IntRange(1, 5).Draw(t, "cap"), Continue: rapid.Bool().Draw(t, "continue"),
			Lookup: func(id string) (Tool, bool) { tool, ok := w[id]; return tool, ok }}

		whole := play(cfg, d, message(d, all, func(s string) []string { return []string{s} }))
		for _, cut := range []func(string) []string{
			func(s string) []string { return strings.Split(s, "") },
			func(s string) []string { return chunks(t, s) },
		} {
			if got := play(cfg, d, message(d, all, cut)); got.lines != whole.lines {
				t.Fatalf("in pieces:\n%s\nwhole:\n%s", got.lines, whole.lines)
			}
		}

		want := expect(w, all, cfg.MaxActions, cfg.Continue)
		if got := fmt.Sprint(whole.verdicts); got != fmt.Sprint(want) {
			t.Fatalf("verdicts %s, want %q\n%s", got, want, whole.lines)
		}
		for i, a := range all {
			ok := i < len(want) && want[i] == ""
			secret, answer := whole.shown[fmt.Sprintf("%d/%d/secret", LaneArgument, i)], whole.shown[fmt.Sprintf("%d/%d/", LaneAnswer, i)]
			switch {
			case !ok && strings.Contains(whole.lines, fmt.Sprintf("-of-%d", i)):
				t.Fatalf("something of action %d was shown:\n%s", i, whole.lines)
			case ok && a.kind == writ.ActionCall && secret != a.params["secret"], ok && answer != a.answer:
				t.Fatalf("of action %d was shown %q, %q", i, secret, answer)
			}
		}
	})
}

// message writes the actions in a dialect, cut into pieces.
func message(d writ.Dialect, all []act, cut func(string) []string) []writ.ModelEvent {
	var out []writ.ModelEvent
	if d == writ.Channel {
		text := "<channel:thinking>hm</channel:thinking>"
		for _, a := range all {
			text += a.channel()
		}
		for _, s := range cut(text) {
			out = append(out, writ.ModelEvent{Kind: writ.ModelText, Text: s})
		}
		return out
	}
	for i, a := range all {
		open := writ.ModelEvent{Kind: writ.ModelToolOpen, Block: i, ID: "same", Name: a.tool}
		if a.late {
			open.Name = ""
		}
		out = append(out, open)
		for _, s := range cut(a.json()) {
			out = append(out, writ.ModelEvent{Kind: writ.ModelToolArgs, Block: i, Text: s})
		}
		open.Name = a.tool
		out = append(out, open, writ.ModelEvent{Kind: writ.ModelBlockEnd, Block: i})
	}
	return out
}

func chunks(t *rapid.T, s string) []string {
	var out []string
	for s != "" {
		n := min(rapid.IntRange(1, 40).Draw(t, "chunk"), len(s))
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}
