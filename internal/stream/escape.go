package stream

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes quoted text harmless for a prompt of the channel dialect: wherever s has something like "<channel:" or
// "</channel:", in any letter case and with blanks inside, a backslash goes after the "<". [Unescape] undoes it exactly;
// escaping twice needs undoing twice. The result holds nothing that the parser reads as a tag.
func Escape(s string) string {
	return rewrite(s, func(b *strings.Builder, slashes int) {
		b.WriteByte('\\')
		for range slashes {
			b.WriteByte('\\')
		}
	})
}

// Unescape undoes [Escape].
func Unescape(s string) string {
	return rewrite(s, func(b *strings.Builder, slashes int) {
		for range slashes - 1 {
			b.WriteByte('\\')
		}
	})
}

// rewrite copies s and lets put write the backslashes of everything that looks like a tag.
func rewrite(s string, put func(b *strings.Builder, slashes int)) string {
	var b strings.Builder
	done := 0
	for i := strings.IndexByte(s, '<'); i >= 0 && i < len(s); {
		i++
		if slashes, ok := tagLike(s[i:]); ok {
			if b.Len() == 0 {
				b.Grow(len(s) + 16)
			}
			b.WriteString(s[done:i])
			put(&b, slashes)
			i += slashes
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

// tagLike reports whether s, which follows a "<", goes on like a tag, and how many backslashes it begins with.
func tagLike(s string) (slashes int, ok bool) {
	for slashes < len(s) && s[slashes] == '\\' {
		slashes++
	}
	s = trimBlanks(s[slashes:])
	if strings.HasPrefix(s, "/") {
		s = trimBlanks(s[1:])
	}
	word := strings.TrimSuffix(tagWord, ":")
	if len(s) < len(word) || !strings.EqualFold(s[:len(word)], word) {
		return slashes, false
	}
	return slashes, strings.HasPrefix(trimBlanks(s[len(word):]), ":")
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
