package config

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"writ/trait"
)

// The shapes of this package describe the file; the decoder and the JSON Schema both walk them. A shape is a struct
// whose fields carry the tags
//
//	key      the YAML key
//	doc      one sentence for editors
//	default  what holds without the key, in words of YAML
//	enum     the allowed strings, separated by commas
//	min, max the bounds of a number or duration
//	pattern  the regular expression of a string, and
//	hint     what to write, for a person
//	verbatim "true": text where ${VAR} means nothing and no warning is wanted
//
// Fields are val, dict, slices of shapes, pointers to shapes, or types with their own decoder. Fields of an embedded
// struct belong to the outer shape.

// val is a value with its place. Set means that the file has a usable value, Bad that it has an unusable one, which
// has been reported.
type val[T any] struct {
	V   T
	Pos Pos
	Set bool
	Bad bool
}

// present reports whether the key is in the file, usable or not.
func (v *val[T]) present() bool { return v.Set || v.Bad }

func (v *val[T]) decode(d *decoder, n *node, f field) {
	v.Pos = n.pos
	v.Set = d.value(n, reflect.ValueOf(&v.V).Elem(), f)
	v.Bad = !v.Set
}

func (v *val[T]) schema(g *generator, f field) schema { return g.value(reflect.TypeFor[T](), f) }

// dict is a mapping with free keys, in the order of the file.
type dict[T any] struct {
	Pos     Pos
	Entries []dictEntry[T]
}

type dictEntry[T any] struct {
	Key string
	Pos Pos
	Val T
}

func (m *dict[T]) get(key string) (T, bool) {
	for _, e := range m.Entries {
		if e.Key == key {
			return e.Val, true
		}
	}
	var zero T
	return zero, false
}

func (m *dict[T]) decode(d *decoder, n *node, f field) {
	m.Pos = n.pos
	if n.kind == kindNull {
		return
	}
	if n.kind != kindMap {
		d.wrongType(n, f, "a mapping")
		return
	}
	m.Entries = make([]dictEntry[T], len(n.entries))
	for i, e := range n.entries {
		m.Entries[i].Key, m.Entries[i].Pos = e.key, e.pos
		if strings.TrimSpace(e.key) == "" {
			d.report.errorf(e.pos, "", "%s has an empty key", f.path)
		}
		item := f
		item.path = join(f.path, e.key)
		d.any(e.value, reflect.ValueOf(&m.Entries[i].Val).Elem(), item)
	}
}

func (m *dict[T]) schema(g *generator, f field) schema {
	return schema{"type": []string{"object", "null"}, "additionalProperties": g.any(reflect.TypeFor[T](), f.element())}
}

// raw keeps any value undecoded.
type raw struct {
	node *node
}

func (r *raw) decode(_ *decoder, n *node, _ field) { r.node = n }
func (r *raw) schema(_ *generator, _ field) schema { return schema{} }

// custom is implemented by every type that decodes itself; its schema comes from the same type.
type custom interface {
	decode(d *decoder, n *node, f field)
	schema(g *generator, f field) schema
}

// field is what the decoder knows of the place it fills: its dotted path and the tags of its struct field.
type field struct {
	path string
	tag  reflect.StructTag
	bare bool // an element of the field's list or mapping: its doc is told once, outside
}

func (f field) element() field { return field{tag: f.tag, bare: true} }

func (f field) enum() []string {
	if e := f.tag.Get("enum"); e != "" {
		return strings.Split(e, ",")
	}
	return nil
}

// decoder fills shapes from nodes.
type decoder struct {
	report *Report
	dir    string   // what relative files are relative to
	blocks []string // the names an agent block under react may have
}

func (d *decoder) wrongType(n *node, f field, want string) {
	hint := ""
	switch {
	case n.kind == kindNull && strings.Contains(want, "list"):
		hint = "write [] for an empty list, or leave the key out"
	case n.kind == kindNull:
		hint = "leave the key out for the default"
	case want == boolWant:
		hint = "write true or false"
	}
	d.report.errorf(n.pos, hint, "%s is %s, not %s", f.path, n.describe(), want)
}

const boolWant = "a boolean"

// any fills v, which is a shape, a slice of shapes, a pointer to a shape, or a custom type.
func (d *decoder) any(n *node, v reflect.Value, f field) {
	if c, ok := v.Addr().Interface().(custom); ok {
		c.decode(d, n, f)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.any(n, v.Elem(), f)
	case reflect.Slice:
		d.slice(n, v, f)
	case reflect.Struct:
		d.object(n, v, f)
	default:
		panic("config: no decoder for " + v.Type().String())
	}
}

func (d *decoder) slice(n *node, v reflect.Value, f field) bool {
	if n.kind != kindList {
		d.wrongType(n, f, "a list")
		return false
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		f := f
		f.path = fmt.Sprintf("%s[%d]", f.path, i)
		d.any(item, v.Index(i), f)
	}
	return true
}

// object fills a struct shape. A null is an empty mapping: "main:" declares an agent without anything.
func (d *decoder) object(n *node, v reflect.Value, f field) {
	if p, ok := v.Addr().Interface().(interface{ setPos(Pos, bool) }); ok {
		p.setPos(n.pos, n.kind != kindMap && n.kind != kindNull)
	}
	if n.kind == kindNull {
		return
	}
	if n.kind != kindMap {
		d.wrongType(n, f, "a mapping")
		return
	}
	fields := shapeFields(v.Type())
	for _, e := range n.entries {
		sf, ok := fields[e.key]
		if !ok {
			d.unknownKey(e, f.path, fieldNames(fields))
			continue
		}
		d.any(e.value, v.FieldByIndex(sf.Index), field{path: join(f.path, e.key), tag: sf.Tag})
	}
}

func (d *decoder) unknownKey(e entry, path string, names []string) {
	where := ""
	if path != "" {
		where = " in " + path
	}
	d.report.errorf(e.pos, trait.DidYouMean(e.key, names), "unknown key %s%s", quote(e.key), where)
}

// shapeFields are the keys of a struct shape, embedded structs included.
func shapeFields(t reflect.Type) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	for _, sf := range reflect.VisibleFields(t) {
		if key := sf.Tag.Get("key"); key != "" {
			out[key] = sf
		}
	}
	return out
}

func fieldNames(fields map[string]reflect.StructField) []string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// value fills the inside of a val and reports whether it is usable.
func (d *decoder) value(n *node, v reflect.Value, f field) bool {
	before := len(d.report.Errors)
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = d.text(n, f)
	case *bool:
		*p = d.boolean(n, f)
	case *int:
		*p = d.integer(n, f)
	case *float64:
		*p = d.float(n, f)
	case *time.Duration:
		*p = d.duration(n, f)
	case *Secret:
		*p = d.secret(n, f)
	case custom:
		p.decode(d, n, f)
	default:
		if v.Kind() != reflect.Slice {
			panic("config: no value decoder for " + v.Type().String())
		}
		d.slice(n, v, f)
	}
	return len(d.report.Errors) == before
}

func (d *decoder) text(n *node, f field) string {
	if n.kind != kindString {
		d.wrongType(n, f, "a string")
		if n.kind == kindInt || n.kind == kindFloat || n.kind == kindBool {
			d.report.Errors[len(d.report.Errors)-1].Hint = "put it in quotes"
		}
		return ""
	}
	if values := f.enum(); values != nil && !slices.Contains(values, n.text) {
		d.report.errorf(n.pos, trait.DidYouMean(n.text, values), "%s cannot be %s", f.path, quote(n.text))
		return ""
	}
	if p := f.tag.Get("pattern"); p != "" && !regexp.MustCompile(p).MatchString(n.text) {
		d.report.errorf(n.pos, f.tag.Get("hint"), "%s cannot be %s", f.path, quote(n.text))
		return ""
	}
	if strings.TrimSpace(n.text) == "" && f.tag.Get("verbatim") == "" {
		d.report.errorf(n.pos, "leave the key out", "%s is empty", f.path)
		return ""
	}
	if f.tag.Get("verbatim") == "" && reference.MatchString(n.text) {
		d.report.warnf(n.pos, "references work in env, headers and api_key", "%s is taken as written: ${…} is not replaced here", f.path)
	}
	return n.text
}

func (d *decoder) boolean(n *node, f field) bool {
	if n.kind != kindBool || n.text != "true" && n.text != "false" {
		d.wrongType(n, f, boolWant)
		return false
	}
	return n.text == "true"
}

var plainInt = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,17})$`)

func (d *decoder) integer(n *node, f field) int {
	if n.kind != kindInt {
		d.wrongType(n, f, "a whole number")
		if n.kind == kindString && strings.Trim(n.text, "0123456789") == "" {
			d.report.Errors[len(d.report.Errors)-1].Hint = "the digits are in quotes, or too many"
		}
		return 0
	}
	if !plainInt.MatchString(n.text) {
		d.report.errorf(n.pos, "write plain decimal digits", "%s cannot be %s", f.path, n.text)
		return 0
	}
	i, _ := strconv.Atoi(n.text) // the pattern leaves nothing that fails
	bound(d, n, f, i, strconv.Atoi)
	return i
}

func (d *decoder) float(n *node, f field) float64 {
	if n.kind != kindInt && n.kind != kindFloat {
		d.wrongType(n, f, "a number")
		return 0
	}
	parse := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
	x, err := parse(n.text)
	if err != nil || x != x || x-x != 0 {
		d.report.errorf(n.pos, "write plain decimal digits", "%s cannot be %s", f.path, n.text)
		return 0
	}
	bound(d, n, f, x, parse)
	return x
}

func (d *decoder) duration(n *node, f field) time.Duration {
	if n.kind != kindString {
		d.wrongType(n, f, "a duration")
		d.report.Errors[len(d.report.Errors)-1].Hint = "write a number with a unit, as 10s or 500ms"
		return 0
	}
	t, err := time.ParseDuration(n.text)
	if err != nil {
		d.report.errorf(n.pos, "write a number with a unit, as 10s or 500ms", "%s cannot be %s", f.path, quote(n.text))
		return 0
	}
	bound(d, n, f, t, time.ParseDuration)
	return t
}

// bound checks a number against the tags min and max.
func bound[T cmp.Ordered](d *decoder, n *node, f field, v T, parse func(string) (T, error)) {
	low, high := f.tag.Get("min"), f.tag.Get("max")
	lowest, lowErr := parse(low)
	highest, highErr := parse(high)
	switch {
	case lowErr == nil && highErr == nil && (v < lowest || v > highest):
		d.report.errorf(n.pos, "", "%s is %s; it must be from %s to %s", f.path, n.text, low, high)
	case lowErr == nil && v < lowest:
		d.report.errorf(n.pos, "", "%s is %s; it must be at least %s", f.path, n.text, low)
	}
}

// secret reads any scalar as text. Its errors never show the value.
func (d *decoder) secret(n *node, f field) Secret {
	if n.kind == kindNull || n.kind == kindList || n.kind == kindMap {
		d.wrongType(n, f, "a string")
		return Secret{}
	}
	s, err := parseSecret(n.text, d.dir)
	if err != nil {
		d.report.errorf(n.pos, "write ${NAME} or file:PATH", "%s: %v", f.path, err)
		return Secret{}
	}
	s.inside().pos = n.pos
	return s
}

// plain turns a node into the values of encoding/json, for parsers that take those.
func (n *node) plain() any {
	switch n.kind {
	case kindNull:
		return nil
	case kindBool:
		return n.text == "true"
	case kindInt, kindFloat:
		if x, err := strconv.ParseFloat(n.text, 64); err == nil {
			return x
		}
		return n.text
	case kindList:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = item.plain()
		}
		return out
	case kindMap:
		out := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			out[e.key] = e.value.plain()
		}
		return out
	}
	return n.text
}
