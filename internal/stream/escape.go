package stream

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mark is what takes the tag out of a tag.
const mark = '~'

// Escape makes quoted text harmless for a prompt of the channel dialect: wherever s has something like "<channel:" or
// "</channel:", in any letter case and with blanks inside, a tilde goes after the "<". [Unescape] undoes it exactly;
// escaping twice needs undoing twice. A tilde because a model that copies it into a JSON string need not escape it. The result holds nothing that the parser reads as a tag.
func Escape(s string) string {
	return rewrite(s, func(b *strings.Builder, marks int) {
		b.WriteByte(mark)
		for range marks {
			b.WriteByte(mark)
		}
	})
}

// Unescape undoes [Escape].
func Unescape(s string) string {
	return rewrite(s, func(b *strings.Builder, marks int) {
		for range marks - 1 {
			b.WriteByte(mark)
		}
	})
}

// unescaped undoes what [Escape] did to a page that the model has copied into its arguments: the tool gets the page as
// it was. A tilde means nothing to JSON, so raw arguments stay the JSON they are.
func unescaped(params json.RawMessage) json.RawMessage {
	if bytes.IndexByte(params, mark) < 0 {
		return params
	}
	return json.RawMessage(Unescape(string(params)))
}

// rewrite copies s and lets put write the tildes of everything that looks like a tag.
func rewrite(s string, put func(b *strings.Builder, marks int)) string {
	var b strings.Builder
	done := 0
	for i := strings.IndexByte(s, '<'); i >= 0 && i < len(s); {
		i++
		if marks, ok := tagLike(s[i:]); ok {
			if b.Len() == 0 {
				b.Grow(len(s) + 16)
			}
			b.WriteString(s[done:i])
			put(&b, marks)
			i += marks
			done = i
		}
		next := strings.IndexByte(s[i:], '<')
		if next < 0 {
			break
		}
		i += next
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// tagLike reports whether s, which follows a "<", goes on like a tag, and how many tildes it begins with.
func tagLike(s string) (marks int, ok bool) {
	for marks < len(s) && s[marks] == mark {
		marks++
	}
	s = trimBlanks(s[marks:])
	if strings.HasPrefix(s, "/") {
		s = trimBlanks(s[1:])
	}
	word := strings.TrimSuffix(tagWord, ":")
	if len(s) < len(word) || !strings.EqualFold(s[:len(word)], word) {
		return marks, false
	}
	return marks, strings.HasPrefix(trimBlanks(s[len(word):]), ":")
}

// trimBlanks trims white space and what is invisible.
func trimBlanks(s string) string {
	for s != "" {
		r, w := utf8.DecodeRuneInString(s)
		if !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) {
			break
		}
		s = s[w:]
	}
	return s
}
