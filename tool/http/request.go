package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"unicode/utf8"
)

// shape is what a call asks for, before anything is sent.
type shape struct {
	path    string // escaped
	query   string // encoded
	headers [][2]string
	cookies []string
	body    []byte
	mime    string
}

// shape turns the arguments into a request. Its errors mean that nothing can be sent.
func (o *operation) shape(args map[string]json.RawMessage) (*shape, error) {
	s := &shape{}
	inPath := map[string]string{}
	var query []string
	for _, p := range o.params {
		raw, given := args[p.key]
		if !given || string(bytes.TrimSpace(raw)) == "null" {
			if p.required {
				return nil, fmt.Errorf("the argument %s is missing", p.key)
			}
			continue
		}
		v, err := p.value(raw)
		if err != nil {
			return nil, fmt.Errorf("the argument %s: %w", p.key, err)
		}
		switch p.in {
		case "path":
			if inPath[p.name], err = p.inPath(v); err != nil {
				return nil, fmt.Errorf("the argument %s: %w", p.key, err)
			}
		case "query":
			query = append(query, p.inQuery(v)...)
		case "header":
			text := v.joined(",", p.explode, func(s string) string { return s })
			if !validValue(text) {
				return nil, fmt.Errorf("the argument %s has a character that a header cannot have", p.key)
			}
			s.headers = append(s.headers, [2]string{p.name, text})
		case "cookie":
			s.cookies = append(s.cookies, p.inQuery(v)...)
		}
	}
	s.query = strings.Join(query, "&")
	if err := o.join(s, inPath); err != nil {
		return nil, err
	}
	if o.body == nil {
		return s, nil
	}
	raw, given := args[bodyKey]
	if !given && o.body.required {
		return nil, errors.New("the argument body is missing")
	}
	if given {
		s.body, s.mime = raw, o.body.mime
	}
	return s, nil
}

// join puts the path together. No value changes which resource is meant: what separates is escaped, and no segment
// becomes one of dots.
func (o *operation) join(s *shape, values map[string]string) error {
	var b strings.Builder
	for _, p := range o.path {
		if p.param == "" {
			b.WriteString(p.literal)
		} else {
			b.WriteString(values[p.param])
		}
	}
	s.path = b.String()
	for _, seg := range strings.Split(s.path, "/") {
		text, err := url.PathUnescape(seg)
		if err != nil {
			return errors.New("the path cannot be escaped")
		}
		// Many servers unescape before they cut the path into segments.
		for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == '\\' }) {
			if part == "." || part == ".." {
				return errors.New("an argument would lead the path elsewhere")
			}
		}
	}
	return nil
}

// value is an argument as it is serialized: one text, a list, or pairs.
type value struct {
	one   *string
	list  []string
	pairs [][2]string
}

// value reads a JSON value. Numbers keep the digits they were written with.
func (p *param) value(raw json.RawMessage) (value, error) {
	if p.json {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return value{}, err
		}
		s := b.String()
		return value{one: &s}, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	tok, err := dec.Token()
	if err != nil {
		return value{}, err
	}
	switch tok {
	case json.Delim('['):
		v := value{list: []string{}}
		for dec.More() {
			s, err := scalar(dec)
			if err != nil {
				return value{}, err
			}
			v.list = append(v.list, s)
		}
		return v, nil
	case json.Delim('{'):
		v := value{pairs: [][2]string{}}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return value{}, err
			}
			s, err := scalar(dec)
			if err != nil {
				return value{}, err
			}
			v.pairs = append(v.pairs, [2]string{fmt.Sprint(key), s})
		}
		return v, nil
	}
	s, err := text(tok)
	return value{one: &s}, err
}

func scalar(dec *json.Decoder) (string, error) {
	tok, err := dec.Token()
	if err != nil {
		return "", err
	}
	return text(tok)
}

func text(tok json.Token) (string, error) {
	switch t := tok.(type) {
	case string:
		if !utf8.ValidString(t) {
			return "", errors.New("it is no valid text")
		}
		return t, nil
	case json.Number:
		return t.String(), nil
	case bool:
		if t {
			return "true", nil
		}
		return "false", nil
	case nil:
		return "", nil
	}
	return "", errors.New("a value inside it is no simple one, and this place has no form for that")
}

// joined is the value in the style simple, with sep between its parts.
func (v value) joined(sep string, explode bool, escape func(string) string) string {
	if v.one != nil {
		return escape(*v.one)
	}
	var parts []string
	for _, s := range v.list {
		parts = append(parts, escape(s))
	}
	for _, kv := range v.pairs {
		if explode {
			parts = append(parts, escape(kv[0])+"="+escape(kv[1]))
		} else {
			parts = append(parts, escape(kv[0]), escape(kv[1]))
		}
	}
	return strings.Join(parts, sep)
}

// inPath is the value in its place in the path. An empty one would make another path of it.
func (p *param) inPath(v value) (string, error) {
	name := escapePath(p.name)
	var out string
	switch p.style {
	case "label":
		sep := ","
		if p.explode {
			sep = "."
		}
		out = v.joined(sep, p.explode, escapePath)
	case "matrix":
		switch {
		case v.one != nil || !p.explode:
			out = v.joined(",", false, escapePath)
			if out != "" {
				out = name + "=" + out
			}
		case v.pairs != nil:
			out = v.joined(";", true, escapePath)
		default:
			var parts []string
			for _, s := range v.list {
				parts = append(parts, name+"="+escapePath(s))
			}
			out = strings.Join(parts, ";")
		}
	default:
		out = v.joined(",", p.explode, escapePath)
	}
	if out == "" {
		return "", errors.New("it is empty, and stands in the path")
	}
	switch p.style {
	case "label":
		out = "." + out
	case "matrix":
		out = ";" + out
	}
	return out, nil
}

// inQuery is the value as name=value pairs; an empty list or mapping is left out.
func (p *param) inQuery(v value) []string {
	name := url.QueryEscape(p.name)
	if v.one != nil {
		return []string{name + "=" + escapeQuery(*v.one)}
	}
	if len(v.list)+len(v.pairs) == 0 {
		return nil
	}
	var out []string
	switch {
	case p.style == "deepObject" && v.pairs != nil:
		for _, kv := range v.pairs {
			out = append(out, url.QueryEscape(p.name+"["+kv[0]+"]")+"="+escapeQuery(kv[1]))
		}
	case p.explode && v.pairs != nil:
		for _, kv := range v.pairs {
			out = append(out, url.QueryEscape(kv[0])+"="+escapeQuery(kv[1]))
		}
	case p.explode || p.style == "deepObject":
		for _, s := range v.list {
			out = append(out, name+"="+escapeQuery(s))
		}
	default:
		sep := map[string]string{"spaceDelimited": "%20", "pipeDelimited": "%7C"}[p.style]
		if sep == "" {
			sep = ","
		}
		out = append(out, name+"="+v.joined(sep, false, escapeQuery))
	}
	return out
}

// escapeQuery keeps spaces readable for servers that do not take "+" for one.
func escapeQuery(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// escapePath escapes everything but the unreserved characters of RFC 3986: what separates in one style is data in
// another.
func escapePath(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~' {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + string(hex[c>>4]) + string(hex[c&15]))
		}
	}
	return b.String()
}

// escapeLiteral escapes what the template itself has, and leaves its slashes and its own escapes.
func escapeLiteral(s string) string {
	segs := strings.Split(s, "/")
	for i, seg := range segs {
		if text, err := url.PathUnescape(seg); err == nil {
			seg = text
		}
		segs[i] = url.PathEscape(seg)
	}
	return strings.Join(segs, "/")
}

// once is a body that cannot be had a second time: net/http may not repeat a request that has it.
type once struct{ r *bytes.Reader }

// Read implements io.Reader.
func (o once) Read(p []byte) (int, error) { return o.r.Read(p) }

// Close implements io.Closer.
func (o once) Close() error { return nil }

var _ io.ReadCloser = once{}
