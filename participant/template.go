package participant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a target.
const (
	maxTarget     = 4096 // bytes of a template, and of what it renders
	maxPath       = 8    // segments of a path into the arguments
	maxNumberSize = 400  // digits of a number written plainly
)

// Template is what a call acts on, as text with paths into its arguments: "account:{id}", "mail:{to.address}".
// The zero value is no template: rendering it is an error.
type Template struct {
	text  string
	parts []part
}

// part is literal text, or the path of an argument.
type part struct {
	text string
	path []string // nil = literal text
}

// ParseTarget reads a template. Text stands for itself; {name} and {name.of.a.field} stand for an argument. There is no
// way to write a brace itself.
func ParseTarget(s string) (Template, error) {
	switch {
	case strings.TrimSpace(s) == "":
		return Template{}, fault("name what the call acts on", "the template is empty")
	case len(s) > maxTarget:
		return Template{}, fault("", "the template has more than %d bytes", maxTarget)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return Template{}, fault("", "the template has control characters")
	case strings.Contains(s, "{{") || strings.Contains(s, "}}"):
		return Template{}, fault("write single braces", "the template has double braces")
	}
	t := Template{text: s}
	for rest := s; rest != ""; {
		literal, after, open := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return Template{}, fault("write {name}", "a closing brace has no opening one")
		}
		if literal != "" {
			t.parts = append(t.parts, part{text: literal})
		}
		if !open {
			break
		}
		name, next, closed := strings.Cut(after, "}")
		if !closed || strings.Contains(name, "{") {
			return Template{}, fault("write {name}", "an opening brace has no closing one")
		}
		path, err := parsePath(name)
		if err != nil {
			return Template{}, err
		}
		t.parts = append(t.parts, part{path: path})
		rest = next
	}
	return t, nil
}

func parsePath(name string) ([]string, error) {
	path := strings.Split(name, ".")
	if len(path) > maxPath {
		return nil, fault("", "{%s} has more than %d parts", name, maxPath)
	}
	for _, p := range path {
		if p == "" || strings.ContainsFunc(p, unicode.IsSpace) {
			return nil, fault("write {name} or {name.field}, without spaces", "{%s} names no argument", name)
		}
	}
	return path, nil
}

// String is the template as written.
func (t Template) String() string { return t.text }

// Static reports whether the template names no argument, so that it renders the same for every call.
func (t Template) Static() bool {
	return !slices.ContainsFunc(t.parts, func(p part) bool { return p.path != nil })
}

// Parameters are the arguments that the template names, at the top level, sorted.
func (t Template) Parameters() []string {
	var out []string
	for _, p := range t.parts {
		if p.path != nil {
			out = append(out, p.path[0])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Render puts the arguments of a call, a JSON object, into the template. Strings stand as they are, numbers in plain
// decimal digits (1, 1.0 and 1e0 are the same target), booleans as true and false. An argument that is missing, null,
// empty, given twice, or an object or a list is an error: the call then names no target. No error shows a value.
func (t Template) Render(args json.RawMessage) (string, error) {
	if len(t.parts) == 0 {
		return "", fmt.Errorf("participant: no template")
	}
	var out strings.Builder
	for _, p := range t.parts {
		text := p.text
		if p.path != nil {
			var err error
			if text, err = lookUp(args, p.path); err != nil {
				return "", fmt.Errorf("participant: target %q: argument %s %w", t.text, strings.Join(p.path, "."), err)
			}
		}
		if out.Len()+len(text) > maxTarget {
			return "", fmt.Errorf("participant: target %q: more than %d bytes", t.text, maxTarget)
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

var (
	errMissing  = fmt.Errorf("is missing")
	errTwice    = fmt.Errorf("is given twice")
	errNoScalar = fmt.Errorf("is not a string, a number or a boolean")
	errNoFields = fmt.Errorf("has no fields: what holds it is no object")
)

func lookUp(value json.RawMessage, path []string) (string, error) {
	for _, key := range path {
		next, err := member(value, key)
		if err != nil {
			return "", err
		}
		value = next
	}
	return scalar(value)
}

// member is one value of a JSON object. A name that is there twice would leave it to each reader which one counts.
func member(object json.RawMessage, key string) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		if len(bytes.TrimSpace(object)) == 0 {
			return nil, errMissing
		}
		return nil, errNoFields
	}
	var found json.RawMessage
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("stands in what is no JSON")
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("stands in what is no JSON")
		}
		if name != key {
			continue
		}
		if found != nil {
			return nil, errTwice
		}
		found = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("stands in what is no JSON")
	}
	if found == nil {
		return nil, errMissing
	}
	return found, nil
}

func scalar(value json.RawMessage) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	tok, err := dec.Token()
	if err != nil {
		return "", errMissing
	}
	switch v := tok.(type) {
	case string:
		if v == "" {
			return "", fmt.Errorf("is empty")
		}
		return v, nil
	case bool:
		return fmt.Sprint(v), nil
	case json.Number:
		return plainNumber(string(v))
	case nil:
		return "", errMissing
	}
	return "", errNoScalar
}

// plainNumber writes a JSON number in plain decimal digits, exactly.
func plainNumber(s string) (string, error) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	shift, ok := smallInt(exponent)
	if !ok || len(digits) > maxNumberSize {
		return "", fmt.Errorf("is a number out of range")
	}
	point := len(whole) + shift // digits before the decimal point
	if strings.Trim(digits, "0") == "" {
		return "0", nil
	}
	if point > maxNumberSize || point < -maxNumberSize {
		return "", fmt.Errorf("is a number out of range")
	}
	if point < 0 {
		digits, point = strings.Repeat("0", -point)+digits, 0
	}
	if point > len(digits) {
		digits += strings.Repeat("0", point-len(digits))
	}
	whole, fraction = strings.TrimLeft(digits[:point], "0"), strings.TrimRight(digits[point:], "0")
	if whole == "" {
		whole = "0"
	}
	if fraction != "" {
		whole += "." + fraction
	}
	if negative {
		whole = "-" + whole
	}
	return whole, nil
}

// smallInt reads the exponent of a JSON number, if it is of a reasonable size.
func smallInt(s string) (int, bool) {
	digits, negative := strings.CutPrefix(strings.TrimPrefix(s, "+"), "-")
	digits = strings.TrimLeft(digits, "0")
	if len(digits) > 4 {
		return 0, false
	}
	n := 0
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}
