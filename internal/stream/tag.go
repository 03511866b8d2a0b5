package stream

import "strings"

// A tag is <channel:NAME> or </channel:NAME>, without blanks. NAME is 1 to 64 letters, digits, "_" and "-". Letter case
// does not matter.
const (
	tagWord = "channel:"
	maxName = 64
	maxTag  = len("</") + len(tagWord) + maxName + len(">")
)

// tagMatcher holds the beginning of a possible tag, never more than that.
type tagMatcher struct {
	held [maxTag]byte
	n    int
	word int // matched bytes of tagWord
	name int // where the name begins in held; 0 before it does
	end  bool
}

type tagStep uint8

const (
	tagMore tagStep = iota
	tagDone         // c ended the tag
	tagNone         // c cannot follow: what is held is no tag, and c was not taken
)

func (t *tagMatcher) open() bool { return t.n > 0 }

// text returns what is held.
func (t *tagMatcher) text() string { return string(t.held[:t.n]) }

// channel returns the lower-case name of a complete tag.
func (t *tagMatcher) channel() string {
	return strings.ToLower(string(t.held[t.name : t.n-1]))
}

func (t *tagMatcher) reset() { t.n, t.word, t.name, t.end = 0, 0, 0, false }

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c | 0x20
	}
	return c
}

func (t *tagMatcher) step(c byte) tagStep {
	switch {
	case t.n == 0:
		if c != '<' {
			return tagNone
		}
	case t.n == 1 && c == '/':
		t.end = true
	case t.word < len(tagWord):
		if lower(c) != tagWord[t.word] {
			return tagNone
		}
		if t.word++; t.word == len(tagWord) {
			t.name = t.n + 1
		}
	case c == '>' && t.n > t.name:
		t.held[t.n] = c
		t.n++
		return tagDone
	case t.n-t.name == maxName || !nameByte(c):
		return tagNone
	}
	t.held[t.n] = c
	t.n++
	return tagMore
}

func nameByte(c byte) bool {
	l := lower(c)
	return l >= 'a' && l <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
