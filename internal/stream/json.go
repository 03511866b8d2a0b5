package stream

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"writ"
)

// sink is told what a [scanner] finds, as soon as it is certain. Offsets count the bytes of one JSON text. The depth
// of a key or value is that of the container it stands in: 0 for the root, 1 inside the root object.
type sink interface {
	// key is told that a key of the object at depth was read; name is only valid during the call.
	key(depth int, name []byte)
	// begin is told that a value opens at offset at with byte first. It returns whether a string's decoded text is
	// wanted. A problem refuses the value.
	begin(depth int, first byte, at int) (wanted bool, p *Problem)
	// text is a decoded piece of the wanted string that is open.
	text(s string)
	// end is told that the value that began at from was read up to the offset to.
	end(depth int, first byte, from, to int)
	// twice gives the refusal code for a key that its object has had already.
	twice(depth int) writ.Code
}

// scanner is an incremental JSON reader: RFC 8259, UTF-8 only, no key twice in one object, bounded depth. It looks at
// every byte once and keeps no more than the open containers' keys.
type scanner struct {
	sink     sink
	maxDepth int

	state  scanState
	frames []frame
	base   int // offset of the first byte of the piece being scanned

	from  int  // where the open scalar began
	first byte // its first byte
	isKey bool // the open string is a key
	want  bool // the open string's text goes to the sink

	buf  []byte // decoded text that waits for more: of the key, or of small pieces of a wanted string
	hi   rune   // a high surrogate that waits for its other half
	hex  rune
	nhex int
	lit  string // the rest of true, false or null
	num  numState
	keys keySet

	lt bool // the last scan ended before a "<" outside a string, where JSON has none
}

type frame struct {
	object bool
	from   int
	keys   int // where its keys begin in the keySet
	set    map[string]struct{}
}

type scanState uint8

const (
	wantValue      scanState = iota
	wantValueOrEnd           // after [
	wantKeyOrEnd             // after {
	wantKey                  // after a comma in an object
	wantColon
	wantCommaOrEnd
	inString
	inEscape
	inHex
	inNumber
	inLiteral
	scanned // the root value is complete
)

var wanted = [...]string{wantValue: "a value", wantValueOrEnd: "a value or ]", wantKeyOrEnd: `a key in double quotes or }`,
	wantKey: "a key in double quotes", wantColon: "a colon", wantCommaOrEnd: "a comma or the end of the object or list"}

func newScanner(s sink, maxDepth int) scanner { return scanner{sink: s, maxDepth: maxDepth} }

func (s *scanner) done() bool { return s.state == scanned }

// blank reports whether nothing but white space was read.
func (s *scanner) blank() bool { return s.state == wantValue && len(s.frames) == 0 }

// quoted reports whether the next byte belongs to a string, a key included.
func (s *scanner) quoted() bool {
	return s.state == inString || s.state == inEscape || s.state == inHex
}

// scan reads as much of in as belongs to the JSON text and returns how many bytes that was. A problem is found at the
// byte in[n], which was not read. Pieces must not end inside a UTF-8 character.
func (s *scanner) scan(in string) (n int, p *Problem) {
	s.lt = false
	for n < len(in) && s.state != scanned && p == nil {
		switch s.state {
		case inString:
			n, p = s.str(in, n)
		case inEscape, inHex:
			n, p = s.escape(in, n)
		case inNumber:
			n, p = s.number(in, n)
		case inLiteral:
			if in[n] != s.lit[0] {
				p = s.unexpected(in, n, "true, false or null")
				break
			}
			n++
			if s.lit = s.lit[1:]; s.lit == "" {
				s.endValue(s.first, s.from, s.base+n)
			}
		default:
			n, p = s.structure(in, n)
		}
	}
	if s.want && s.quoted() {
		s.flush()
	}
	s.base += n
	return n, p
}

// structure reads white space and one byte between scalars.
func (s *scanner) structure(in string, n int) (int, *Problem) {
	for n < len(in) && isSpace(in[n]) {
		n++
	}
	if n == len(in) {
		return n, nil
	}
	switch c := in[n]; {
	case s.state == wantColon && c == ':':
		s.state = wantValue
	case s.state == wantCommaOrEnd && c == ',':
		s.state = wantValue
		if s.frames[len(s.frames)-1].object {
			s.state = wantKey
		}
	case (s.state == wantCommaOrEnd || s.state == wantKeyOrEnd) && c == '}' && s.frames[len(s.frames)-1].object,
		(s.state == wantCommaOrEnd || s.state == wantValueOrEnd) && c == ']' && !s.frames[len(s.frames)-1].object:
		s.pop(s.base + n + 1)
	case (s.state == wantKey || s.state == wantKeyOrEnd) && c == '"':
		s.state, s.isKey, s.want, s.buf = inString, true, false, s.buf[:0]
	case s.state == wantValue || s.state == wantValueOrEnd:
		return s.value(in, n)
	default:
		return n, s.unexpected(in, n, wanted[s.state])
	}
	return n + 1, nil
}

// value reads the first byte of a value.
func (s *scanner) value(in string, n int) (int, *Problem) {
	c, at := in[n], s.base+n
	next, lit := inLiteral, ""
	switch {
	case c == '"':
		next = inString
	case c == '{':
		next = wantKeyOrEnd
	case c == '[':
		next = wantValueOrEnd
	case c == '-' || c >= '0' && c <= '9':
		next = inNumber
	case c == 't':
		lit = "rue"
	case c == 'f':
		lit = "alse"
	case c == 'n':
		lit = "ull"
	default:
		return n, s.unexpected(in, n, wanted[s.state])
	}
	container := c == '{' || c == '['
	if container && len(s.frames) == s.maxDepth {
		return n, &Problem{Code: writ.CodeArgumentsUnparsable, Offset: at,
			Message: fmt.Sprintf("the JSON is nested deeper than %d levels", MaxDepth), Hint: "send a flatter object"}
	}
	want, p := s.sink.begin(len(s.frames), c, at)
	if p != nil {
		p.Offset = at
		return n, p
	}
	s.state = next
	if container {
		s.frames = append(s.frames, frame{object: c == '{', from: at, keys: s.keys.len()})
		return n + 1, nil
	}
	s.isKey, s.want, s.buf, s.from, s.first, s.lit = false, want && c == '"', s.buf[:0], at, c, lit
	if next == inNumber {
		s.num = firstNum(c)
	}
	return n + 1, nil
}

func (s *scanner) pop(to int) {
	f := s.frames[len(s.frames)-1]
	s.frames = s.frames[:len(s.frames)-1]
	s.keys.cut(f.keys)
	first := byte('[')
	if f.object {
		first = '{'
	}
	s.endValue(first, f.from, to)
}

func (s *scanner) endValue(first byte, from, to int) {
	s.state = wantCommaOrEnd
	if len(s.frames) == 0 {
		s.state = scanned
	}
	s.sink.end(len(s.frames), first, from, to)
}

func (s *scanner) unexpected(in string, n int, want string) *Problem {
	s.lt = in[n] == '<' && !s.quoted()
	r, _ := utf8.DecodeRuneInString(in[n:])
	return s.problem(n, "unexpected %q where %s must stand", r, want)
}

func (s *scanner) problem(n int, format string, args ...any) *Problem {
	return &Problem{Code: writ.CodeArgumentsUnparsable, Message: "the JSON is not valid: " + fmt.Sprintf(format, args...),
		Hint: "send valid JSON: double quotes, escaped line breaks and quotes inside strings, no comments", Offset: s.base + n}
}

// plain marks the bytes that a string may hold as they are, ASCII only.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// str reads the inside of a string up to the first escape, its end, or the end of in.
func (s *scanner) str(in string, n int) (int, *Problem) {
	start := n
	for n < len(in) {
		c := in[n]
		if plain[c] {
			n++
			continue
		}
		if c >= utf8.RuneSelf {
			r, w := utf8.DecodeRuneInString(in[n:])
			if r == utf8.RuneError && w == 1 {
				s.run(in[start:n])
				return n, s.problem(n, "byte 0x%02x is not UTF-8", c)
			}
			n += w
			continue
		}
		s.run(in[start:n])
		switch c {
		case '"':
			return n + 1, s.endString(n + 1)
		case '\\':
			s.state = inEscape
			return n + 1, nil
		}
		return n, s.problem(n, "byte 0x%02x must be escaped inside a string", c)
	}
	s.run(in[start:])
	return n, nil
}

// run takes a piece of a string that stands for itself. Long pieces go out uncopied, short ones are joined.
func (s *scanner) run(piece string) {
	if piece == "" {
		return
	}
	s.lone()
	switch {
	case s.isKey || s.want && (len(s.buf) > 0 || len(piece) < 64):
		s.buf = append(s.buf, piece...)
	case s.want:
		s.sink.text(piece)
	}
}

// lone gives up waiting for the second half of a surrogate pair.
func (s *scanner) lone() {
	if s.hi != 0 {
		s.hi = 0
		s.rune(utf8.RuneError)
	}
}

func (s *scanner) rune(r rune) {
	if s.isKey || s.want {
		s.buf = utf8.AppendRune(s.buf, r)
	}
}

func (s *scanner) flush() {
	if len(s.buf) > 0 {
		s.sink.text(string(s.buf))
		s.buf = s.buf[:0]
	}
}

// escape reads one byte after a backslash.
func (s *scanner) escape(in string, n int) (int, *Problem) {
	c := in[n]
	if s.state == inHex {
		v, ok := unhex(c)
		if !ok {
			return n, s.unexpected(in, n, "a hexadecimal digit")
		}
		s.hex = s.hex<<4 | v
		if s.nhex++; s.nhex == 4 {
			s.state = inString
			s.unicode(s.hex)
		}
		return n + 1, nil
	}
	if c == 'u' {
		s.state, s.hex, s.nhex = inHex, 0, 0
		return n + 1, nil
	}
	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		return n, s.unexpected(in, n, "an escape character")
	}
	s.lone()
	s.rune(rune("\"\\/\b\f\n\r\t"[i]))
	s.state = inString
	return n + 1, nil
}

// unicode takes one \uXXXX. A surrogate without its other half counts as U+FFFD.
func (s *scanner) unicode(r rune) {
	switch {
	case r >= 0xd800 && r < 0xdc00:
		s.lone()
		s.hi = r
	case r >= 0xdc00 && r < 0xe000 && s.hi != 0:
		s.rune((s.hi-0xd800)<<10 + (r - 0xdc00) + 0x10000)
		s.hi = 0
	default:
		s.lone()
		s.rune(r) // AppendRune writes U+FFFD for a low surrogate
	}
}

func unhex(c byte) (rune, bool) {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0'), true
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10, true
	}
	return 0, false
}

// endString takes the closing quote, whose end is at n of the piece.
func (s *scanner) endString(n int) *Problem {
	s.lone()
	if !s.isKey {
		if s.want {
			s.flush()
		}
		s.endValue('"', s.from, s.base+n)
		return nil
	}
	s.state = wantColon
	depth := len(s.frames)
	if !s.keys.add(&s.frames[depth-1], s.buf) {
		return &Problem{Code: s.sink.twice(depth), Offset: s.base + n, Hint: "send every key once",
			Message: fmt.Sprintf("the key %q stands twice in one object", clip(string(s.buf), 64))}
	}
	s.sink.key(depth, s.buf)
	return nil
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// numState is how far the grammar of a number has come.
type numState uint8

const (
	numMinus numState = iota
	numZero
	numInt
	numDot
	numFrac
	numExp
	numSign
	numExpInt
)

func firstNum(c byte) numState {
	switch c {
	case '-':
		return numMinus
	case '0':
		return numZero
	}
	return numInt
}

// next returns the state after c, or false when c does not belong to the number.
func (m numState) next(c byte) (numState, bool) {
	digit := c >= '0' && c <= '9'
	switch {
	case m == numMinus && digit:
		return firstNum(c), true
	case (m == numInt || m == numFrac || m == numExpInt) && digit:
		return m, true
	case m == numDot && digit:
		return numFrac, true
	case (m == numExp || m == numSign) && digit:
		return numExpInt, true
	case (m == numZero || m == numInt) && c == '.':
		return numDot, true
	case (m == numZero || m == numInt || m == numFrac) && c|0x20 == 'e':
		return numExp, true
	case m == numExp && (c == '+' || c == '-'):
		return numSign, true
	}
	return m, false
}

func (s *scanner) number(in string, n int) (int, *Problem) {
	for ; n < len(in); n++ {
		next, ok := s.num.next(in[n])
		if ok {
			s.num = next
			continue
		}
		switch s.num {
		case numZero, numInt, numFrac, numExpInt:
			s.endValue(s.first, s.from, s.base+n)
			return n, nil
		}
		return n, s.unexpected(in, n, "a digit")
	}
	return n, nil
}

// keySet holds the keys of all open objects in one growing slice, so that the many small objects of a payload cost
// no allocation each; an object with many keys gets a map.
type keySet struct {
	text []byte
	ends []int
}

const manyKeys = 16

func (k *keySet) len() int { return len(k.ends) }

func (k *keySet) start(i int) int {
	if i == 0 {
		return 0
	}
	return k.ends[i-1]
}

func (k *keySet) cut(n int) {
	k.text = k.text[:k.start(n)]
	k.ends = k.ends[:n]
}

// add reports whether name is new in the object f, the innermost open one.
func (k *keySet) add(f *frame, name []byte) bool {
	if f.set != nil {
		if _, found := f.set[string(name)]; found {
			return false
		}
		f.set[string(name)] = struct{}{}
		return true
	}
	for i := f.keys; i < len(k.ends); i++ {
		if bytes.Equal(k.text[k.start(i):k.ends[i]], name) {
			return false
		}
	}
	k.text = append(k.text, name...)
	k.ends = append(k.ends, len(k.text))
	if n := len(k.ends) - f.keys; n == manyKeys {
		f.set = make(map[string]struct{}, 2*manyKeys)
		for i := f.keys; i < len(k.ends); i++ {
			f.set[string(k.text[k.start(i):k.ends[i]])] = struct{}{}
		}
	}
	return true
}
