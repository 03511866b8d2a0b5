package trait

import (
	"fmt"
	"slices"
	"strings"

	"writ"
)

// Problem is one thing wrong with a trait value. Key and Index say where inside the value: the field of a mapping and
// the element of a list; "" and -1 stand for the value itself.
type Problem struct {
	Key     string
	Index   int
	Message string
	Hint    string
}

// String is the message with its hint.
func (p Problem) String() string {
	if p.Hint == "" {
		return p.Message
	}
	return p.Message + " (hint: " + p.Hint + ")"
}

// ParseStrategy reads a strategy as configuration and tool descriptions write it: one name or a list of names (a
// string, []string or []any). Space around a name and letter case do not matter. With problems the result is the
// safe [writ.Unknown].
func ParseStrategy(value any) (writ.Strategy, []Problem) {
	items, ok := list(value)
	if !ok {
		return writ.Unknown, []Problem{{Index: -1,
			Message: fmt.Sprintf("strategy is a name or a list of names, not %s", describe(value)),
			Hint:    "one or more of " + strings.Join(writ.StrategyNames(), ", ")}}
	}
	if len(items) == 0 {
		return writ.Unknown, []Problem{{Index: -1, Message: "strategy is empty",
			Hint: "leave it out, or use one or more of " + strings.Join(writ.StrategyNames(), ", ")}}
	}
	var set writ.Strategy
	var problems []Problem
	for i, item := range items {
		s, isString := item.(string)
		if !isString {
			problems = append(problems, Problem{Index: i,
				Message: fmt.Sprintf("strategy name is %s, not a string", describe(item)),
				Hint:    "one of " + strings.Join(writ.StrategyNames(), ", ")})
			continue
		}
		one, isKnown := writ.ParseStrategy(s)
		if !isKnown {
			problems = append(problems, Problem{Index: i, Message: fmt.Sprintf("unknown strategy %q", s),
				Hint: DidYouMean(s, writ.StrategyNames())})
			continue
		}
		set |= one
	}
	if len(problems) > 0 {
		return writ.Unknown, problems
	}
	return set, nil
}

// list turns one value or a list into a list; a string is one item whole, commas included.
func list(value any) ([]any, bool) {
	switch v := value.(type) {
	case string:
		return []any{v}, true
	case []string:
		out := make([]any, len(v))
		for i, s := range v {
			out[i] = s
		}
		return out, true
	case []any:
		return v, true
	}
	return nil, false
}

// executionFields pairs each field of the profile with its address and its one value.
func executionFields(e *writ.Execution) []struct {
	key, value string
	into       *string
} {
	return []struct {
		key, value string
		into       *string
	}{
		{"trigger", writ.EarlyProfile.Trigger, &e.Trigger},
		{"concurrency", writ.EarlyProfile.Concurrency, &e.Concurrency},
		{"result_dependency", writ.EarlyProfile.ResultDependency, &e.ResultDependency},
		{"replay", writ.EarlyProfile.Replay, &e.Replay},
	}
}

// ExecutionFields lists the fields of an execution profile in catalog order.
func ExecutionFields() []string {
	var out []string
	for _, f := range executionFields(&writ.Execution{}) {
		out = append(out, f.key)
	}
	return out
}

// ParseExecution reads an execution mapping. A partial profile is legal and never starts a call early. Values are
// trimmed and lower-cased; fields are exact. With problems the result is the zero Execution.
func ParseExecution(m map[string]any) (writ.Execution, []Problem) {
	var e writ.Execution
	var problems []Problem
	for _, f := range executionFields(&e) {
		raw, set := m[f.key]
		if !set {
			continue
		}
		s, isString := raw.(string)
		if !isString {
			problems = append(problems, Problem{Key: f.key, Index: -1,
				Message: fmt.Sprintf("%s is %s, not a string", f.key, describe(raw)), Hint: "the one value is " + f.value})
			continue
		}
		if strings.ToLower(strings.TrimSpace(s)) != f.value {
			problems = append(problems, Problem{Key: f.key, Index: -1,
				Message: fmt.Sprintf("unknown %s %q", f.key, s), Hint: "the one value is " + f.value})
			continue
		}
		*f.into = f.value
	}
	for _, key := range sortedKeys(m) {
		if !slices.Contains(ExecutionFields(), key) {
			problems = append(problems, Problem{Key: key, Index: -1,
				Message: fmt.Sprintf("unknown execution field %q", key), Hint: DidYouMean(key, ExecutionFields())})
		}
	}
	if len(problems) > 0 {
		return writ.Execution{}, problems
	}
	return e, nil
}

// Partial reports whether an execution names some of the four fields but not all of them.
func Partial(e writ.Execution) bool { return !e.IsZero() && e != writ.EarlyProfile }

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// describe names the type of a decoded JSON or YAML value for a person.
func describe(v any) string {
	switch v.(type) {
	case nil:
		return "empty"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any, []string:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return "a number"
}
