package trait

import (
	"encoding/json"
	"fmt"
	"slices"

	"writ"
)

// Spec is the static description of a tool (TOOL_SPEC in the traits article): the mapping that a built-in carries in
// place of a decorator. Its JSON form has the keys id, purpose, params and tool_traits.
type Spec struct {
	ID      string
	Purpose string
	Params  json.RawMessage // JSON Schema of the parameters; nil when the spec names none
	Traits  *writ.DeclaredTraits
}

type specJSON struct {
	ID      string          `json:"id"`
	Purpose string          `json:"purpose,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Traits  json.RawMessage `json:"tool_traits,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s Spec) MarshalJSON() ([]byte, error) {
	traits, err := FormatDeclared(s.Traits)
	if err != nil {
		return nil, err
	}
	return json.Marshal(specJSON{s.ID, s.Purpose, s.Params, traits})
}

// ParseSpec reads a TOOL_SPEC. Catalog fields other than the four are allowed and dropped. Problems concern the
// traits alone: the tool is usable, and its traits are [writ.Unknown]. The error means that data is no spec.
func ParseSpec(data []byte) (Spec, []Problem, error) {
	var raw specJSON
	if err := json.Unmarshal(data, &raw); err != nil {
		return Spec{}, nil, fmt.Errorf("trait: reading a tool spec: %w", err)
	}
	if raw.ID == "" {
		return Spec{}, nil, fmt.Errorf("trait: reading a tool spec: no id")
	}
	s := Spec{ID: raw.ID, Purpose: raw.Purpose, Params: raw.Params}
	if len(raw.Traits) == 0 {
		return s, nil, nil
	}
	var problems []Problem
	s.Traits, problems = ParseDeclared(raw.Traits)
	return s, problems, nil
}

// declaredKeys are the trait families that a tool may speak of.
var declaredKeys = []string{"strategy", "execution"}

// ParseDeclared reads the tool_traits mapping by which a tool describes itself at run time: JSON of a TOOL_SPEC, a
// Python decorator or MCP _meta. It never fails: with any problem the whole declaration counts as unknown, which
// lets the tool run, alone. null declares nothing.
func ParseDeclared(data json.RawMessage) (*writ.DeclaredTraits, []Problem) {
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		return unknownTraits(), []Problem{{Index: -1, Message: "tool_traits is not a mapping",
			Hint: "write {strategy: [...], execution: {...}}"}}
	}
	if m == nil {
		return nil, nil
	}
	var d writ.DeclaredTraits
	var problems []Problem
	if v, ok := m["strategy"]; ok {
		s, ps := ParseStrategy(v)
		d.Strategy, problems = &s, append(problems, under("strategy", ps)...)
	}
	if v, ok := m["execution"]; ok {
		if em, isMap := v.(map[string]any); isMap {
			e, ps := ParseExecution(em)
			d.Execution, problems = &e, append(problems, under("execution", ps)...)
		} else {
			problems = append(problems, Problem{Key: "execution", Index: -1,
				Message: "execution is " + describe(v) + ", not a mapping"})
		}
	}
	for _, key := range sortedKeys(m) {
		switch {
		case slices.Contains(declaredKeys, key):
		case key == "effect":
			problems = append(problems, Problem{Key: key, Index: -1, Message: "a tool cannot declare its own effect",
				Hint: "the administrator says it under tool_traits of the connection"})
		default:
			problems = append(problems, Problem{Key: key, Index: -1,
				Message: fmt.Sprintf("unknown trait %q", key), Hint: DidYouMean(key, declaredKeys)})
		}
	}
	if len(problems) > 0 {
		return unknownTraits(), problems
	}
	return &d, nil
}

// under prefixes the place of problems with the key of the value they were found in.
func under(key string, problems []Problem) []Problem {
	for i := range problems {
		if problems[i].Key == "" {
			problems[i].Key = key
		} else {
			problems[i].Key = key + "." + problems[i].Key
		}
	}
	return problems
}

// unknownTraits is a declaration that could not be read: nothing is known, nothing starts early.
func unknownTraits() *writ.DeclaredTraits {
	s, e := writ.Unknown, writ.Execution{}
	return &writ.DeclaredTraits{Strategy: &s, Execution: &e}
}

// FormatDeclared is the inverse of [ParseDeclared]: the tool_traits mapping as JSON, or nil for nil.
func FormatDeclared(d *writ.DeclaredTraits) (json.RawMessage, error) {
	if d == nil {
		return nil, nil
	}
	var out struct {
		Strategy  []string        `json:"strategy,omitempty"`
		Execution *writ.Execution `json:"execution,omitempty"`
	}
	if d.Strategy != nil {
		out.Strategy = d.Strategy.Names()
	}
	out.Execution = d.Execution
	return json.Marshal(out)
}
