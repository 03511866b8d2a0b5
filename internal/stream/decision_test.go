package stream

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"writ"
)

const closedOpen = "ActionOpened 0\n"

// decisionCases are about the JSON of one action.
var decisionCases = []struct {
	name, in string
	finish   writ.Finish
	want     string
}{
	{"identity at the earliest byte, parameters first", action(`{"tool_call":{"params":{"a":"x"},"tool_id":"p.q"},"notes":"n","action":"call_tool"}`), "stop", `
		ActionOpened 0
		Argument 0 a "x"
		ArgumentClosed 0 a "x"
		Notes 0 "n"
		ActionIdentified 0 call_tool p.q
		ActionClosed 0 call_tool p.q {"a":"x"} notes="n"
		RoundEnded stop`},
	{"arguments in order, every type", action(`{"action":"call_tool","tool_call":{"tool_id":"p.q","params": { "s" : "a\"b" , "i":-1.5e+3,"t":true,"z":null,"l":[1,{"x":"y"}],"o":{} } }}`), "stop", `
		ActionOpened 0
		ActionIdentified 0 call_tool p.q
		Argument 0 s "a\"b"
		ArgumentClosed 0 s "a\"b"
		Argument 0 i "-1.5e+3"
		ArgumentClosed 0 i -1.5e+3
		Argument 0 t "true"
		ArgumentClosed 0 t true
		Argument 0 z "null"
		ArgumentClosed 0 z null
		Argument 0 l "[1,{\"x\":\"y\"}]"
		ArgumentClosed 0 l [1,{"x":"y"}]
		Argument 0 o "{}"
		ArgumentClosed 0 o {}
		ActionClosed 0 call_tool p.q { "s" : "a\"b" , "i":-1.5e+3,"t":true,"z":null,"l":[1,{"x":"y"}],"o":{} }
		RoundEnded stop`},
	{"escapes and surrogates", action(`{"action":"exit","notes":"\u00e9\n\t\/\\\"\b\f\r\u0041 \ud83d\ude00 \ud83d! \ude00 \ud83d\ud83d\ude00 \ud83d\n\ud83d"}`), "stop",
		closedOpen + "ActionIdentified 0 exit \nNotes 0 " + fmt.Sprintf("%q", "é\n\t/\\\"\b\f\rA 😀 \uFFFD! \uFFFD \uFFFD😀 \uFFFD\n\uFFFD") +
			"\nActionClosed 0 exit  notes=" + fmt.Sprintf("%q", "é\n\t/\\\"\b\f\rA 😀 \uFFFD! \uFFFD \uFFFD😀 \uFFFD\n\uFFFD") + "\nRoundEnded stop"},
	{"complete with followups", action(`{"action":"complete","final_answer":"héllo €","suggested_followups":["a","b"]}`), "stop",
		closedOpen + "ActionIdentified 0 complete \nAnswer 0 \"héllo €\"\nActionClosed 0 complete  answer=\"héllo €\"/true followups=[\"a\" \"b\"]\nRoundEnded stop"},
	{"exit without an answer", action(`{"action":"exit","final_answer":null,"tool_call":null,"suggested_followups":null,"notes":null,"x":{"action":[1]}}`), "stop",
		closedOpen + "ActionIdentified 0 exit \nActionClosed 0 exit \nRoundEnded stop"},
	{"complete with an empty tool call", action(`{"action":"complete","final_answer":"a","tool_call":{"tool_id":"","params":{}}}`), "stop",
		closedOpen + "ActionIdentified 0 complete \nAnswer 0 \"a\"\nActionClosed 0 complete  answer=\"a\"/true\nRoundEnded stop"},
	{"complete without an answer", action(`{"action":"complete","final_answer":" \n"}`), "stop",
		closedOpen + "ActionIdentified 0 complete \nAnswer 0 \" \\n\"\nActionClosed 0 complete  answer=\" \\n\"/true !invalid_action@42: complete has no final_answer | …\nRoundEnded stop"},
	{"complete with a list as answer", action(`{"action":"complete","final_answer":["a"]}`), "stop",
		closedOpen + "ActionIdentified 0 complete \nActionClosed 0 complete  !invalid_action@…: final_answer is not a string | …\nRoundEnded stop"},
	{"complete with a tool call", action(`{"action":"complete","final_answer":"a","tool_call":{"tool_id":"p.q"}}`), "stop",
		closedOpen + "ActionIdentified 0 complete \nAnswer 0 \"a\"\nActionClosed 0 complete p.q answer=\"a\"/true !invalid_action@…: complete holds a tool_call | …\nRoundEnded stop"},
	{"an answer beside a tool call is dropped", action(`{"action":"call_tool","final_answer":"done","notes":7,"suggested_followups":[1],"tool_call":{"tool_id":"p.q"}}`), "stop",
		closedOpen + "Answer 0 \"done\"\nActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q {} dropped=[final_answer notes suggested_followups]\nRoundEnded stop"},
	{"unknown action", action(`{"action":"dance"}`), "stop", closedOpen + "ActionClosed 0 dance  !invalid_action@18: \"dance\" is no action | …\nRoundEnded stop"},
	{"no action", action(`{"tool_call":{"tool_id":"p.q"}}`), "stop", closedOpen + "ActionClosed 0  p.q !invalid_action@31: the decision has no action | …\nRoundEnded stop"},
	{"action is no string", action(`{"action":{"call_tool":1}}`), "stop", closedOpen + "ActionClosed 0   !invalid_action@26: the action is not a string | …\nRoundEnded stop"},
	{"no tool_id", action(`{"action":"call_tool","tool_call":{"params":{}}}`), "stop", closedOpen + "ActionClosed 0 call_tool  !invalid_action@48: call_tool has no tool_call.tool_id | …\nRoundEnded stop"},
	{"no tool_call", action(`{"action":"call_tool","tool_id":"p.q","params":{}}`), "stop", closedOpen + "ActionClosed 0 call_tool  !invalid_action@…\nRoundEnded stop"},
	{"tool_id is no string", action(`{"action":"call_tool","tool_call":{"tool_id":["p.q"]}}`), "stop", closedOpen + "ActionClosed 0 call_tool  !invalid_action@…\nRoundEnded stop"},
	{"tool_call is a list", action(`{"action":"call_tool","tool_call":[{"tool_id":"p.q"}]}`), "stop", closedOpen + "ActionClosed 0 call_tool  !invalid_action@34: tool_call is not an object | …\nRoundEnded stop"},
	{"params is JSON in a string", action(`{"action":"call_tool","tool_call":{"tool_id":"p.q","params":"{}"}}`), "stop",
		closedOpen + "ActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q !arguments_unparsable@60: the parameters are not a JSON object | …\nRoundEnded stop"},
	{"a key twice in the decision", action(`{"action":"exit","notes":"a","\u0061ction":"call_tool"}`), "stop",
		closedOpen + "ActionIdentified 0 exit \nNotes 0 \"a\"\nActionClosed 0 exit  notes=\"a\" !invalid_action@42: the key \"action\" stands twice in one object | …\nRoundEnded stop"},
	{"a key twice in tool_call", action(`{"action":"call_tool","tool_call":{"tool_id":"p.q","tool_id":"p.r"}}`), "stop",
		closedOpen + "ActionIdentified 0 call_tool p.q\nActionClosed 0 call_tool p.q !invalid_action@…\nRoundEnded stop"},
	{"a key twice in params", action(`{"action":"call_tool","tool_call":{"tool_id":"p.q","params":{"o":{"a":1,"a":2}}}}`), "stop",
		closedOpen + "ActionIdentified 0 call_tool p.q\nArgument 0 o \"{\\\"a\\\":1,\\\"a\\\"\"\nActionClosed 0 call_tool p.q !arguments_unparsable@75: the key \"a\" stands twice…\nRoundEnded stop"},
	{"a key twice, hidden behind a stray tag", action(`{"action":"exit","action"</channel:x>:"call_tool"}`), "stop",
		closedOpen + "ActionIdentified 0 exit \nActionClosed 0 exit  !invalid_action@25: …\nRoundEnded stop"},
	{"the same key in different objects", action(`{"action":"call_tool","tool_call":{"tool_id":"p.q","params":{"a":{"a":[{"a":1},{"a":2}]}}}}`), "stop",
		closedOpen + "ActionIdentified 0 call_tool p.q\nArgument 0 a …\nArgumentClosed 0 a …\nActionClosed 0 call_tool p.q {\"a\":{\"a\":[{\"a\":1},{\"a\":2}]}}\nRoundEnded stop"},
	{"a line break inside a string", action("{\"action\":\"exit\",\"notes\":\"a\nb<channel:action>\"}") + action(add), "stop",
		closedOpen + "ActionIdentified 0 exit \nNotes 0 \"a\"\nActionClosed 0 exit  notes=\"a\" !arguments_unparsable@27: …0x0a must be escaped… | …\n" + addAll(1) + "RoundEnded stop"},
	{"quotes inside a string", action(`{"action":"exit","notes":"he said "hi" and <channel:action>`+strings.ReplaceAll(add, `"`, `\"`)+`</channel:action>"}`) + action(add), "stop",
		closedOpen + "ActionIdentified 0 exit \nNotes 0 \"he said \"\nActionClosed 0 exit  notes=\"he said \" !arguments_unparsable@35: …'h'…\n" + addAll(1) + "RoundEnded stop"},
	{"a quoted page in a broken action opens nothing", action(`{"action":"exit" "notes":"<channel:action>` + strings.ReplaceAll(add, `"`, `\"`) + `</channel:action>"}`), "stop",
		closedOpen + "ActionIdentified 0 exit \nActionClosed 0 exit  !arguments_unparsable@17: …\nRoundEnded stop"},
	{"not UTF-8", action("{\"action\":\"exit\",\"notes\":\"a\xffb\"}"), "stop",
		closedOpen + "ActionIdentified 0 exit \nNotes 0 \"a\"\nActionClosed 0 exit  notes=\"a\" !arguments_unparsable@27: …byte 0xff is not UTF-8 | …\nRoundEnded stop"},
	{"a literal that is none", action(`{"action":"exit","x":nul}`), "stop", closedOpen + "ActionIdentified 0 exit \nActionClosed 0 exit  !arguments_unparsable@24: …\nRoundEnded stop"},
	{"single quotes", action(`{'action':'exit'}`), "stop", closedOpen + "ActionClosed 0   !arguments_unparsable@1: …\nRoundEnded stop"},
	{"a trailing comma", action(`{"action":"exit",}`), "stop", closedOpen + "ActionIdentified 0 exit \nActionClosed 0 exit  !arguments_unparsable@17: …\nRoundEnded stop"},
	{"a tag between tokens", action(`{"action"</channel:foo>:"exit"</channel:code>}`), "stop", closedOpen + "ActionIdentified 0 exit \nActionClosed 0 exit \nRoundEnded stop"},
	{"an angle bracket between tokens", action(`{"action"<:"exit"}`) + action(add), "stop",
		closedOpen + "ActionClosed 0   !arguments_unparsable@9: the JSON is not valid: unexpected '<' where a colon must stand | …\n" + addAll(1) + "RoundEnded stop"},
}

func nested(depth int) string {
	return strings.Repeat(`{"a":`, depth-1) + "{}" + strings.Repeat("}", depth-1)
}

func TestDepth(t *testing.T) {
	call := func(params string) string {
		return action(`{"action":"call_tool","tool_call":{"tool_id":"p.q","params":` + params + `}}`)
	}
	for depth, bad := range map[int]bool{MaxDepth: false, MaxDepth + 1: true, 5000: true} {
		for name, c := range map[string]*collect{
			"channel": runChannel(Options{}, "stop", call(nested(depth))),
			"native":  runNative(Options{}, "tool_calls", toolCall(0, "p.q", nested(depth))...),
		} {
			d := c.decisions()[0]
			if got := d.Problem != nil && d.Problem.Code == writ.CodeArgumentsUnparsable; got != bad {
				t.Errorf("%s, depth %d: %+v", name, depth, d.Problem)
			}
		}
	}
}

func (c *collect) decisions() []*Decision {
	var out []*Decision
	for _, e := range c.events {
		if e.Kind == ActionClosed {
			out = append(out, e.Decision)
		}
	}
	return out
}

// TestTooLarge: an action over the limit is refused at the same byte whatever the chunks, and the rest goes on.
func TestTooLarge(t *testing.T) {
	o := Options{MaxActionBytes: 200}
	big := `{"action":"call_tool","tool_call":{"tool_id":"p.q","params":{"s":"` + strings.Repeat("€", 200) + `<channel:action>"}}}`
	want := ""
	for i, n := range append([]int{1 << 20}, sizes...) {
		got := runChannel(o, "stop", cut(action(big)+action(add), n)...).lines()
		if i == 0 {
			want = got
		}
		if got != want {
			t.Errorf("%d bytes a chunk:\n%s\nwant\n%s", n, got, want)
		}
	}
	if !strings.Contains(want, "!arguments_unparsable@") || !strings.Contains(want, "larger than 200 bytes") || !strings.HasSuffix(want, addAll(1)+"RoundEnded stop\n") {
		t.Errorf("got\n%s", want)
	}
	if got := runChannel(Options{MaxActionBytes: len(add)}, "stop", action(add)).lines(); got != addAll(0)+"RoundEnded stop\n" {
		t.Errorf("exactly the limit:\n%s", got)
	}
	if got := runChannel(Options{MaxActionBytes: len(add) - 1}, "stop", action(add)).decisions(); got[0].Problem == nil {
		t.Errorf("one over the limit is accepted")
	}
}

func TestManyKeys(t *testing.T) {
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, `"k%d":{"x":%d,"y":[]},`, i, i)
	}
	ok := "{" + strings.TrimSuffix(b.String(), ",") + "}"
	if d := runNative(Options{}, "tool_calls", toolCall(0, "p.q", ok)...).decisions()[0]; d.Problem != nil || string(d.Params) != ok {
		t.Errorf("%+v", d.Problem)
	}
	twice := "{" + b.String() + `"k17":1}`
	if d := runNative(Options{}, "tool_calls", toolCall(0, "p.q", twice)...).decisions()[0]; d.Problem == nil {
		t.Errorf("a key stands twice among many and nobody saw it")
	}
}

func TestLongArgumentHasNoValue(t *testing.T) {
	s := strings.Repeat("x", MaxArgumentValue-2)
	for text, kept := range map[string]bool{s: true, s + "x": false} {
		for _, e := range runNative(Options{}, "tool_calls", toolCall(0, "p.q", `{"s":"`+text+`"}`)...).events {
			if e.Kind == ArgumentClosed && (e.Value != nil) != kept {
				t.Errorf("%d bytes: kept %v", len(text)+2, e.Value != nil)
			}
		}
	}
}

func codeTools(tool string) string {
	if tool == "exec.run" {
		return "code"
	}
	return ""
}

func TestCode(t *testing.T) {
	run := func(params string) string {
		return action(`{"action":"call_tool","tool_call":{"tool_id":"exec.run","params":` + params + `}}`)
	}
	const code = "<channel:code>"
	const end = "</channel:code>"
	body := "echo `x` </channel:action><channel:action>{\"action\":\"exit\"} \"q\" < a\n"
	text := fmt.Sprintf("%q", body)
	value := string(quote(body))
	ident := "ActionOpened 0\nActionIdentified 0 call_tool exec.run\n"
	coded := "Argument 0 code " + text + "\nArgumentClosed 0 code " + value + "\n"
	for _, c := range []struct {
		name, in string
		finish   writ.Finish
		want     string
	}{
		{"the code channel's end is the close", run("{}") + code + body + end + action(add), "stop",
			ident + coded + `ActionClosed 0 call_tool exec.run {"code":` + value + "}\n" + addAll(1) + "RoundEnded stop"},
		{"thinking in between", run(`{"a": 1 }`) + "<channel:thinking>x</channel:thinking>" + code + body + end, "stop",
			ident + "Argument 0 a \"1\"\nArgumentClosed 0 a 1\nThinking 0 \"x\"\nThinkingClosed 0 \"x\" \n" + coded + `ActionClosed 0 call_tool exec.run {"a": 1 ,"code":` + value + "}\nRoundEnded stop"},
		{"another action comes instead", run(`{}`) + action(add) + code + body + end, "stop",
			ident + "ActionClosed 0 call_tool exec.run {}\n" + addAll(1) + "RoundEnded stop"},
		{"no code at the end", run(`{}`), "stop", ident + "ActionClosed 0 call_tool exec.run {}\nRoundEnded stop"},
		{"cut before the code", run(`{}`), "length", ident + "ActionClosed 0 call_tool exec.run !truncated@0: …\nRoundEnded length"},
		{"cut inside the code", run(`{}`) + code + "abc</channel:cod", "stop",
			ident + "Argument 0 code \"abc</channel:cod\"\nActionClosed 0 call_tool exec.run !truncated@16: …\nRoundEnded stop"},
		{"only the first code counts", run(`{}`) + code + body + end + code + "x" + end, "stop", ident + coded + `ActionClosed 0 call_tool exec.run {"code":` + value + "}\nRoundEnded stop"},
		{"an empty placeholder is filled", run(`{"x":{"code":"no"},"code":"","b":2}`) + code + body + end, "stop",
			ident + "Argument 0 x …\nArgumentClosed 0 x …\nArgumentClosed 0 code \"\"\nArgument 0 b \"2\"\nArgumentClosed 0 b 2\n" + coded + `ActionClosed 0 call_tool exec.run {"x":{"code":"no"},"code":` + value + `,"b":2}` + "\nRoundEnded stop"},
		{"code given twice", run(`{"code":"x"}`) + code + "abc" + end, "stop",
			ident + "Argument 0 code \"x\"\nArgumentClosed 0 code \"x\"\nArgument 0 code \"abc\"\nActionClosed 0 call_tool exec.run !invalid_action@0: …\nRoundEnded stop"},
		{"a malformed action waits for nothing", run(`[]`) + code + body + end + action(add), "stop",
			ident + "ActionClosed 0 call_tool exec.run !arguments_unparsable@…\n" + addAll(1) + "RoundEnded stop"},
		{"an action of another tool has no code", action(add) + code + body + end, "stop", addAll(0) + "RoundEnded stop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range sizes {
				got := runChannel(Options{CodeParam: codeTools}, c.finish, cut(c.in, n)...)
				equalLines(t, fmt.Sprintf("%d bytes a chunk", n), got.lines(), c.want)
				for _, d := range got.decisions() {
					if d.Problem == nil && !json.Valid(d.Params) {
						t.Errorf("params are not JSON: %s", d.Params)
					}
				}
			}
		})
	}
	big := strings.Repeat("é", 300)
	want := ""
	for i, n := range append([]int{1 << 20}, sizes...) {
		got := runChannel(Options{MaxActionBytes: 200, CodeParam: codeTools}, "stop", cut(run(`{}`)+code+big+end+action(add), n)...).lines()
		if i == 0 {
			want = got
		}
		if got != want || !strings.Contains(got, "larger than 200 bytes") || !strings.HasSuffix(got, addAll(1)+"RoundEnded stop\n") {
			t.Errorf("%d bytes a chunk:\n%s", n, got)
		}
	}
}
