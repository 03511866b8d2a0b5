package stream

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"writ"
)

var fuzzFinishes = []writ.Finish{writ.FinishStop, writ.FinishTools, writ.FinishLength, writ.FinishCut}

// pieces cuts s where the bytes of cuts say.
func pieces(s string, cuts []byte) []string {
	var out []string
	for i := 0; s != ""; i++ {
		n := len(s)
		if len(cuts) > 0 {
			n = min(int(cuts[i%len(cuts)])%37+1, len(s))
		}
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}

// checkEvents is what holds of every sequence.
func checkEvents(t *testing.T, c *collect) {
	t.Helper()
	opened, closed := 0, map[int]bool{}
	for i, e := range c.events {
		if !utf8.ValidString(e.Text) && e.Kind != ThinkingClosed {
			t.Fatalf("%v is not UTF-8: %q", e.Kind, e.Text)
		}
		switch e.Kind {
		case ActionOpened:
			if e.Index != opened {
				t.Fatalf("action %d opened, want %d", e.Index, opened)
			}
			opened++
		case ActionIdentified, Notes, Answer, Argument, ArgumentClosed, ActionClosed:
			if e.Index >= opened || closed[e.Index] {
				t.Fatalf("%s of an action that is not open", line(e))
			}
		case RoundEnded:
			if i != len(c.events)-1 {
				t.Fatalf("event %d of %d is the end", i, len(c.events))
			}
		}
		if e.Value != nil && !json.Valid(e.Value) {
			t.Fatalf("value is not JSON: %q", e.Value)
		}
		if e.Kind == ActionClosed {
			closed[e.Index] = true
			checkDecision(t, e.Decision)
		}
	}
	if len(closed) != opened || c.events[len(c.events)-1].Kind != RoundEnded {
		t.Fatalf("%d opened, %d closed\n%s", opened, len(closed), c.lines())
	}
}

func checkDecision(t *testing.T, d *Decision) {
	t.Helper()
	switch {
	case d.Problem != nil:
		if d.Problem.Code == "" || d.Problem.Message == "" || d.Problem.Hint == "" || d.Params != nil || len(d.Raw) > 700 {
			t.Fatalf("bad refusal: %s", decisionLine(d))
		}
	case d.Action == writ.ActionCall:
		var object map[string]any
		if !utf8.Valid(d.Params) || json.Unmarshal(d.Params, &object) != nil || object == nil || d.Tool == "" && d.ProviderID == "" {
			t.Fatalf("bad call: %s", decisionLine(d))
		}
	case d.Action == writ.ActionComplete && strings.TrimSpace(d.Answer) == "", d.Action != writ.ActionComplete && d.Action != writ.ActionExit:
		t.Fatalf("bad final: %s", decisionLine(d))
	}
}

func FuzzChannelChunking(f *testing.F) {
	for i, c := range slices.Concat(channelCases, decisionCases) {
		f.Add(c.in, []byte{byte(i), byte(3 * i), 1, 17}, byte(i))
	}
	f.Add(action(`{"action":"call_tool","tool_call":{"tool_id":"exec.run","params":{"code":""}}}`)+"<channel:code>a</channel:code>", []byte{0}, byte(0))
	f.Fuzz(func(t *testing.T, in string, cuts []byte, finish byte) {
		fin := fuzzFinishes[int(finish)%len(fuzzFinishes)]
		for _, o := range []Options{{CodeParam: codeTools}, {CodeParam: codeTools, MaxActionBytes: 100}} {
			whole := runChannel(o, fin, in)
			checkEvents(t, whole)
			if got, want := runChannel(o, fin, pieces(in, cuts)...).lines(), whole.lines(); got != want {
				t.Fatalf("in pieces:\n%s\nwhole:\n%s", got, want)
			}
			if got, want := runChannel(o, fin, cut(in, 1)...).lines(), whole.lines(); got != want {
				t.Fatalf("byte by byte:\n%s\nwhole:\n%s", got, want)
			}
		}
	})
}

// nativeScript reads events out of a text: each line is a letter, a block digit, and a text.
func nativeScript(s string) []writ.ModelEvent {
	var out []writ.ModelEvent
	for _, l := range strings.Split(s, "\n") {
		if len(l) < 2 {
			continue
		}
		e := writ.ModelEvent{Block: int(l[1] % 4), Text: strings.ReplaceAll(l[2:], "~", "\n")}
		switch l[0] {
		case 't':
			e.Kind = writ.ModelText
		case 'h':
			e.Kind = writ.ModelThinking
		case 'o':
			e.Kind, e.Name, e.ID, e.Text = writ.ModelToolOpen, strings.TrimSpace(l[2:]), "id", ""
		case 'a':
			e.Kind = writ.ModelToolArgs
		case 'e':
			e.Kind, e.Text = writ.ModelBlockEnd, ""
		case 'f':
			e.Kind, e.Text, e.Opaque = writ.ModelBlockEnd, "", json.RawMessage(`"x"`)
		default:
			continue
		}
		out = append(out, e)
	}
	return out
}

func FuzzNativeChunking(f *testing.F) {
	f.Add("t0one moment\ne0\no1p.q\na1{\"n\":\na1 1}\ne1", []byte{3, 1}, byte(1))
	f.Add("o1p.q\no2p.r\na2{\"s\":\"\\ud83d\\ude00€\"}\na1{}\ne2\ne1\na1 x", []byte{0}, byte(1))
	f.Add("h0hm€\nf0\nf1\no1\na1{\"n\":1\ne1\no1p.q", []byte{2}, byte(2))
	f.Add("o1p.q\na1{\"n\":1}{\"n\":2}\nt1x\ne1\no1p.q\ne1", []byte{5, 1}, byte(0))
	f.Add("o1p.q\na1{\"n\":[1.5e3,true,null,{}]}\ne1", []byte{0}, byte(3))
	f.Fuzz(func(t *testing.T, script string, cuts []byte, finish byte) {
		fin := fuzzFinishes[int(finish)%len(fuzzFinishes)]
		in := nativeScript(script)
		var chunked []writ.ModelEvent
		for _, e := range in {
			if e.Text == "" {
				chunked = append(chunked, e)
			}
			for _, s := range pieces(e.Text, cuts) {
				e.Text = s
				chunked = append(chunked, e)
			}
		}
		for _, o := range []Options{{}, {MaxActionBytes: 20}} {
			whole := runNative(o, fin, in...)
			checkEvents(t, whole)
			if got, want := runNative(o, fin, chunked...).lines(), whole.lines(); got != want {
				t.Fatalf("in pieces:\n%s\nwhole:\n%s", got, want)
			}
			if got, want := runNative(o, fin, split(in, 1)...).lines(), whole.lines(); got != want {
				t.Fatalf("byte by byte:\n%s\nwhole:\n%s", got, want)
			}
		}
	})
}

// FuzzScanner holds the scanner against encoding/json: it accepts what that accepts, except for what it is stricter
// about.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{`{}`, ` {"a":[1,-0.5e+7,"x\u00e9\n",true,false,null,{"b":{}}]} `, `{"a":01}`, `{"a":1.}`, `{"a":"\x"}`, `{"a":tru}`, `{"a":1,}`,
		`{"a":-}`, `{"a":1e}`, "{\"a\":\"\t\"}", `{"a":"\ud800"}`, `{"a":[,]}`, `{"":""}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d := runNative(Options{}, "tool_calls", toolCall(0, "p.q", s)...).decisions()[0]
		trimmed := strings.Trim(s, " \t\r\n")
		ok := json.Valid([]byte(s)) && strings.HasPrefix(trimmed, "{") && utf8.ValidString(s)
		switch {
		case d.Problem == nil && trimmed == "":
		case d.Problem == nil && (!ok || string(d.Params) != trimmed):
			t.Fatalf("accepted %q as %s", s, d.Params)
		case d.Problem != nil && ok && !strings.Contains(d.Problem.Message, "twice") && !strings.Contains(d.Problem.Message, "deeper"):
			t.Fatalf("refused %q: %+v", s, d.Problem)
		}
	})
}

func FuzzEscape(f *testing.F) {
	for _, s := range escapeSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := Escape(s)
		if got := Unescape(e); got != s {
			t.Fatalf("%q became %q and then %q", s, e, got)
		}
		if got := Unescape(Unescape(Escape(e))); got != s {
			t.Fatalf("%q escaped twice and back is %q", s, got)
		}
		for _, context := range []string{"<channel:thinking>", "<channel:action>", "<channel:summary>", "<channel:code>", "<channel:other>"} {
			c := runChannel(Options{}, "stop", context+e)
			for _, ev := range c.events {
				if ev.Kind == ActionOpened && (context != "<channel:action>" || ev.Index > 0) {
					t.Fatalf("%q opened an action after %s", e, context)
				}
			}
			if tags(e) > 0 {
				t.Fatalf("%q holds a tag", e)
			}
		}
	})
}

// tags counts what the parser's matcher takes for a tag.
func tags(s string) int {
	n, m := 0, tagMatcher{}
	for i := 0; i < len(s); i++ {
		switch m.step(s[i]) {
		case tagDone:
			n++
			m.reset()
		case tagNone:
			if m.open() {
				m.reset()
				i--
			}
		}
	}
	return n
}
