package admission

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// digest is HMAC-SHA-256 under the tenant's key over the label and the data, so that a digest of one thing is never
// a digest of another.
func (l *Ledger) digest(label string, parts ...[]byte) string {
	m := hmac.New(sha256.New, l.cfg.Key)
	for _, p := range append([][]byte{[]byte(label)}, parts...) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		m.Write(n[:])
		m.Write(p)
	}
	return hex.EncodeToString(m.Sum(nil))
}

func (l *Ledger) requestDigest(r Request) string {
	b, _ := json.Marshal(r) // strings and one integer always marshal
	return l.digest("request", b)
}

// ArgumentDigest is the digest of a call's arguments in canonical form.
func (l *Ledger) ArgumentDigest(params json.RawMessage) (string, error) {
	c, err := Canonical(params)
	if err != nil {
		return "", err
	}
	return l.digest("arguments", c), nil
}

// ResultDigest is the digest of a result's bytes.
func (l *Ledger) ResultDigest(result []byte) string { return l.digest("result", result) }

// TargetDigest is the digest of a target that was made from a call's arguments.
func (l *Ledger) TargetDigest(target string) string { return l.digest("target", []byte(target))[:32] }

// Fingerprint is the meaning of a call: tool id and canonical arguments. Equal calls have equal fingerprints.
func (l *Ledger) Fingerprint(tool string, params json.RawMessage) (string, error) {
	c, err := Canonical(params)
	if err != nil {
		return "", err
	}
	return l.digest("fingerprint", []byte(tool), c), nil
}

const maxCanonicalDepth = 128

// Canonical writes JSON with sorted keys, numbers as exact decimals and strings byte for byte: 1.0 equals 1 and 1e2
// equals 100, but two strings that only look alike differ. A lone surrogate escape keeps its identity. Duplicate
// keys are an error, since readers disagree on what they mean.
func Canonical(raw json.RawMessage) ([]byte, error) {
	if !json.Valid(raw) {
		return nil, errors.New("admission: canonical form: not valid JSON")
	}
	c := canon{in: raw}
	var out bytes.Buffer
	c.space()
	if err := c.value(&out, 0); err != nil {
		return nil, fmt.Errorf("admission: canonical form: %w", err)
	}
	return out.Bytes(), nil
}

// canon walks JSON that is known to be valid.
type canon struct {
	in  []byte
	pos int
}

func (c *canon) space() {
	for c.pos < len(c.in) && strings.IndexByte(" \t\r\n", c.in[c.pos]) >= 0 {
		c.pos++
	}
}

func (c *canon) value(out *bytes.Buffer, depth int) error {
	if depth > maxCanonicalDepth {
		return fmt.Errorf("nested deeper than %d", maxCanonicalDepth)
	}
	switch ch := c.in[c.pos]; {
	case ch == '{':
		return c.object(out, depth)
	case ch == '[':
		return c.array(out, depth)
	case ch == '"':
		quote(out, c.str())
	case ch == '-' || ch >= '0' && ch <= '9':
		start := c.pos
		for c.pos < len(c.in) && strings.IndexByte("+-.eE0123456789", c.in[c.pos]) >= 0 {
			c.pos++
		}
		n, err := decimal(string(c.in[start:c.pos]))
		if err != nil {
			return err
		}
		out.WriteString(n)
	default: // true, false, null
		start := c.pos
		for c.pos < len(c.in) && c.in[c.pos] >= 'a' && c.in[c.pos] <= 'z' {
			c.pos++
		}
		out.Write(c.in[start:c.pos])
	}
	return nil
}

func (c *canon) array(out *bytes.Buffer, depth int) error {
	out.WriteByte('[')
	c.pos++
	c.space()
	for first := true; c.in[c.pos] != ']'; first = false {
		if !first {
			out.WriteByte(',')
			c.pos++ // the comma
			c.space()
		}
		if err := c.value(out, depth+1); err != nil {
			return err
		}
		c.space()
	}
	c.pos++
	out.WriteByte(']')
	return nil
}

func (c *canon) object(out *bytes.Buffer, depth int) error {
	type member struct {
		key   string
		value []byte
	}
	var members []member
	c.pos++
	c.space()
	for first := true; c.in[c.pos] != '}'; first = false {
		if !first {
			c.pos++ // the comma
			c.space()
		}
		key := c.str()
		c.space()
		c.pos++ // the colon
		c.space()
		var v bytes.Buffer
		if err := c.value(&v, depth+1); err != nil {
			return err
		}
		members = append(members, member{key, v.Bytes()})
		c.space()
	}
	c.pos++
	sort.SliceStable(members, func(i, j int) bool { return members[i].key < members[j].key })
	out.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			if members[i-1].key == m.key {
				return fmt.Errorf("duplicate key %q", m.key)
			}
			out.WriteByte(',')
		}
		quote(out, m.key)
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return nil
}

// str decodes a string to bytes; a lone surrogate becomes its three bytes in generalised UTF-8, so it stays itself.
func (c *canon) str() string {
	var b []byte
	for c.pos++; c.in[c.pos] != '"'; {
		ch := c.in[c.pos]
		if ch != '\\' {
			b = append(b, ch)
			c.pos++
			continue
		}
		c.pos += 2
		switch e := c.in[c.pos-1]; e {
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			b = c.unicode(b)
		default:
			b = append(b, e)
		}
	}
	c.pos++
	return string(b)
}

func (c *canon) unicode(b []byte) []byte {
	hex4 := func(at int) rune {
		n, _ := strconv.ParseUint(string(c.in[at:at+4]), 16, 32) // valid JSON has four hex digits here
		return rune(n)
	}
	r := hex4(c.pos)
	c.pos += 4
	if r >= 0xd800 && r < 0xdc00 && c.pos+6 <= len(c.in) && c.in[c.pos] == '\\' && c.in[c.pos+1] == 'u' {
		if lo := hex4(c.pos + 2); lo >= 0xdc00 && lo < 0xe000 {
			c.pos += 6
			return utf8.AppendRune(b, 0x10000+(r-0xd800)<<10+(lo-0xdc00))
		}
	}
	if r >= 0xd800 && r < 0xe000 {
		return append(b, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0xbf, 0x80|byte(r)&0xbf)
	}
	return utf8.AppendRune(b, r)
}

// quote writes an unambiguous string literal; it need not be JSON.
func quote(out *bytes.Buffer, s string) {
	out.WriteByte('"')
	for i := 0; i < len(s); i++ {
		if s[i] == '"' || s[i] == '\\' {
			out.WriteByte('\\')
		}
		out.WriteByte(s[i])
	}
	out.WriteByte('"')
}

// decimal writes a number as digits and a power of ten, without trailing zeros: the same value, the same text.
func decimal(s string) (string, error) {
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	exp := new(big.Int)
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if len(s)-i > 20 {
			return "", fmt.Errorf("exponent of %.20s… is too long", s[i:])
		}
		if _, ok := exp.SetString(strings.TrimPrefix(s[i+1:], "+"), 10); !ok {
			return "", fmt.Errorf("exponent %q", s[i:])
		}
		s = s[:i]
	}
	if i := strings.IndexByte(s, '.'); i >= 0 {
		exp.Sub(exp, big.NewInt(int64(len(s)-i-1)))
		s = s[:i] + s[i+1:]
	}
	s = strings.TrimLeft(s, "0")
	trimmed := strings.TrimRight(s, "0")
	if trimmed == "" {
		return "0", nil
	}
	exp.Add(exp, big.NewInt(int64(len(s)-len(trimmed))))
	if neg {
		trimmed = "-" + trimmed
	}
	if exp.Sign() == 0 {
		return trimmed, nil
	}
	return trimmed + "e" + exp.String(), nil
}
