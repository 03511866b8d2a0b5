// Package trait resolves what a tool means. Several parties may speak about one tool: its own source, an MCP server's
// annotations, the administrator's configuration. This package turns them into the one record that the catalog
// renders and the runtime enforces, and remembers which party each value came from. It does no I/O.
package trait

import "writ"

// Any is the configuration key that stands for every callable of a connection.
const Any = "*"

// Config is what configuration says of one callable, or of [Any]. A nil field says nothing.
type Config struct {
	Strategy  *writ.Strategy
	Execution *writ.Execution
	Effect    *writ.Effect
}

// Sources of a value, as [writ.Traits] names them.
const (
	SourceDefault     = "default"
	SourceAnnotations = "annotations"
	SourceDeclared    = "declared"
	SourceConfig      = "config"
	sourceNamespace   = "config namespace "
)

// Resolve returns the traits of the callable name. The sources, weakest first, each replacing single keys of the one
// before: annotations, only where the administrator trusts them (read-only means exploration, anything else
// exploitation); what the tool declares; configs[Any]; configs[name].
//
// The keys of configs are unqualified callable names. effect is the effect of a Go registration, or the zero value;
// only configs can change it, never the tool itself.
func Resolve(declared *writ.DeclaredTraits, hints *writ.ToolHints, trustAnnotations bool,
	configs map[string]Config, name string, effect writ.Effect) writ.Traits {
	t := intrinsic(declared, hints, trustAnnotations, effect)
	return apply(t, configs, name, SourceConfig)
}

// ForNamespace is [Resolve] for a call whose namespace argument selects the namespace called namespace, with own as
// that namespace's tool_traits. If own speaks of the callable, by name or by [Any], it replaces what the connection
// says of it, whole; otherwise the connection's configuration stands.
func ForNamespace(namespace string, own map[string]Config, declared *writ.DeclaredTraits, hints *writ.ToolHints,
	trustAnnotations bool, configs map[string]Config, name string, effect writ.Effect) writ.Traits {
	_, general := own[Any]
	_, exact := own[name]
	if !general && !exact {
		return Resolve(declared, hints, trustAnnotations, configs, name, effect)
	}
	t := intrinsic(declared, hints, trustAnnotations, effect)
	return apply(t, own, name, sourceNamespace+namespace)
}

// intrinsic is what is known without configuration.
func intrinsic(declared *writ.DeclaredTraits, hints *writ.ToolHints, trust bool, effect writ.Effect) writ.Traits {
	t := writ.Traits{
		Strategy: writ.Unknown, Effect: effect,
		StrategySource: SourceDefault, ExecutionSource: SourceDefault,
	}
	if hints != nil && trust {
		t.Strategy, t.StrategySource = writ.Exploitation, SourceAnnotations
		if hints.ReadOnly {
			t.Strategy = writ.Exploration
		}
	}
	if declared != nil && declared.Strategy != nil {
		t.Strategy, t.StrategySource = known(*declared.Strategy), SourceDeclared
	}
	if declared != nil && declared.Execution != nil {
		t.Execution, t.ExecutionSource = *declared.Execution, SourceDeclared
	}
	return t
}

// apply lays the general entry and then the exact one over t.
func apply(t writ.Traits, configs map[string]Config, name, source string) writ.Traits {
	c := Merged(configs, name)
	if c.Strategy != nil {
		t.Strategy, t.StrategySource = known(*c.Strategy), source
	}
	if c.Execution != nil {
		t.Execution, t.ExecutionSource = *c.Execution, source
	}
	if c.Effect != nil {
		t.Effect = *c.Effect
	}
	return t
}

// Merged is what configs says of the callable name alone: the entry of [Any] with each key replaced that the exact
// entry sets.
func Merged(configs map[string]Config, name string) Config {
	c := configs[Any]
	if name == Any {
		return c
	}
	exact := configs[name]
	if exact.Strategy != nil {
		c.Strategy = exact.Strategy
	}
	if exact.Execution != nil {
		c.Execution = exact.Execution
	}
	if exact.Effect != nil {
		c.Effect = exact.Effect
	}
	return c
}

// known spells the empty set out, so that two records which mean the same are equal.
func known(s writ.Strategy) writ.Strategy {
	if s == 0 {
		return writ.Unknown
	}
	return s
}
