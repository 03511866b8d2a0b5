package modelreq

import "slices"

// strictKeys are the keywords of OpenAI's strict subset that this package vouches for; the vendor may take more.
var strictKeys = []string{"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs", "description", "title", "pattern",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"}

// Limits of the strict subset, well within the vendor's.
const (
	strictDepth = 5
	strictProps = 100
	strictEnums = 500
)

// strict reports whether a schema is within the strict subset as it stands: every object closed, every property
// required, no keyword outside the subset. Making a schema strict would change what the tool is called with.
func strict(top map[string]any) bool {
	c := strictCheck{}
	return top["type"] == "object" && top["anyOf"] == nil && top["$ref"] == nil && c.ok(top, 1)
}

type strictCheck struct{ props, enums int }

func (c *strictCheck) ok(v any, depth int) bool {
	s, ok := v.(map[string]any)
	if !ok || depth > strictDepth {
		return false
	}
	for k := range s {
		if !slices.Contains(strictKeys, k) {
			return false
		}
	}
	if e, ok := s["enum"].([]any); ok {
		c.enums += len(e)
	}
	if !c.typed(s) || !c.object(s, depth) || c.enums > strictEnums {
		return false
	}
	if items, ok := s["items"]; ok && !c.ok(items, depth+1) {
		return false
	}
	if any, ok := s["anyOf"].([]any); ok {
		for _, b := range any {
			if !c.ok(b, depth+1) {
				return false
			}
		}
	}
	defs, _ := s["$defs"].(map[string]any)
	for _, d := range defs {
		if !c.ok(d, depth+1) {
			return false
		}
	}
	return true
}

// typed: a strict schema says what it is.
func (c *strictCheck) typed(s map[string]any) bool {
	switch t := s["type"].(type) {
	case nil:
		return s["anyOf"] != nil || s["$ref"] != nil || s["enum"] != nil || s["const"] != nil
	case string:
		return t != "array" || s["items"] != nil
	case []any:
		return len(t) > 0 && !slices.Contains(t, any("array")) && !slices.Contains(t, any("object"))
	}
	return false
}

func (c *strictCheck) object(s map[string]any, depth int) bool {
	if s["type"] != "object" {
		return s["properties"] == nil
	}
	props, ok := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	c.props += len(props)
	if !ok || s["additionalProperties"] != false || len(required) != len(props) || c.props > strictProps {
		return false
	}
	for name, p := range props {
		if !slices.Contains(required, any(name)) || !c.ok(p, depth+1) {
			return false
		}
	}
	return true
}
