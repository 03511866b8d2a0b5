package stream

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"writ"
)

// MaxDepth bounds the nesting of a call's parameters, the parameters themselves included.
const MaxDepth = 64

// body is the JSON text of one open action: what was read, and the piece being read.
type body struct {
	buf   []byte
	piece string // not yet in buf; begins at offset len(buf)
	max   int
}

// slice returns a copy of the bytes [from, to), which may reach into the piece.
func (b *body) slice(from, to int) []byte {
	out := make([]byte, 0, to-from)
	if from < len(b.buf) {
		out = append(out, b.buf[from:min(to, len(b.buf))]...)
	}
	if to > len(b.buf) {
		out = append(out, b.piece[max(from-len(b.buf), 0):to-len(b.buf)]...)
	}
	return out
}

// read lets the scanner read in and keeps what it took. It returns how many bytes that was; a problem stands before
// the byte in[n]. More than max bytes are a problem.
func (b *body) read(s *scanner, in string) (n int, p *Problem) {
	b.piece = in
	short := len(in) > b.max-len(b.buf)
	if short {
		b.piece = in[:runeCut(in, b.max-len(b.buf))]
	}
	n, p = s.scan(b.piece)
	b.buf = append(b.buf, b.piece[:n]...)
	if short && p == nil && n == len(b.piece) && !s.done() {
		p = b.tooLarge()
	}
	b.piece = ""
	return n, p
}

// runeCut returns n, or the start of the character that in[:n] would cut.
func runeCut(in string, n int) int {
	for i := 1; i < utf8.UTFMax && i <= n; i++ {
		if utf8.RuneStart(in[n-i]) {
			if _, w := utf8.DecodeRuneInString(in[n-i:]); w > i {
				return n - i
			}
			break
		}
	}
	return n
}

func (b *body) tooLarge() *Problem {
	return &Problem{Code: writ.CodeArgumentsUnparsable, Offset: len(b.buf),
		Message: fmt.Sprintf("the action is larger than %d bytes", b.max), Hint: "send less in one call, or in several rounds"}
}

// arguments follows the top-level values of one parameter object and emits their deltas and ends.
type arguments struct {
	out   *output
	body  *body
	index int
	depth int // of the parameters' keys

	name string
	raw  int // from where an open argument's raw JSON has not been shown; -1 when none is open or it is a string
}

func (a *arguments) key(name []byte) { a.name = string(name) }

func (a *arguments) begin(first byte, at int) (wanted bool) {
	a.raw = -1
	if first == '"' {
		return true
	}
	a.raw = at
	return false
}

func (a *arguments) text(s string) {
	a.out.out(Event{Kind: Argument, Index: a.index, Arg: a.name, Text: s})
}

// flush shows the raw JSON of an open argument up to the offset to.
func (a *arguments) flush(to int) {
	if a.raw >= 0 && a.raw < to {
		a.text(string(a.body.slice(a.raw, to)))
		a.raw = to
	}
}

func (a *arguments) end(from, to int) {
	a.flush(to)
	a.raw = -1
	e := Event{Kind: ArgumentClosed, Index: a.index, Arg: a.name}
	if to-from <= MaxArgumentValue {
		e.Value = a.body.slice(from, to)
	}
	a.out.out(e)
}

// preview is a bounded, valid piece of text for a notice: the beginning and the end of what was read.
func preview(b []byte) string {
	const head, tail = 200, 400
	if len(b) <= head+tail {
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	front, back := b[:head], b[len(b)-tail:]
	for len(back) > 0 && !utf8.RuneStart(back[0]) {
		back = back[1:]
	}
	return clip(string(front), head) + "…" + strings.ToValidUTF8(string(back), "\uFFFD")
}

// clip cuts s to at most n bytes, between characters, and makes it valid UTF-8.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:runeCut(s, n)]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// member finds the value of one key of a valid object. The zero value finds nothing.
type member struct {
	name     string
	here     bool
	from, to int
}

func (m *member) key(depth int, name []byte) {
	m.here = m.here && depth > 1 || depth == 1 && string(name) == m.name
}
func (m *member) begin(int, byte, int) (bool, *Problem) { return false, nil }
func (m *member) text(string)                           {}
func (m *member) twice(int) writ.Code                   { return writ.CodeArgumentsUnparsable }
func (m *member) end(depth int, _ byte, from, to int) {
	if m.here && depth == 1 {
		m.from, m.to, m.here = from, to, false
	}
}

// fill returns the object with the member name set to a JSON value. It may have been there as "" or null only; else fill
// returns false.
func fill(object []byte, name string, value []byte) (json.RawMessage, bool) {
	m := member{name: name}
	s := newScanner(&m, MaxDepth)
	_, _ = s.scan(string(object)) // valid: it was scanned before
	out := make([]byte, 0, len(object)+len(name)+len(value)+4)
	if m.to > 0 {
		if old := string(object[m.from:m.to]); old != `""` && old != "null" {
			return nil, false
		}
		out = append(out, object[:m.from]...)
		return append(append(out, value...), object[m.to:]...), true
	}
	end := len(object) - 1 // the closing brace
	out = append(out, object[:end]...)
	if strings.TrimSpace(string(object[1:end])) != "" {
		out = append(out, ',')
	}
	out = append(append(out, quote(name)...), ':')
	return append(append(out, value...), '}'), true
}

func quote(s string) []byte {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // code stays readable in the record
	_ = enc.Encode(s)        // a string always encodes
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

// unended is the problem of a JSON text that ends too early.
func unended(at int) *Problem {
	return &Problem{Code: writ.CodeArgumentsUnparsable, Message: "the JSON ends too early", Offset: at,
		Hint: "send the whole object, then end the block"}
}

// truncated is the problem of an action that the generation's end cut off.
func truncated(at int, f writ.Finish) *Problem {
	p := &Problem{Code: writ.CodeTruncated, Offset: at, Message: fmt.Sprintf("the generation ended (%s) before the action was complete", f),
		Hint: "send the whole action again"}
	if f == writ.FinishLength {
		p.Hint = "send the action again, shorter, or split it over several rounds"
	}
	return p
}
