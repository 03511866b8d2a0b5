package modelreq

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Rules are what a vendor refuses in a tool's schema beyond what JSON Schema says. One refused schema would refuse the
// whole request.
type Rules struct {
	Properties bool           // an object needs "properties" at the top
	Items      bool           // an array needs "items"
	Names      *regexp.Regexp // what a top-level property may be called; nil = anything
}

// Schema is a schema that the vendor takes.
type Schema struct {
	JSON   json.RawMessage
	Note   string   // for the tool's description: what the schema no longer says
	Mended []string // what was changed, in words; nil when JSON holds the tool's own bytes
	Strict bool     // it is within OpenAI's strict subset as it stands
}

// Mend changes only what a vendor refuses, and only towards accepting more, with one exception: a property that some
// branches of a top-level union describe and others leave open is described. What the schema no longer says stands in
// Note.
func Mend(raw json.RawMessage, rules Rules) Schema {
	m := mender{rules: rules}
	v, err := decode(raw)
	if err != nil {
		m.did("its schema is no JSON; any object is let through")
		v = map[string]any{}
	}
	top, ok := v.(map[string]any)
	if !ok {
		m.did("its schema was no object; any object is let through")
		top = map[string]any{}
	}
	m.root = top
	top = m.top(top)
	if len(m.done) == 0 {
		var b bytes.Buffer
		if json.Compact(&b, raw) == nil {
			return Schema{JSON: b.Bytes(), Strict: strict(top)}
		}
	}
	slices.Sort(m.done)
	return Schema{JSON: encode(top), Note: m.note(), Mended: slices.Compact(m.done), Strict: strict(top)}
}

func decode(raw json.RawMessage) (any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return map[string]any{"type": "object"}, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	return bytes.TrimSpace(b.Bytes())
}

type mender struct {
	rules Rules
	root  map[string]any
	done  []string
	lost  map[string]any // what the mended schema no longer says
}

func (m *mender) did(format string, args ...any) {
	m.done = append(m.done, fmt.Sprintf(format, args...))
}

func (m *mender) lose(key string, v any) {
	if m.lost == nil {
		m.lost = map[string]any{}
	}
	m.lost[key] = v
}

func (m *mender) note() string {
	if len(m.lost) == 0 {
		return ""
	}
	return "The parameters must also satisfy this JSON Schema: " + string(encode(m.lost))
}

// top makes the top level a plain object, which is all that the vendors take there.
func (m *mender) top(s map[string]any) map[string]any {
	s = maps.Clone(s)
	if ref, ok := s["$ref"].(string); ok {
		m.did("its top-level $ref is written out")
		delete(s, "$ref")
		if to, ok := m.resolve(ref); ok {
			for k, v := range to {
				if _, has := s[k]; !has {
					s[k] = v
				}
			}
		}
	}
	for _, k := range []string{"$schema", "$id", "id", "$anchor"} {
		if _, ok := s[k].(string); ok {
			delete(s, k)
			m.did("%s is left out", k)
		}
	}
	m.combinators(s)
	for _, k := range []string{"not", "enum", "const", "if", "then", "else"} {
		if v, ok := s[k]; ok {
			delete(s, k)
			m.lose(k, v)
			m.did("top-level %s is said in the description instead", k)
		}
	}
	m.topType(s)
	if props, ok := s["properties"].(map[string]any); ok && m.rules.Names != nil {
		for _, name := range slices.Sorted(maps.Keys(props)) {
			if !m.rules.Names.MatchString(name) {
				m.did("the property name %q is not allowed; the schema is said in the description instead", name)
				m.lost = m.root
				return map[string]any{"type": "object", "properties": map[string]any{}, "additionalProperties": true}
			}
		}
	}
	return m.walk(s, 0).(map[string]any)
}

func (m *mender) topType(s map[string]any) {
	if s["type"] != "object" {
		switch s["type"].(type) {
		case nil:
			m.did("type: object is added")
		default:
			m.did("the top-level type is made object")
		}
		s["type"] = "object"
	}
	if _, ok := s["properties"].(map[string]any); !ok && (m.rules.Properties || s["properties"] != nil) {
		s["properties"] = map[string]any{}
		m.did("empty properties are added")
	}
}

// combinators folds a top-level oneOf, anyOf or allOf into one object: every property of any branch is allowed, and
// required is what all of them require.
func (m *mender) combinators(s map[string]any) {
	for _, k := range []string{"allOf", "anyOf", "oneOf"} {
		branches, ok := s[k].([]any)
		if !ok {
			continue
		}
		delete(s, k)
		m.lose(k, branches)
		m.did("top-level %s is folded into one object and said in the description", k)
		props, _ := s["properties"].(map[string]any)
		props = maps.Clone(props)
		if props == nil {
			props = map[string]any{}
		}
		var common map[string]int
		open := false
		for _, b := range branches {
			o, _ := b.(map[string]any)
			if ref, ok := o["$ref"].(string); ok {
				o, _ = m.resolve(ref)
			}
			bp, _ := o["properties"].(map[string]any)
			open = open || bp == nil || o["additionalProperties"] != false
			for name, p := range bp {
				if old, has := props[name]; has && string(encode(old)) != string(encode(p)) {
					p = map[string]any{} // the branches disagree
				}
				props[name] = p
			}
			common = count(common, o["required"])
		}
		s["properties"] = props
		if open && s["additionalProperties"] == false {
			delete(s, "additionalProperties")
		}
		m.require(s, common, len(branches), k == "allOf")
	}
}

func count(in map[string]int, required any) map[string]int {
	list, _ := required.([]any)
	for _, r := range list {
		if name, ok := r.(string); ok {
			if in == nil {
				in = map[string]int{}
			}
			in[name]++
		}
	}
	return in
}

func (m *mender) require(s map[string]any, common map[string]int, branches int, all bool) {
	list, _ := s["required"].([]any)
	list = slices.Clone(list)
	for _, name := range slices.Sorted(maps.Keys(common)) {
		if (all || common[name] == branches) && !slices.Contains(list, any(name)) {
			list = append(list, name)
		}
	}
	if len(list) > 0 {
		s["required"] = list
	}
}

func (m *mender) resolve(ref string) (map[string]any, bool) {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return m.root, ref == "#"
	}
	var v any = m.root
	for _, step := range strings.Split(path, "/") {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		o, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		v = o[step]
	}
	o, ok := v.(map[string]any)
	return o, ok
}

// Where schemas stand inside a schema.
var (
	inMaps  = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	inLists = []string{"oneOf", "anyOf", "allOf", "prefixItems"}
	inOne   = []string{"items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties"}
)

const maxDepth = 64

// walk mends what is below the top. It never changes its input.
func (m *mender) walk(v any, depth int) any {
	s, ok := v.(map[string]any)
	switch {
	case !ok && v == nil:
		m.did("a null schema is made an open one")
		return map[string]any{}
	case !ok:
		return v
	case depth > maxDepth:
		m.did("what is deeper than %d levels is let through", maxDepth)
		return map[string]any{}
	}
	s = maps.Clone(s)
	m.keywords(s)
	m.types(s)
	m.arrays(s)
	for _, k := range inMaps {
		if sub, ok := s[k].(map[string]any); ok {
			sub = maps.Clone(sub)
			for name, v := range sub {
				sub[name] = m.walk(v, depth+1)
			}
			s[k] = sub
		}
	}
	for _, k := range inLists {
		if list, ok := s[k].([]any); ok {
			list = slices.Clone(list)
			for i := range list {
				list[i] = m.walk(list[i], depth+1)
			}
			s[k] = list
		}
	}
	for _, k := range inOne {
		if sub, ok := s[k].(map[string]any); ok {
			s[k] = m.walk(sub, depth+1)
		}
	}
	return s
}

// keywords mends what older drafts wrote another way, and references that lead nowhere.
func (m *mender) keywords(s map[string]any) {
	for _, pair := range [][2]string{{"exclusiveMinimum", "minimum"}, {"exclusiveMaximum", "maximum"}} {
		if on, ok := s[pair[0]].(bool); ok {
			delete(s, pair[0])
			if limit, has := s[pair[1]]; on && has {
				s[pair[0]] = limit
				delete(s, pair[1])
			}
			m.did("a boolean %s of draft 4 is written as a number", pair[0])
		}
	}
	if r, ok := s["required"]; ok {
		if _, list := r.([]any); !list {
			delete(s, "required")
			m.did("a required that is no list is left out")
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		if _, found := m.resolve(ref); !found {
			delete(s, "$ref")
			m.did("the reference %q leads out of the schema; anything is let through there", ref)
		}
	}
	if e, ok := s["enum"].([]any); ok && len(e) == 0 {
		delete(s, "enum")
		m.did("an empty enum is left out")
	}
}

var typeNames = map[string]string{"object": "object", "array": "array", "string": "string", "number": "number", "integer": "integer", "boolean": "boolean", "null": "null",
	"int": "integer", "float": "number", "double": "number", "bool": "boolean", "str": "string", "dict": "object", "list": "array"}

func (m *mender) types(s map[string]any) {
	name, ok := s["type"].(string)
	if !ok {
		return
	}
	known, ok := typeNames[name]
	switch {
	case !ok:
		delete(s, "type")
		m.did("the type %q is unknown; anything is let through there", name)
	case known != name:
		s["type"] = known
		m.did("the type %q is written %q", name, known)
	}
}

func (m *mender) arrays(s map[string]any) {
	if list, ok := s["items"].([]any); ok {
		delete(s, "items")
		s["prefixItems"] = list
		if rest, ok := s["additionalItems"]; ok {
			s["items"] = rest
			delete(s, "additionalItems")
		}
		m.did("a list of items is written as prefixItems")
	}
	if _, ok := s["items"]; !ok && s["type"] == "array" && m.rules.Items {
		s["items"] = map[string]any{}
		m.did("open items are added to an array")
	}
}
