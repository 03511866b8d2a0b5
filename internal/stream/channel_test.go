package stream

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"writ"
)

const add = `{"action":"call_tool","tool_call":{"tool_id":"probe.add","params":{"n":1}}}`

// addLines is what the body add gives as action i, without its ActionClosed.
func addLines(i int) string {
	return fmt.Sprintf("ActionOpened %[1]d\nActionIdentified %[1]d call_tool probe.add\nArgument %[1]d n \"1\"\nArgumentClosed %[1]d n 1\n", i)
}

func addAll(i int) string {
	return addLines(i) + fmt.Sprintf("ActionClosed %d call_tool probe.add {\"n\":1}\n", i)
}

func action(body string) string { return "<channel:action>" + body + "</channel:action>" }

// channelCases: what the model wrote, and the events. Each is run at every chunk size.
var channelCases = []struct {
	name, in string
	finish   writ.Finish
	want     string
}{
	{"thinking, action, summary", " \n<channel:thinking>hm</channel:thinking>\n" + action(add) + "<channel:summary>did it</channel:summary>\n", "stop",
		"Thinking 0 \"hm\"\nThinkingClosed 0 \"hm\" \n" + addAll(0) + "Summary \"did it\"\nRoundEnded stop"},
	{"names in any case", "<CHANNEL:Thinking>x</channel:THINKING><Channel:ACTION>" + add + "</channel:Action>", "stop",
		"Thinking 0 \"x\"\nThinkingClosed 0 \"x\" \n" + addAll(0) + "RoundEnded stop"},
	{"unknown channel skipped whole", "<channel:foo>secret<channel:foo2> more</channel:foo2>" + action(add), "stop", addAll(0) + "RoundEnded stop"},
	{"text outside dropped", action(add) + "so there <b>&</b> < channel:action>" + action(add), "stop", addAll(0) + addAll(1) + "RoundEnded stop"},
	{"text first", "Draft outside the protocol", "stop", "Impossible \"D\"\nRoundEnded stop"},
	{"text first, after white space and half a tag", "\n\t <channel :", "stop", "Impossible \"<\"\nRoundEnded stop"},
	{"text after an unknown channel only", "<channel:x>a</channel:x>b", "stop", "Impossible \"b\"\nRoundEnded stop"},
	{"only half a tag", " <channel:thin", "cut", "Impossible \"<\"\nRoundEnded cut"},
	{"nothing", "", "stop", "RoundEnded stop"},
	{"white space", " \n", "stop", "RoundEnded stop"},
	{"code first is a channel", "<channel:code>x</channel:action>y</channel:code>" + action(add), "stop", addAll(0) + "RoundEnded stop"},
	{"backticks in thinking swallow nothing", "<channel:thinking>a ` b ```\n</channel:thinking>" + action(add), "stop",
		"Thinking 0 \"a ` b ```\\n\"\nThinkingClosed 0 \"a ` b ```\\n\" \n" + addAll(0) + "RoundEnded stop"},
	{"angle brackets in thinking", "<channel:thinking>a<b <</channel: x</channel:thinking>", "stop",
		"Thinking 0 \"a<b <</channel: x\"\nThinkingClosed 0 \"a<b <</channel: x\" \nRoundEnded stop"},
	{"an opening tag closes the channel before it", "<channel:thinking>a<channel:action>" + add + "<channel:thinking>b", "stop",
		"Thinking 0 \"a\"\nThinkingClosed 0 \"a\" \n" + addAll(0) + "Thinking 1 \"b\"\nThinkingClosed 1 \"b\" \nRoundEnded stop"},
	{"stray closes", "</channel:action><channel:thinking>a</channel:action>b</channel:thinking></channel:thinking>" +
		"<channel:action></channel:thinking>" + add + "</channel:code></channel:action>", "stop",
		"Thinking 0 \"ab\"\nThinkingClosed 0 \"ab\" \n" + addAll(0) + "RoundEnded stop"},
	{"thinking cut off", "<channel:thinking>a", "length", "Thinking 0 \"a\"\nRoundEnded length"},
	{"a cut character", "<channel:thinking>a\xe2\x82", "stop", "Thinking 0 \"a\uFFFD\uFFFD\"\nThinkingClosed 0 \"a\uFFFD\uFFFD\" \nRoundEnded stop"},
	{"invalid bytes", "<channel:summary>a\xff\xfeb\xe2\x82<€", "stop", "Summary \"a\uFFFD\uFFFDb\uFFFD\uFFFD<€\"\nRoundEnded stop"},

	{"tags and fences inside strings are payload", action(`{"action":"complete","notes":"<channel:action>","final_answer":"a</channel:action><channel:action>{}` + "```json {} ```" + `\"</channel:action>"}`), "stop", `
		ActionOpened 0
		ActionIdentified 0 complete 
		Notes 0 "<channel:action>"
		Answer 0 "a</channel:action><channel:action>{}` + "```json {} ```" + `\"</channel:action>"
		ActionClosed 0 complete  notes="<channel:action>" answer="a</channel:action><channel:action>{}` + "```json {} ```" + `\"</channel:action>"/true
		RoundEnded stop`},
	{"a tag inside a key", action(`{"</channel:action>":1,` + add[1:]), "stop", addAll(0) + "RoundEnded stop"},
	{"fence on its own lines", action("\n```json\n" + add + "\n```\n"), "stop", addAll(0) + "RoundEnded stop"},
	{"fence and JSON in one line", action("```json " + add + "```"), "stop", addAll(0) + "RoundEnded stop"},
	{"fence without a word", action("```" + add + "\n```"), "stop", addAll(0) + "RoundEnded stop"},
	{"fence not closed", action("```JSON\n" + add), "stop", addAll(0) + "RoundEnded stop"},
	{"a second object", action(add + " " + add), "stop",
		addLines(0) + "ActionClosed 0 call_tool probe.add !invalid_action@75: an action block holds a second JSON object | …\nRoundEnded stop"},
	{"two fenced objects", action("```json\n"+add+"\n```\n```json\n"+add+"\n```") + action(add), "stop",
		addLines(0) + "ActionClosed 0 call_tool probe.add !invalid_action@75: an action block holds a second JSON object | …\n" + addAll(1) + "RoundEnded stop"},
	{"something after the object", action(add+"]") + action(add), "stop",
		addLines(0) + "ActionClosed 0 call_tool probe.add !invalid_action@75: ']' stands after …\n" + addAll(1) + "RoundEnded stop"},
	{"something before the object", action("Sure: " + add), "stop", "ActionOpened 0\nActionClosed 0   !invalid_action@0: …'S' | …\nRoundEnded stop"},
	{"a list", action("[" + add + "]"), "stop", "ActionOpened 0\nActionClosed 0   !invalid_action@0: …\nRoundEnded stop"},
	{"empty block", action(" \n"), "stop", "ActionOpened 0\nActionClosed 0   !invalid_action@0: the action block is empty | …\nRoundEnded stop"},
	{"half an object", action(`{"action":"call_tool",`), "stop",
		"ActionOpened 0\nActionClosed 0 call_tool  !arguments_unparsable@22: the JSON ends too early | …\nRoundEnded stop"},
	{"half an object before the next action", "<channel:action>{\"a\":1 " + action(add), "stop",
		"ActionOpened 0\nActionClosed 0   !arguments_unparsable@7: the JSON ends too early | …\n" + addAll(1) + "RoundEnded stop"},
	{"open at the end, whole JSON", "<channel:action>" + add, "stop", addLines(0) +
		"ActionClosed 0 call_tool probe.add !truncated@75: the generation ended (stop) before the action was complete | send the whole action again | …\nRoundEnded stop"},
	{"open at the end, cut by length", "<channel:action>" + add[:60], "length",
		"ActionOpened 0\nActionIdentified 0 call_tool probe.add\nActionClosed 0 call_tool probe.add !truncated@60: …shorter…\nRoundEnded length"},
	{"cut inside the closing tag", "<channel:action>" + add + "</channel:acti", "cut", addLines(0) + "ActionClosed 0 call_tool probe.add !truncated@75: …\nRoundEnded cut"},
}

func TestChannel(t *testing.T) {
	for _, c := range slices.Concat(channelCases, decisionCases) {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range sizes {
				got := runChannel(Options{}, c.finish, cut(c.in, n)...).lines()
				equalLines(t, fmt.Sprintf("%d bytes a chunk", n), got, c.want)
			}
		})
	}
}

func TestOutsideIsCounted(t *testing.T) {
	for _, n := range sizes {
		p := NewChannel(Options{})
		for _, s := range cut(action(add)+"ab c<d </channel:action>\n"+action(add)+"€", n) {
			p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: s}, func(Event) bool { return true })
		}
		if p.Outside() != len("abc<d€") {
			t.Fatalf("%d bytes a chunk: outside = %d", n, p.Outside())
		}
	}
}

func TestImpossibleHasAPreview(t *testing.T) {
	got := runChannel(Options{}, "stop", "Draft outside the protocol", "more").events
	if got[0].Kind != Impossible || got[0].Text != "Draft outside the protocol" {
		t.Fatalf("got %+v", got[0])
	}
	long := runChannel(Options{}, "stop", strings.Repeat("é", 1000)).events[0].Text
	if len(long) != 200 {
		t.Fatalf("the preview has %d bytes", len(long))
	}
}

// TestHoldback: what cannot be a tag goes out at once.
func TestHoldback(t *testing.T) {
	var got string
	p := NewChannel(Options{})
	feed := func(s string) string {
		got = ""
		p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: s}, func(e Event) bool { got += e.Text; return true })
		return got
	}
	feed("<channel:thinking>")
	for _, s := range []string{"a", "bc", " <", "/x", "<channel:", "é"} {
		switch want := feed(s); s {
		case " <":
			if want != " " {
				t.Fatalf("after %q: %q", s, want)
			}
		case "<channel:":
			if want != "" {
				t.Fatalf("after %q: %q", s, want)
			}
		case "/x":
			if want != "</x" {
				t.Fatalf("after %q: %q", s, want)
			}
		case "é":
			if want != "<channel:é" {
				t.Fatalf("after %q: %q", s, want)
			}
		default:
			if want != s {
				t.Fatalf("after %q: %q", s, want)
			}
		}
	}
}

func TestNativeThinkingBesideChannels(t *testing.T) {
	c := &collect{}
	p := NewChannel(Options{})
	for _, e := range []writ.ModelEvent{
		{Kind: writ.ModelThinking, Block: 0, Text: "h"}, {Kind: writ.ModelThinking, Block: 0, Text: "m"},
		{Kind: writ.ModelBlockEnd, Block: 0, Opaque: []byte(`"sig"`)},
		{Kind: writ.ModelBlockEnd, Block: 1, Opaque: []byte(`"redacted"`)},
		{Kind: writ.ModelText, Block: 2, Text: "<channel:thinking>x</channel:thinking>"}, {Kind: writ.ModelBlockEnd, Block: 2},
		{Kind: writ.ModelToolOpen, Block: 3, Name: "x.y"}, {Kind: writ.ModelToolArgs, Block: 3, Text: "{}"}, {Kind: writ.ModelBlockEnd, Block: 3},
		{Kind: writ.ModelUsage}, {Kind: writ.ModelFinish, Finish: "stop"},
	} {
		p.Feed(e, c.emit)
	}
	p.Finish("stop", c.emit)
	equalLines(t, "events", c.lines(), `
		Thinking 0 "hm"
		ThinkingClosed 0 "hm" "sig"
		ThinkingClosed 1 "" "redacted"
		Thinking 2 "x"
		ThinkingClosed 2 "x" 
		RoundEnded stop`)
}

// TestStop: after the consumer said stop nothing comes, but Finish still closes what is open.
func TestStop(t *testing.T) {
	in := action(add) + "<channel:action>" + add
	whole := runChannel(Options{}, "cut", in).events
	for i := range whole {
		var got []Event
		p := NewChannel(Options{})
		emit := func(e Event) bool { got = append(got, e); return len(got) <= i }
		p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: in}, emit)
		p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: action(add)}, emit)
		if i < len(whole)-2 && len(got) != i+1 {
			t.Fatalf("stopped at %d: %d events", i, len(got))
		}
		p.Finish("cut", emit)
		p.Finish("cut", emit)
		opened, closed := 0, 0
		for _, e := range got {
			switch e.Kind {
			case ActionOpened:
				opened++
			case ActionClosed:
				closed++
			}
		}
		if last := got[len(got)-1]; last.Kind != RoundEnded || opened != closed {
			t.Fatalf("stopped at %d: %d opened, %d closed, last %v", i, opened, closed, last.Kind)
		}
	}
}
