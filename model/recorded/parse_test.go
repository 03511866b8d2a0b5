package recorded

import (
	"errors"
	"strings"
	"testing"
	"time"

	"writ"
)

// head is a valid beginning; rounds follow, indented by two.
const head = "writ_recording: 1\ndialect: native\nrounds:\n"

const channelHead = "writ_recording: 1\ndialect: channel\nrounds:\n"

func TestHostileInput(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", `r.yaml: the file is empty (hint: begin with "writ_recording: 1")`},
		{"only a comment", "# hello\n", `r.yaml: the file is empty (hint: begin with "writ_recording: 1")`},
		{"only a document mark", "---\n", `r.yaml: the file is empty (hint: begin with "writ_recording: 1")`},
		{"NUL", "writ_recording: 1\nx: \x00", `r.yaml:2:4: control character U+0000 (hint: write it as an escape in a double-quoted string)`},
		{"binary", "\x7fELF\x02", `r.yaml:1:1: control character U+007F (hint: write it as an escape in a double-quoted string)`},
		{"not UTF-8", "a: \xff", `r.yaml:1:4: byte 0xff is not UTF-8 (hint: a recording is UTF-8 text; write other bytes as escapes in a double-quoted string)`},
		{"too large", strings.Repeat("#", MaxBytes+1), `r.yaml: the file is larger than 16 MiB (hint: split it into several recordings)`},
		{"a list", "- a\n", `r.yaml:1:1: a recording must be a mapping, not a list (hint: its keys are writ_recording, dialect, rounds)`},
		{"a string", "hello", `r.yaml:1:1: a recording must be a mapping, not a string (hint: its keys are writ_recording, dialect, rounds)`},
		{"two documents", head + "  - text: a\n---\na: 1\n", `r.yaml:6:1: a second document (hint: write one recording in a file)`},
		{"no version", "dialect: native\nrounds: []\n", `r.yaml:1:1: a recording has no "writ_recording" (hint: add writ_recording:)`},
		{"another version", "writ_recording: 2\ndialect: native\nrounds: []\n", `r.yaml:1:17: this version of the format is not known (hint: write writ_recording: 1)`},
		{"no dialect", "writ_recording: 1\nrounds: []\n", `r.yaml:1:1: a recording has no "dialect" (hint: add dialect:)`},
		{"another dialect", "writ_recording: 1\ndialect: chanel\nrounds: []\n", `r.yaml:2:10: dialect must not be "chanel" (hint: did you mean "channel"?)`},
		{"rounds is no list", "writ_recording: 1\ndialect: native\nrounds: {}\n", `r.yaml:3:9: rounds must be a list, not a mapping (hint: write one entry for each model call)`},
		{"rounds is empty", "writ_recording: 1\ndialect: native\nrounds:\n", `r.yaml:3:9: rounds must be a list, not empty (hint: write one entry for each model call)`},
		{"unknown key", "writ_recording: 1\ndialect: native\nrounds: []\nname: x\n", `r.yaml:4:1: unknown key "name" in a recording (hint: one of writ_recording, dialect, rounds)`},
		{"unknown key in a round", head + "  - text: a\n    finsh: stop\n", `r.yaml:5:5: unknown key "finsh" in a round (hint: did you mean "finish"?)`},
		{"the same key twice", head + "  - text: a\n    text: b\n", `r.yaml:5:5: the key "text" stands twice; first on line 4 (hint: write it once)`},
		{"the same key twice in braces", head + "  - {text: a, text: b}\n", `r.yaml:4:15: the key "text" stands twice; first on line 4 (hint: write it once)`},
		{"an anchor", head + "  - &a {text: a}\n", `r.yaml:4:5: anchors and aliases are not used in a recording (hint: write the value out)`},
		{"an alias", head + "  - text: *a\n", `r.yaml:4:11: anchors and aliases are not used in a recording (hint: write the value out)`},
		{"a merge key", head + "  - <<: {text: a}\n", `r.yaml:4:5: anchors and aliases are not used in a recording (hint: write the value out)`},
		{"a tag", head + "  - text: !!binary aGk=\n", `r.yaml:4:11: tags, directives and complex keys are not used in a recording (hint: write plain keys and values)`},
		{"a complex key", "? [a]\n: b\n", `r.yaml:1:1: tags, directives and complex keys are not used in a recording (hint: write plain keys and values)`},
		{"deep", strings.Repeat("[", 10000), `r.yaml:1:17: nested deeper than 16 levels`},
		{"deep by indentation", strings.Repeat("- ", 10000), `r.yaml:1:33: nested deeper than 16 levels`},
		{"many keys", strings.Repeat("k: 1\n", 10000), `r.yaml:101:1: a mapping has more than 100 keys`},
		{"many keys in braces", "{" + strings.Repeat("k: 1,", 10000) + "}", `r.yaml:1:503: a mapping has more than 100 keys`},
		{"many rounds", head + strings.Repeat("  - text: a\n", MaxRounds+1), `r.yaml:10004:5: more than 10000 rounds (hint: split it into several recordings)`},

		{"a round that is a string", head + "  - hello\n", `r.yaml:4:5: a round must be a mapping, not a string (hint: its keys are text, parts, chunk_bytes, chunk_delay, finish, usage, expect)`},
		{"nothing to say", head + "  - finish: stop\n", `r.yaml:4:5: a round has nothing to say (hint: add text: or parts:)`},
		{"text and parts", head + "  - text: a\n    parts: []\n", `r.yaml:4:5: a round has both text and parts (hint: keep one of them)`},
		{"text is a number", head + "  - text: 12\n", `r.yaml:4:11: text must be a string, not a number (hint: put it in quotes)`},
		{"text is nothing", head + "  - text:\n", `r.yaml:4:11: text must be a string, not empty (hint: put it in quotes)`},
		{"another finish", head + "  - text: a\n    finish: tool_call\n", `r.yaml:5:13: finish must not be "tool_call" (hint: did you mean "tool_calls"?)`},
		{"another error class", head + "  - finish: error:overload\n", `r.yaml:4:13: finish must not be "error:overload" (hint: did you mean "error:overloaded"?)`},
		{"chunk_bytes is zero", head + "  - {text: a, chunk_bytes: 0}\n", `r.yaml:4:28: chunk_bytes must be from 1 to 16777216, not 0`},
		{"chunk_bytes is text", head + "  - {text: a, chunk_bytes: lots}\n", `r.yaml:4:28: chunk_bytes must be a whole number, not "lots"`},
		{"chunk_bytes is half", head + "  - {text: a, chunk_bytes: 1.5}\n", `r.yaml:4:28: chunk_bytes must be a whole number, not "1.5"`},
		{"chunk_bytes is huge", head + "  - {text: a, chunk_bytes: 99999999999999999999}\n", `r.yaml:4:28: chunk_bytes must be a whole number, not "99999999999999999999"`},
		{"chunk_delay without a unit", head + "  - {text: a, chunk_delay: 5}\n", `r.yaml:4:28: chunk_delay must be a duration, not "5" (hint: write 300ms or 2s)`},
		{"chunk_delay too long", head + "  - {text: a, chunk_delay: 61s}\n", `r.yaml:4:28: chunk_delay must be from 0 to 1m0s, not 1m1s`},
		{"chunk_delay negative", head + "  - {text: a, chunk_delay: -1s}\n", `r.yaml:4:28: chunk_delay must be from 0 to 1m0s, not -1s`},
		{"usage is a number", head + "  - {text: a, usage: 3}\n", `r.yaml:4:22: usage must be a mapping, not a number (hint: its keys are input, output, cache_read, cache_write)`},
		{"usage is negative", head + "  - {text: a, usage: {input: -1}}\n", `r.yaml:4:30: input must be from 0 to 1099511627776, not -1`},
		{"expect is a string", head + "  - {text: a, expect: b}\n", `r.yaml:4:23: expect must be a list of strings, not a string (hint: write ["a substring of the request"])`},
		{"expect holds a number", head + "  - {text: a, expect: [1]}\n", `r.yaml:4:24: expect must hold strings, not "1" (hint: put it in quotes)`},
		{"expect holds nothing", head + "  - {text: a, expect: ['']}\n", `r.yaml:4:24: expect must hold strings, not "" (hint: put it in quotes)`},

		{"parts is a string", head + "  - parts: a\n", `r.yaml:4:12: parts must be a list, not a string (hint: write one entry for each part)`},
		{"a part with two kinds", head + "  - parts: [{text: a, thinking: b}]\n", `r.yaml:4:13: a part has 2 of them (hint: write exactly one of thinking, text, open, args, close, wait)`},
		{"an empty part", head + "  - parts: [{}]\n", `r.yaml:4:13: a part has 0 of them (hint: write exactly one of thinking, text, open, args, close, wait)`},
		{"a signature of text", head + "  - parts: [{text: a, signature: b}]\n", `r.yaml:4:34: signature does not belong to a part with text`},
		{"a block of wait", head + "  - parts: [{wait: 1s, block: 1}]\n", `r.yaml:4:31: block does not belong to a part with wait`},
		{"unclosed is text", head + "  - parts: [{text: a, unclosed: 'yes'}]\n", `r.yaml:4:33: unclosed must be a boolean, not "yes" (hint: write true or false)`},
		{"wait too long", head + "  - parts: [{wait: 6m}]\n", `r.yaml:4:20: wait must be from 0 to 5m0s, not 6m0s`},
		{"close of an unopened block", head + "  - parts: [{close: {block: 1}}]\n", `r.yaml:4:29: close of block 1, which was not opened (hint: open it first)`},
		{"args of an unopened block", head + "  - parts: [{args: {block: 1, text: a}}]\n", `r.yaml:4:28: args of block 1, which was not opened (hint: open it first)`},
		{"args after close", head + "  - parts: [{open: {block: 1, tool: a.b}}, {close: {block: 1}}, {args: {block: 1, text: x}}]\n", `r.yaml:4:80: args of block 1, which was closed`},
		{"open twice", head + "  - parts: [{open: {block: 1, tool: a.b}}, {open: {block: 1}}]\n", `r.yaml:4:59: block 1 is open (hint: close it first; only a call without a tool yet may be opened again, to name it)`},
		{"open again after close", head + "  - parts: [{open: {block: 1}}, {close: {block: 1}}, {open: {block: 1}}]\n", `r.yaml:4:69: block 1 stands twice in a round (hint: use another number)`},
		{"text in a block that is taken", head + "  - parts: [{text: a, block: 0}, {text: b, block: 0}]\n", `r.yaml:4:51: block 0 stands twice in a round (hint: use another number)`},
		{"no block", head + "  - parts: [{open: {tool: a.b}}]\n", `r.yaml:4:20: open has no "block" (hint: add block:)`},
		{"no text", head + "  - parts: [{open: {block: 0}}, {args: {block: 0}}]\n", `r.yaml:4:40: args has no "text" (hint: add text:)`},
		{"a negative block", head + "  - parts: [{close: {block: -1}}]\n", `r.yaml:4:29: block must be from 0 to 1048576, not -1`},
		{"unknown key in open", head + "  - parts: [{open: {block: 0, name: a.b}}]\n", `r.yaml:4:31: unknown key "name" in open (hint: one of block, id, tool)`},
		{"a call in the channel dialect", channelHead + "  - parts: [{open: {block: 0, tool: a.b}}]\n", `r.yaml:4:13: open belongs to the native dialect (hint: write <channel:action> in text, or dialect: native)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Parse("r.yaml", []byte(c.in))
			var e *Error
			if !errors.As(err, &e) || r != nil {
				t.Fatalf("got %v, %v", r, err)
			}
			if err.Error() != c.want {
				t.Errorf("\ngot  %s\nwant %s", err, c.want)
			}
		})
	}
}

// TestBrokenYAML: the text of the YAML parser's own messages is not ours; the place is.
func TestBrokenYAML(t *testing.T) {
	for in, place := range map[string]string{
		"a: [1": "r.yaml:1:", "a: b: c": "r.yaml:1:", "a: \"x": "r.yaml:1:", "\ta: 1": "r.yaml:1:", head + "  - text: a\n   finish: stop\n": "r.yaml:", "{{}: 1}": "r.yaml:", "}": "r.yaml:1:1: "} {
		_, err := Parse("r.yaml", []byte(in))
		if err == nil || !strings.HasPrefix(err.Error(), place) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestParse(t *testing.T) {
	r, err := Parse("r.yaml", []byte("\ufeffwrit_recording: 1\r\ndialect: native\r\nrounds:\r\n"+
		"  - text: |\r\n      a\r\n      b\r\n    chunk_bytes: 17\r\n    chunk_delay: 5ms\r\n    usage: {input: 1200, output: 80, cache_read: 0, cache_write: 1100}\r\n    expect: [\"x\"]\r\n"+
		"  - finish: error:rate_limit\r\n  - {finish: cut, text: ''}\r\n  - parts: [{wait: 0}]\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Name() != "r.yaml" || r.Dialect() != writ.Native || r.Len() != 4 {
		t.Errorf("%+v", r)
	}
	first := r.rounds[0]
	if first.steps[0].event.Text != "a\nb\n" || first.pieces != 17 || first.delay != 5*time.Millisecond || first.finish != writ.FinishStop ||
		first.usage != (writ.Usage{Input: 1200, Output: 80, CacheWrite: 1100}) || first.expect[0] != "x" {
		t.Errorf("%+v", first)
	}
	if r.rounds[1].fails != writ.ErrorRateLimit || r.rounds[2].finish != writ.FinishCut {
		t.Errorf("%+v", r.rounds[1:])
	}
}

// TestText: what YAML's forms of a string say must be what the model says, to the byte.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"|\n      a\n        b \n\n      c\n\n":       "a\n  b \n\nc\n",
		"|-\n      a\n      b\n":                      "a\nb",
		"|+\n      a\n\n\n":                           "a\n\n\n",
		"|2\n        a\n       b\n":                   "  a\n b\n",
		">\n      a\n      b\n\n      c\n":            "a b\nc\n",
		"|\n      # no comment\n      a: {b}\n":       "# no comment\na: {b}\n",
		"|\n      <channel:action>{\"s\":\"a\\n\"}\n": "<channel:action>{\"s\":\"a\\n\"}\n",
		`"a\tb\u00e9\U0001F600\x41\"\\\n"` + "\n":     "a\tbé😀A\"\\\n",
		"'it''s {n: 1} \\n'\n":                        "it's {n: 1} \\n",
		"plain text # comment\n":                      "plain text",
		"|\n      ---\n      a\n":                     "---\na\n",
	} {
		r, err := Parse("r.yaml", []byte(head+"  - text: "+in+"    finish: stop\n"))
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got := r.rounds[0].steps[0].event.Text; got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestParseJSON(t *testing.T) {
	r, err := Parse("r.json", []byte(`{"writ_recording": 1, "dialect": "channel", "rounds": [{"text": "<channel:action>\u00e9\"\\n", "finish": "stop"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.rounds[0].steps[0].event.Text; got != "<channel:action>é\"\\n" {
		t.Errorf("%q", got)
	}
}

func FuzzRecording(f *testing.F) {
	f.Add([]byte(channelHead + "  - text: |\n      <channel:thinking>x\n    chunk_bytes: 3\n    chunk_delay: 1ms\n    finish: cut\n    expect: [a]\n"))
	f.Add([]byte(head + "  - parts:\n      - thinking: hm\n        signature: s\n      - text: t\n        unclosed: true\n      - open: {block: 7, id: '', tool: a.b}\n" +
		"      - args: {block: 7, text: '{}'}\n      - close: {block: 7}\n      - wait: 1s\n    usage: {input: 1}\n"))
	f.Add([]byte("? a\n: *b\n"))
	f.Add([]byte("a: &x !!y {{<<: [|\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse("f", data)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.File != "f" || e.Message == "" {
				t.Fatalf("%#v", err)
			}
			return
		}
		for i := range r.Len() {
			for _, err := range r.Round(i) {
				var me *writ.ModelError
				if err != nil && !errors.As(err, &me) {
					t.Fatal(err)
				}
			}
		}
	})
}
