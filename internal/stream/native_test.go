package stream

import (
	"fmt"
	"testing"

	"writ"
)

func toolOpen(block int, id, name string) writ.ModelEvent {
	return writ.ModelEvent{Kind: writ.ModelToolOpen, Block: block, ID: id, Name: name}
}

func toolArgs(block int, s string) writ.ModelEvent {
	return writ.ModelEvent{Kind: writ.ModelToolArgs, Block: block, Text: s}
}

func blockEnd(block int) writ.ModelEvent {
	return writ.ModelEvent{Kind: writ.ModelBlockEnd, Block: block}
}

func text(block int, s string) writ.ModelEvent {
	return writ.ModelEvent{Kind: writ.ModelText, Block: block, Text: s}
}

func toolCall(block int, name, args string) []writ.ModelEvent {
	return []writ.ModelEvent{toolOpen(block, "", name), toolArgs(block, args), blockEnd(block)}
}

type events []writ.ModelEvent

var nativeCases = []struct {
	name   string
	in     events
	finish writ.Finish
	want   string
}{
	{"text, then a call", events{text(0, "one "), text(0, "moment"), blockEnd(0), toolOpen(1, "id1", "p.q"), toolArgs(1, `{"n":`), toolArgs(1, ` 1}`), blockEnd(1)}, "tool_calls", `
		Text 0 "one moment"
		TextClosed 0 
		ActionOpened 0
		ActionIdentified 0 call_tool p.q
		Argument 0 n "1"
		ArgumentClosed 0 n 1
		ActionClosed 0 call_tool p.q id=id1 {"n": 1}
		RoundEnded tool_calls`},
	{"interleaved calls with one id", events{toolOpen(3, "x", "p.a"), toolOpen(5, "x", "p.b"), toolArgs(5, `{"b":"2"}`), toolArgs(3, `{"a":1}`), blockEnd(5), blockEnd(3)}, "tool_calls", `
		ActionOpened 0
		ActionIdentified 0 call_tool p.a
		ActionOpened 1
		ActionIdentified 1 call_tool p.b
		Argument 1 b "2"
		ArgumentClosed 1 b "2"
		Argument 0 a "1"
		ArgumentClosed 0 a 1
		ActionClosed 1 call_tool p.b id=x {"b":"2"}
		ActionClosed 0 call_tool p.a id=x {"a":1}
		RoundEnded tool_calls`},
	{"the name comes later", events{toolOpen(0, "", ""), toolArgs(0, `{}`), toolOpen(0, "i", "p.q"), toolOpen(0, "", "p.q"), blockEnd(0)}, "tool_calls", `
		ActionOpened 0
		ActionIdentified 0 call_tool p.q
		ActionClosed 0 call_tool p.q id=i {}
		RoundEnded tool_calls`},
	{"no name at all", events{toolArgs(0, `{}`), blockEnd(0)}, "tool_calls", "ActionOpened 0\nActionClosed 0 call_tool  !invalid_action@0: the call names no tool | …\nRoundEnded tool_calls"},
	{"two names", events{toolOpen(0, "", "p.q"), toolOpen(0, "", "p.r"), toolArgs(0, `{}`), blockEnd(0)}, "tool_calls",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q !invalid_action@0: its block names two tools, \"p.q\" and \"p.r\" | …\nRoundEnded tool_calls"},
	{"no arguments", events{toolOpen(0, "", "p.q"), blockEnd(0)}, "tool_calls", "ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q {}\nRoundEnded tool_calls"},
	{"blank arguments, then a call", events{toolOpen(0, "", "p.q"), toolArgs(0, " \n"), blockEnd(0), toolOpen(1, "", "p.r"), blockEnd(1)}, "stop",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q {}\nActionOpened 1\nActionIdentified 1 call_tool p.r\nActionClosed 1 call_tool p.r {}\nRoundEnded stop"},
	{"no arguments, cut by length", events{toolOpen(0, "", "p.q"), blockEnd(0)}, "length", "ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q !truncated@0: …\nRoundEnded length"},
	{"half the arguments, block ended, cut by length", events{toolOpen(0, "", "p.q"), toolArgs(0, `{"n":1`), blockEnd(0)}, "length",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nArgument 0 n \"1\"\nActionClosed 0 call_tool p.q !truncated@6: …\nRoundEnded length"},
	{"half the arguments and a lying finish", events{toolOpen(0, "", "p.q"), toolArgs(0, `{"n":1`), blockEnd(0)}, "tool_calls",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nArgument 0 n \"1\"\nActionClosed 0 call_tool p.q !arguments_unparsable@6: the JSON ends too early | … | \"{\\\"n\\\":1\"\nRoundEnded tool_calls"},
	{"half the arguments, then another block", events{toolOpen(0, "", "p.q"), toolArgs(0, `{`), blockEnd(0), text(1, "x")}, "length",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q !arguments_unparsable@1: …\nText 0 \"x\"\nRoundEnded length"},
	{"whole JSON in an open block", events{toolOpen(0, "", "p.q"), toolArgs(0, `{}`)}, "stop", "ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q !truncated@2: …\nRoundEnded stop"},
	{"open blocks close in order", events{toolOpen(7, "", "p.q"), toolOpen(2, "", "p.r"), text(4, "x")}, "cut",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionOpened 1\nActionIdentified 1 call_tool p.r\nText 0 \"x\"\n" +
			"ActionClosed 0 call_tool p.q !truncated@0: …\nActionClosed 1 call_tool p.r !truncated@0: …\nRoundEnded cut"},
	{"trailing bytes", events{toolOpen(0, "", "p.q"), toolArgs(0, ` {"n":1} `), toolArgs(0, `{"n":2}`), blockEnd(0)}, "tool_calls",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nArgument 0 n \"1\"\nArgumentClosed 0 n 1\nActionClosed 0 call_tool p.q !arguments_unparsable@8: something stands after …\nRoundEnded tool_calls"},
	{"white space around", events{toolOpen(0, "", "p.q"), toolArgs(0, " {\"n\":1}\n "), blockEnd(0)}, "tool_calls",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nArgument 0 n \"1\"\nArgumentClosed 0 n 1\nActionClosed 0 call_tool p.q {\"n\":1}\nRoundEnded tool_calls"},
	{"not an object", append(events(toolCall(0, "p.q", `[1]`)), toolCall(1, "p.q", `null`)...), "tool_calls",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q !arguments_unparsable@0: the parameters are not a JSON object | …\n" +
			"ActionOpened 1\nActionIdentified 1 call_tool p.q\nActionClosed 1 call_tool p.q !arguments_unparsable@0: the parameters are not a JSON object | …\nRoundEnded tool_calls"},
	{"bytes after the block's end", append(events(toolCall(0, "p.q", `{}`)), toolArgs(0, " "), toolArgs(0, "{"), toolArgs(0, "}")), "tool_calls",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q {}\nLateBytes 0\nRoundEnded tool_calls"},
	{"a block number used again", append(events(toolCall(0, "p.q", `{}`)), toolCall(0, "p.r", `{}`)...), "tool_calls",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q {}\nActionOpened 1\nActionIdentified 1 call_tool p.r\nActionClosed 1 call_tool p.r {}\nRoundEnded tool_calls"},
	{"a call's block turns into text", events{toolOpen(0, "", "p.q"), toolArgs(0, "{}"), text(0, "x"), blockEnd(0)}, "stop",
		"ActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q !arguments_unparsable@2: …\nText 0 \"x\"\nTextClosed 0 \nRoundEnded stop"},
	{"text blocks without ends", events{text(0, "a"), text(1, "b")}, "stop", "Text 0 \"a\"\nText 1 \"b\"\nTextClosed 0 \nTextClosed 1 \nRoundEnded stop"},
	{"text cut off", events{text(0, "a")}, "length", "Text 0 \"a\"\nRoundEnded length"},
	{"thinking byte for byte", events{{Kind: writ.ModelThinking, Block: 0, Text: "a\xff"}, {Kind: writ.ModelThinking, Block: 0, Text: "b"},
		{Kind: writ.ModelBlockEnd, Block: 0, Opaque: []byte(`{ "signature" : "s" }`)}, {Kind: writ.ModelBlockEnd, Block: 1, Opaque: []byte(`"r"`)},
		blockEnd(9), {Kind: writ.ModelThinking, Block: 2, Text: "open"}}, "stop",
		"Thinking 0 \"a\uFFFDb\"\nThinkingClosed 0 \"a\\xffb\" { \"signature\" : \"s\" }\nThinkingClosed 1 \"\" \"r\"\nThinking 2 \"open\"\nRoundEnded stop"},
	{"opaque of a call and of text", events{text(0, "a"), {Kind: writ.ModelBlockEnd, Block: 0, Opaque: []byte(`1`)}, toolOpen(1, "", "p.q"), toolArgs(1, "{}"),
		{Kind: writ.ModelBlockEnd, Block: 1, Opaque: []byte(`2`)}}, "tool_calls",
		"Text 0 \"a\"\nTextClosed 0 1\nActionOpened 0\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q {} opaque=2\nRoundEnded tool_calls"},
	{"tags mean nothing", append(events{text(0, "<channel:action>{}")}, toolCall(1, "p.q", `{"s":"</channel:action>€\ud83d\ude00"}`)...), "tool_calls",
		"Text 0 \"<channel:action>{}\"\nActionOpened 0\nActionIdentified 0 call_tool p.q\nArgument 0 s \"</channel:action>€😀\"\nArgumentClosed 0 s \"</channel:action>€\\ud83d\\ude00\"\n" +
			"ActionClosed 0 call_tool p.q {\"s\":\"</channel:action>€\\ud83d\\ude00\"}\nTextClosed 0 \nRoundEnded tool_calls"},
}

func TestNative(t *testing.T) {
	for _, c := range nativeCases {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range sizes {
				got := runNative(Options{}, c.finish, split(c.in, n)...).lines()
				equalLines(t, fmt.Sprintf("%d bytes a chunk", n), got, c.want)
			}
		})
	}
}

func TestNativeStop(t *testing.T) {
	in := append(append(events{text(0, "x")}, toolCall(1, "p.q", `{"n":1}`)...), toolOpen(2, "", "p.r"))
	var got []Event
	p := NewNative(Options{})
	emit := func(e Event) bool { got = append(got, e); return e.Kind != ActionIdentified }
	for _, e := range in {
		p.Feed(e, emit)
	}
	if len(got) != 3 {
		t.Fatalf("%d events after a stop", len(got))
	}
	p.Finish("cut", emit)
	if n := len(got); got[n-1].Kind != RoundEnded || got[n-2].Decision.Problem.Code != writ.CodeTruncated {
		t.Fatalf("got %+v", got[3:])
	}
}
