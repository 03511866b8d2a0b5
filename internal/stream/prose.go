package stream

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// prose is one block of thinking or text.
type prose struct {
	kind  Kind // Thinking or Text
	exact bool // keep the bytes as they came: a signature may cover them
	index int
	carry string // the beginning of a UTF-8 character
	whole strings.Builder
}

func (b *prose) add(out *output, s string) {
	if b.exact {
		b.whole.WriteString(s)
	}
	if b.carry != "" {
		s = b.carry + s
	}
	s, b.carry = wholeRunes(s)
	b.show(out, s)
}

func (b *prose) show(out *output, s string) {
	if s == "" {
		return
	}
	s = validText(s)
	if b.kind == Thinking && !b.exact {
		b.whole.WriteString(s)
	}
	out.out(Event{Kind: b.kind, Index: b.index, Text: s})
}

// end closes the block.
func (b *prose) end(out *output, opaque json.RawMessage) {
	b.show(out, b.carry)
	b.carry = ""
	e := Event{Kind: TextClosed, Index: b.index, Opaque: opaque}
	if b.kind == Thinking {
		e.Kind, e.Text = ThinkingClosed, b.whole.String()
	}
	out.out(e)
}

// wholeRunes splits s before an unfinished UTF-8 character at its end.
func wholeRunes(s string) (whole, rest string) {
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		if utf8.RuneStart(s[len(s)-i]) {
			if !utf8.FullRuneInString(s[len(s)-i:]) {
				return s[:len(s)-i], s[len(s)-i:]
			}
			break
		}
	}
	return s, ""
}

// validText replaces every byte that is not UTF-8 with U+FFFD.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}
