package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// schema is one JSON Schema object.
type schema map[string]any

// Schema is the JSON Schema (draft 2020-12) of a configuration file, for editors. It comes from the types that the
// loader decodes into. It knows shapes only: names, references, files and the compatibility of keys are checked by
// the loader alone, and enumerated values are in lower case where the loader takes any case.
func Schema() []byte {
	g := &generator{defs: schema{}}
	root := g.object(reflect.TypeFor[fileShape]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Writ configuration"
	root["$defs"] = g.defs
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("config: the schema of the shapes is no JSON: %v", err)) // only a mistake in a shape
	}
	return append(out, '\n')
}

// generator collects the definitions of named shapes, so that a shape used twice is written once.
type generator struct {
	defs schema
}

// any is the schema of a type that decoder.any fills.
func (g *generator) any(t reflect.Type, f field) schema {
	if c, ok := reflect.New(t).Interface().(custom); ok {
		return describeField(c.schema(g, f), f)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.any(t.Elem(), f)
	case reflect.Slice:
		return describeField(schema{"type": "array", "items": g.any(t.Elem(), f.element())}, f)
	case reflect.Struct:
		return g.ref(t)
	}
	panic("config: no schema for " + t.String())
}

// ref is a reference to the definition of a struct shape.
func (g *generator) ref(t reflect.Type) schema {
	name := strings.TrimSuffix(t.Name(), "Shape")
	if _, ok := g.defs[name]; !ok {
		g.defs[name] = schema{} // breaks recursion
		g.defs[name] = g.object(t)
	}
	return schema{"$ref": "#/$defs/" + name}
}

func (g *generator) object(t reflect.Type) schema {
	properties := schema{}
	for key, sf := range shapeFields(t) {
		properties[key] = g.any(sf.Type, field{path: key, tag: sf.Tag})
	}
	return schema{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
}

// value is the schema of the inside of a val.
func (g *generator) value(t reflect.Type, f field) schema {
	if c, ok := reflect.New(t).Interface().(custom); ok {
		return c.schema(g, f)
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return schema{"type": "string", "pattern": `^[+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))*$`}
	case reflect.TypeFor[Secret]():
		return schema{"type": []string{"string", "number", "boolean"}}
	}
	switch t.Kind() {
	case reflect.String:
		return stringSchema(f)
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int:
		return bounded(schema{"type": "integer"}, f)
	case reflect.Float64:
		return bounded(schema{"type": "number"}, f)
	case reflect.Slice:
		return schema{"type": "array", "items": g.any(t.Elem(), f.element())}
	}
	panic("config: no schema for value " + t.String())
}

func stringSchema(f field) schema {
	s := schema{"type": "string"}
	if values := f.enum(); values != nil {
		s["enum"] = values
	} else if p := f.tag.Get("pattern"); p != "" {
		s["pattern"] = p
	} else if f.tag.Get("verbatim") == "" {
		s["pattern"] = `\S`
	}
	return s
}

func bounded(s schema, f field) schema {
	if n, err := strconv.ParseFloat(f.tag.Get("min"), 64); err == nil {
		s["minimum"] = n
	}
	if n, err := strconv.ParseFloat(f.tag.Get("max"), 64); err == nil {
		s["maximum"] = n
	}
	return s
}

// describeField adds what an editor shows. A default is told in words: it may be one that depends on other keys.
func describeField(s schema, f field) schema {
	if f.bare {
		return s
	}
	doc := f.tag.Get("doc")
	if d := f.tag.Get("default"); d != "" {
		doc = strings.TrimSuffix(doc, ".") + ". Default: " + d + "."
	}
	if doc != "" {
		s["description"] = doc
	}
	return s
}
