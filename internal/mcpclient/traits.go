package mcpclient

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"writ"
)

// ParseTraits reads a tool's own description of its meaning: {"strategy": [...], "execution": {...}}. It returns nil
// and the reason when a value is not one that exists: a tool that says something unintelligible counts as one that
// says nothing, which means the strategy unknown. Keys beside the two families are named in ignored.
func ParseTraits(raw json.RawMessage) (traits *writ.DeclaredTraits, ignored []string, err error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil || m == nil {
		return nil, nil, fmt.Errorf("tool_traits is no mapping: %.80q", raw)
	}
	out := &writ.DeclaredTraits{}
	for k, v := range m {
		switch strings.TrimSpace(k) {
		case "strategy":
			if out.Strategy, err = parseStrategy(v); err != nil {
				return nil, nil, err
			}
		case "execution":
			if out.Execution, err = parseExecution(v); err != nil {
				return nil, nil, err
			}
		default:
			ignored = append(ignored, k)
		}
	}
	slices.Sort(ignored)
	if out.Strategy == nil && out.Execution == nil {
		return nil, ignored, nil
	}
	return out, ignored, nil
}

// parseStrategy takes a list of names or one name. A list that holds anything precise drops "unknown"; an empty one
// is unknown.
func parseStrategy(raw json.RawMessage) (*writ.Strategy, error) {
	var names []string
	if startsWith(raw, '"') {
		names = make([]string, 1)
		if err := json.Unmarshal(raw, &names[0]); err != nil {
			return nil, fmt.Errorf("strategy: %w", err)
		}
	} else if err := json.Unmarshal(raw, &names); err != nil {
		return nil, fmt.Errorf("strategy must be a list of %s", strings.Join(writ.StrategyNames(), ", "))
	}
	var set writ.Strategy
	for _, n := range names {
		s, ok := writ.ParseStrategy(n)
		if !ok {
			return nil, fmt.Errorf("strategy %q is none of %s", n, strings.Join(writ.StrategyNames(), ", "))
		}
		set |= s
	}
	if precise := set &^ writ.Unknown; precise != 0 {
		set = precise
	}
	if set == 0 {
		set = writ.Unknown
	}
	return &set, nil
}

// parseExecution takes the four fields of the article, each with its one value.
func parseExecution(raw json.RawMessage) (*writ.Execution, error) {
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return nil, nil
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("execution must be a mapping of trigger, concurrency, result_dependency and replay")
	}
	var e writ.Execution
	fields := map[string]struct {
		to   *string
		want string
	}{
		"trigger":           {&e.Trigger, writ.EarlyProfile.Trigger},
		"concurrency":       {&e.Concurrency, writ.EarlyProfile.Concurrency},
		"result_dependency": {&e.ResultDependency, writ.EarlyProfile.ResultDependency},
		"replay":            {&e.Replay, writ.EarlyProfile.Replay},
	}
	for k, v := range m {
		f, ok := fields[strings.TrimSpace(k)]
		if !ok {
			return nil, fmt.Errorf("execution has no field %q", k)
		}
		s, ok := v.(string)
		if s = strings.ToLower(strings.TrimSpace(s)); !ok || s != f.want {
			return nil, fmt.Errorf("execution %s %v is not %q, the one value there is", k, v, f.want)
		}
		*f.to = s
	}
	return &e, nil
}
