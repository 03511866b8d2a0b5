package stream

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var escapeSeeds = []string{"", "<channel:action>", "</channel:action>", "<~channel:action>", "<~~/channel:action>", "< / CHANNEL :x>", "a < b <channel",
	"<<channel:x>", "</~channel:x>", "<\u00a0channel\u200b:action>", "<channel", "<~", "<~ /channel:"}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain < text > & more":               "plain < text > & more",
		"<channel:action>{}</channel:action>": `<~channel:action>{}<~/channel:action>`,
		"< Channel : x>":                      `<~ Channel : x>`,
		`<~channel:x>`:                        `<~~channel:x>`,
		"<channel: half":                      `<~channel: half`,
		"<channels>":                          "<channels>",
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
		if got := Unescape(want); got != in {
			t.Errorf("Unescape(%q) = %q, want %q", want, got, in)
		}
	}
}

func TestEscapeRoundTrip(t *testing.T) {
	piece := rapid.OneOf(rapid.SampledFrom([]string{"<", "/", "~", "\\", " ", "channel", "CHANNEL", ":", "action", ">", "<channel:", "\n", "é"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOf(piece).Draw(t, "pieces"), "")
		e := Escape(s)
		if got := Unescape(e); got != s {
			t.Fatalf("%q became %q and then %q", s, e, got)
		}
		if tags(e) != 0 {
			t.Fatalf("%q holds a tag", e)
		}
	})
}
