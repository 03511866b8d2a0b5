package writ

import (
	"fmt"
	"strings"
)

// Strategy is the set of things a tool does to the agent's knowledge or to the world. It orders causality
// inside one round; it is no permission.
//
// The zero value is the safe one: nothing is known about the tool, so it runs alone (see [Strategy.List]).
type Strategy uint8

// The strategies of the article "Tool Traits: Tell the Runtime What a Tool Means".
const (
	Exploration  Strategy = 1 << iota // obtains information: search, read, inspect, fetch
	Exploitation                      // changes state or makes durable output: write, patch, delete, render
	Neutral                           // independent bookkeeping or detached scheduling
	Unknown                           // no precise strategy reached the runtime
)

var strategyNames = []struct {
	bit  Strategy
	name string
}{{Exploration, "exploration"}, {Exploitation, "exploitation"}, {Neutral, "neutral"}, {Unknown, "unknown"}}

// StrategyNames lists the values that a configuration may use, in catalog order.
func StrategyNames() []string {
	return []string{"exploration", "exploitation", "neutral", "unknown"}
}

// ParseStrategy reads one strategy name. Space around it and letter case do not matter.
func ParseStrategy(s string) (Strategy, bool) {
	s = strings.ToLower(strings.TrimSpace(s))
	for _, n := range strategyNames {
		if n.name == s {
			return n.bit, true
		}
	}
	return 0, false
}

// Has reports whether every strategy of t is in s. The empty set counts as {unknown}.
func (s Strategy) Has(t Strategy) bool { return s.norm()&t == t }

// Only reports whether s is exactly t.
func (s Strategy) Only(t Strategy) bool { return s.norm() == t }

func (s Strategy) norm() Strategy {
	if s == 0 {
		return Unknown
	}
	return s
}

// List returns the single strategies of the set in catalog order; never empty.
func (s Strategy) List() []Strategy {
	var out []Strategy
	for _, n := range strategyNames {
		if s.norm()&n.bit != 0 {
			out = append(out, n.bit)
		}
	}
	return out
}

// Names returns the names of the set in catalog order; never empty.
func (s Strategy) Names() []string {
	var out []string
	for _, n := range strategyNames {
		if s.norm()&n.bit != 0 {
			out = append(out, n.name)
		}
	}
	return out
}

// String is the form of the catalog: "exploration, exploitation".
func (s Strategy) String() string { return strings.Join(s.Names(), ", ") }

// Execution says when a complete call may start. The zero value means: after the generation, in its place.
// Each field has one recognised value today; a mapping rather than a boolean because each field is a promise
// of its own that a reviewer can check (the traits article, "Execution is about when a complete call may start").
type Execution struct {
	Trigger          string `json:"trigger,omitempty"`
	Concurrency      string `json:"concurrency,omitempty"`
	ResultDependency string `json:"result_dependency,omitempty"`
	Replay           string `json:"replay,omitempty"`
}

// EarlyProfile is the one profile that lets a purely neutral tool start while the model still streams.
var EarlyProfile = Execution{
	Trigger:          "tool_call_complete",
	Concurrency:      "parallel_with_generation",
	ResultDependency: "detached",
	Replay:           "at_most_once_per_round",
}

// IsZero reports whether no execution field was declared.
func (e Execution) IsZero() bool { return e == Execution{} }

// String is the form of the catalog: "trigger=…, concurrency=…, result_dependency=…, replay=…", absent fields left out.
func (e Execution) String() string {
	var b strings.Builder
	for _, f := range []struct{ k, v string }{{"trigger", e.Trigger}, {"concurrency", e.Concurrency},
		{"result_dependency", e.ResultDependency}, {"replay", e.Replay}} {
		if f.v == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s=%s", f.k, f.v)
	}
	return b.String()
}

// Effect says what may be repeated. Only the administrator's configuration or a Go registration can say anything
// but [EffectOnce]; never the tool itself.
type Effect uint8

// The effects, safest first.
const (
	EffectOnce       Effect = iota // the effect must not happen twice; a lost answer is indeterminate
	EffectIdempotent               // a repeat with the same key changes nothing more; a lost answer is still indeterminate
	EffectNone                     // nothing outside changes; a lost answer is failed(timeout)
)

// String returns "once", "idempotent" or "none".
func (e Effect) String() string {
	switch e {
	case EffectIdempotent:
		return "idempotent"
	case EffectNone:
		return "none"
	}
	return "once"
}

// ParseEffect reads an effect name. Space around it and letter case do not matter.
func ParseEffect(s string) (Effect, bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "once":
		return EffectOnce, true
	case "idempotent":
		return EffectIdempotent, true
	case "none":
		return EffectNone, true
	}
	return EffectOnce, false
}

// Traits is what one tool means, resolved: the one record that the catalog renders and the runtime enforces.
// The zero value is the safe one: unknown strategy, no early start, effect once.
type Traits struct {
	Strategy  Strategy
	Execution Execution
	Effect    Effect
	// StrategySource and ExecutionSource say where the value came from, for `writ check`:
	// "default", "declared" (the tool's own), "annotations", "config", or "config namespace NAME".
	StrategySource  string
	ExecutionSource string
}

// Early reports whether a complete call may start while the model still streams: strategy exactly neutral and
// the full profile, nothing less.
func (t Traits) Early() bool { return t.Strategy.Only(Neutral) && t.Execution == EarlyProfile }

// ScopeLines is the text the model's catalog and `writ check` both print for the traits.
func (t Traits) ScopeLines() []string {
	lines := []string{"- strategy: " + t.Strategy.String()}
	if !t.Execution.IsZero() {
		lines = append(lines, "- execution: "+t.Execution.String())
	}
	return lines
}

// DeclaredTraits is what a tool says about itself at its source: a Python decorator, a Go option, a static
// TOOL_SPEC or MCP `_meta`. Nil fields were not declared. It is the weakest source and never sets an effect.
type DeclaredTraits struct {
	Strategy  *Strategy
	Execution *Execution
}
