package http

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// maxSchemaDepth bounds the nesting of one schema between two references.
const maxSchemaDepth = 64

// object is a JSON object on its way to be encoded.
type object = map[string]any

// schemas turns the schemas of one operation into JSON Schema 2020-12. What the document refers to becomes a
// definition, so that cycles stay cycles.
type schemas struct {
	defs   object
	names  map[*openapi3.Schema]string
	loose  []string // what the schema cannot say here, for a problem
	strip  bool     // leave out what is readOnly: the value is for a request
	levels int
}

func newSchemas() *schemas {
	return &schemas{defs: object{}, names: map[*openapi3.Schema]string{}, strip: true}
}

var unsafeDef = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// of is the schema behind a reference, or in place.
func (c *schemas) of(ref *openapi3.SchemaRef) (any, error) {
	switch {
	case ref == nil:
		return true, nil
	case ref.Value == nil:
		return nil, fmt.Errorf("its schema refers to %.200q, which is not there", ref.Ref)
	case ref.Ref == "":
		return c.inline(ref.Value)
	}
	name, ok := c.names[ref.Value]
	if !ok {
		name = c.free(unsafeDef.ReplaceAllString(path.Base(ref.Ref), "_"))
		c.names[ref.Value] = name
		c.defs[name] = true // taken
		levels := c.levels
		c.levels = 0
		def, err := c.inline(ref.Value)
		if err != nil {
			return nil, err
		}
		c.levels = levels
		c.defs[name] = def
	}
	return object{"$ref": "#/$defs/" + name}, nil
}

func (c *schemas) free(name string) string {
	if name = strings.TrimPrefix(name, "#"); name == "" {
		name = "schema"
	}
	for i := 1; ; i++ {
		try := name
		if i > 1 {
			try += "_" + strconv.Itoa(i)
		}
		if _, taken := c.defs[try]; !taken {
			return try
		}
	}
}

var errDynamic = errors.New("its schema uses $dynamicRef or an $id of its own")

func (c *schemas) inline(s *openapi3.Schema) (any, error) {
	if s.Always != nil {
		return *s.Always, nil
	}
	if s.DynamicRef != "" || s.SchemaID != "" {
		return nil, errDynamic
	}
	if c.levels++; c.levels > maxSchemaDepth {
		return nil, fmt.Errorf("its schema nests deeper than %d levels", maxSchemaDepth)
	}
	defer func() { c.levels-- }()
	m := object{}
	if err := c.words(s, m); err != nil {
		return nil, err
	}
	if err := c.children(s, m); err != nil {
		return nil, err
	}
	if s.Nullable {
		return nullable(m), nil
	}
	return m, nil
}

// words are the keywords without schemas in them.
func (c *schemas) words(s *openapi3.Schema, m object) error {
	if s.Type != nil {
		for _, typ := range *s.Type {
			if !slices.Contains(types, typ) {
				return fmt.Errorf("its schema has the type %.40q, which does not exist", typ)
			}
		}
		switch list := *s.Type; len(list) {
		case 0:
		case 1:
			m["type"] = list[0]
		default:
			m["type"] = slices.Clone([]string(list))
		}
	}
	set := func(key string, value string) {
		if value != "" {
			m[key] = value
		}
	}
	set("title", s.Title)
	set("description", s.Description)
	set("format", s.Format)
	set("contentMediaType", s.ContentMediaType)
	set("contentEncoding", s.ContentEncoding)
	if s.Pattern != "" {
		// ECMA-262 has expressions that the validator has not; the service checks those itself.
		if _, err := regexp.Compile(s.Pattern); err == nil {
			m["pattern"] = s.Pattern
		} else {
			c.loose = append(c.loose, "the pattern "+strconv.Quote(s.Pattern))
		}
	}
	if len(s.Enum) > 0 {
		m["enum"] = s.Enum
	}
	if s.Const != nil {
		m["const"] = s.Const
	}
	if s.Default != nil {
		m["default"] = s.Default
	}
	if examples := s.Examples; len(examples) > 0 {
		m["examples"] = examples
	} else if s.Example != nil {
		m["examples"] = []any{s.Example}
	}
	if s.Deprecated {
		m["deprecated"] = true
	}
	numbers(s, m)
	counts(s, m)
	if len(s.DependentRequired) > 0 {
		m["dependentRequired"] = s.DependentRequired
	}
	return nil
}

// types are those of JSON Schema.
var types = []string{"null", "boolean", "object", "array", "number", "string", "integer"}

// numbers also turns the boolean bounds of 3.0 into the numeric ones of JSON Schema.
func numbers(s *openapi3.Schema, m object) {
	if s.Min != nil {
		m["minimum"] = *s.Min
	}
	if s.Max != nil {
		m["maximum"] = *s.Max
	}
	if s.MultipleOf != nil {
		m["multipleOf"] = *s.MultipleOf
	}
	for _, b := range []struct {
		bound     openapi3.ExclusiveBound
		key, from string
	}{{s.ExclusiveMin, "exclusiveMinimum", "minimum"}, {s.ExclusiveMax, "exclusiveMaximum", "maximum"}} {
		switch {
		case b.bound.Value != nil:
			m[b.key] = *b.bound.Value
		case b.bound.Bool != nil && *b.bound.Bool && m[b.from] != nil:
			m[b.key] = m[b.from]
			delete(m, b.from)
		}
	}
}

func counts(s *openapi3.Schema, m object) {
	least := func(key string, n uint64) {
		if n > 0 {
			m[key] = n
		}
	}
	least("minLength", s.MinLength)
	least("minItems", s.MinItems)
	least("minProperties", s.MinProps)
	most := func(key string, n *uint64) {
		if n != nil {
			m[key] = *n
		}
	}
	most("maxLength", s.MaxLength)
	most("maxItems", s.MaxItems)
	most("maxProperties", s.MaxProps)
	most("minContains", s.MinContains)
	most("maxContains", s.MaxContains)
	if s.UniqueItems {
		m["uniqueItems"] = true
	}
}

// children are the keywords with schemas in them.
func (c *schemas) children(s *openapi3.Schema, m object) error {
	for key, ref := range map[string]*openapi3.SchemaRef{
		"not": s.Not, "items": s.Items, "contains": s.Contains, "propertyNames": s.PropertyNames,
		"if": s.If, "then": s.Then, "else": s.Else, "contentSchema": s.ContentSchema,
	} {
		if ref == nil {
			continue
		}
		v, err := c.of(ref)
		if err != nil {
			return err
		}
		m[key] = v
	}
	for key, list := range map[string]openapi3.SchemaRefs{
		"oneOf": s.OneOf, "anyOf": s.AnyOf, "allOf": s.AllOf, "prefixItems": s.PrefixItems,
	} {
		var out []any
		for _, ref := range list {
			v, err := c.of(ref)
			if err != nil {
				return err
			}
			out = append(out, v)
		}
		if out != nil {
			m[key] = out
		}
	}
	for key, set := range map[string]openapi3.Schemas{
		"patternProperties": s.PatternProperties, "dependentSchemas": s.DependentSchemas,
	} {
		if err := c.named(key, set, m); err != nil {
			return err
		}
	}
	for key, b := range map[string]openapi3.BoolSchema{
		"additionalProperties": s.AdditionalProperties, "unevaluatedItems": s.UnevaluatedItems,
		"unevaluatedProperties": s.UnevaluatedProperties,
	} {
		switch {
		case b.Has != nil:
			m[key] = *b.Has
		case b.Schema != nil:
			v, err := c.of(b.Schema)
			if err != nil {
				return err
			}
			m[key] = v
		}
	}
	return c.properties(s, m)
}

func (c *schemas) named(key string, set openapi3.Schemas, m object) error {
	if len(set) == 0 {
		return nil
	}
	out := object{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if key == "patternProperties" {
			if _, err := regexp.Compile(name); err != nil {
				return fmt.Errorf("its schema has a pattern that cannot be checked: %.100q", name)
			}
		}
		v, err := c.of(set[name])
		if err != nil {
			return err
		}
		out[name] = v
	}
	m[key] = out
	return nil
}

// properties leaves out what only the service may say: a request must not carry what is readOnly.
func (c *schemas) properties(s *openapi3.Schema, m object) error {
	props := openapi3.Schemas{}
	var hidden []string
	for name, ref := range s.Properties {
		if c.strip && ref != nil && ref.Value != nil && ref.Value.ReadOnly {
			hidden = append(hidden, name)
			continue
		}
		props[name] = ref
	}
	if err := c.named("properties", props, m); err != nil {
		return err
	}
	var required []string
	for _, name := range s.Required {
		if !slices.Contains(hidden, name) && !slices.Contains(required, name) {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		m["required"] = required
	}
	return nil
}

// nullable lets null in, as OpenAPI 3.0 says it.
func nullable(m object) any {
	typ, plain := m["type"].(string)
	composed := false
	for _, key := range []string{"allOf", "oneOf", "anyOf", "not", "const", "if"} {
		if _, ok := m[key]; ok {
			composed = true
		}
	}
	if !plain || composed {
		return object{"anyOf": []any{m, object{"type": "null"}}}
	}
	m["type"] = []string{typ, "null"}
	if enum, ok := m["enum"].([]any); ok && !slices.Contains(enum, nil) {
		m["enum"] = append(slices.Clone(enum), nil)
	}
	return m
}
