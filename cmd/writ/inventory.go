package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"time"

	"writ"
	"writ/config"
	"writ/runtime"
	"writ/service"
	"writ/tool/python"
	"writ/trait"
)

// listed is a toolset that is only described: nothing of it runs. check and explain work on these.
type listed struct {
	specs    []writ.ToolSpec
	problems []writ.Problem
}

func (l listed) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	return l.specs, l.problems, nil
}

func (l listed) Call(context.Context, writ.Call) (writ.Result, error) {
	return writ.Result{}, fmt.Errorf("this listing runs nothing: %w", writ.ErrNotStarted)
}

func (l listed) Close() error { return nil }

// how a listing is made.
type listing struct {
	live       bool // ask MCP servers, which starts them
	importing  bool // import Python files, which runs them
	unprovided bool // list the callables of named services too, as explain does
}

// describe lists the tools of the agent's connections without running anybody's code, unless l says so.
func (a *app) describe(ctx context.Context, agent *config.Agent, l listing, log *slog.Logger) ([]runtime.Connection, []writ.Problem) {
	var out []runtime.Connection
	var problems []writ.Problem
	builtin := listed{specs: runtime.BuiltinTools()}
	out = append(out, runtime.Connection{Config: config.Connection{Alias: "react"}, Tools: builtin, Effects: runtime.BuiltinEffects()})
	for _, c := range agent.Connections {
		if !c.Active {
			if l.unprovided && c.Kind == config.KindNamedService {
				out = append(out, unprovided(c))
			}
			continue
		}
		set, err := a.describeOne(ctx, agent, c, l, log)
		if err != nil {
			problems = append(problems, writ.Problem{Tool: c.Alias, Message: err.Error()})
			continue
		}
		for _, p := range set.problems {
			if p.Tool != "" {
				p.Tool = c.Alias + "." + p.Tool
			} else {
				p.Tool = c.Alias
			}
			problems = append(problems, p)
		}
		set.problems = nil
		out = append(out, runtime.Connection{Config: c, Tools: set})
	}
	return out, problems
}

func (a *app) describeOne(ctx context.Context, agent *config.Agent, c config.Connection, l listing, log *slog.Logger) (listed, error) {
	switch {
	case c.Kind == config.KindPython && !l.importing:
		cfg, err := pythonConfig(c, log)
		if err != nil {
			cfg = python.Config{Alias: c.Alias, File: c.Ref, Interpreter: c.Interpreter, Log: log} // parsing needs no secret
		}
		specs, problems, err := python.Parse(ctx, cfg)
		if err == nil && len(specs) == 0 {
			problems = append(problems, writ.Problem{Message: "the file has no tools", Hint: "a tool is a function with the decorator @kernel_function (docs/tools.md)"})
		}
		return listed{specs, problems}, err
	case c.Kind == config.KindHTTP:
		c.Headers = nil // describing an API needs no credentials
		set, err := openTools(agent, c, log)
		if err != nil {
			return listed{}, err
		}
		specs, problems, err := set.Tools(ctx)
		return listed{specs, problems}, errors.Join(err, set.Close())
	case c.Kind == config.KindPython, c.Kind == config.KindMCP && l.live:
		set, err := openTools(agent, c, log)
		if err != nil {
			return listed{}, err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		specs, problems, err := set.Tools(ctx)
		return listed{specs, problems}, errors.Join(err, set.Close())
	}
	var out listed
	for _, name := range c.Allowed {
		out.specs = append(out.specs, writ.ToolSpec{Name: name})
	}
	return out, nil
}

// unprovided makes a named-service connection judgeable: its callables with the grammar's schemas.
func unprovided(c config.Connection) runtime.Connection {
	var ops []string
	all := false
	for _, ns := range c.Namespaces {
		ops = append(ops, ns.Allowed...)
		all = all || ns.AllowAll
	}
	c.Active, c.AllowAll = true, true
	return runtime.Connection{Config: c, Tools: listed{specs: service.ForOperations(ops, all)}}
}

// toolRow is one line of the inventory that check prints.
type toolRow struct {
	ID        string          `json:"id"`
	Kind      string          `json:"kind"`
	Strategy  []string        `json:"strategy"`
	Execution *writ.Execution `json:"execution"`
	Early     bool            `json:"early"`
	Effect    string          `json:"effect"`
	Source    string          `json:"source"`
	Active    bool            `json:"active"`
	Reason    string          `json:"reason,omitempty"`

	traits     writ.Traits
	namespaces map[string]writ.Traits
}

func rowOf(id, kind string, t writ.Traits, active bool, reason string) toolRow {
	r := toolRow{ID: id, Kind: kind, Strategy: t.Strategy.Names(), Early: t.Early() && active, Effect: t.Effect.String(), Source: source(t), Active: active, Reason: reason, traits: t}
	if !t.Execution.IsZero() {
		e := t.Execution
		r.Execution = &e
	}
	return r
}

func source(t writ.Traits) string {
	if t.ExecutionSource != "" && t.ExecutionSource != "default" && t.ExecutionSource != t.StrategySource {
		return t.StrategySource + "; execution: " + t.ExecutionSource
	}
	return t.StrategySource
}

// inventory is everything the agent names, active or not, sorted by id.
func inventory(agent *config.Agent, built *runtime.Agent) []toolRow {
	var rows []toolRow
	seen := map[string]bool{}
	add := func(r toolRow) {
		if !seen[r.ID] {
			seen[r.ID] = true
			rows = append(rows, r)
		}
	}
	kinds := map[string]string{"react": "builtin"}
	for _, c := range agent.Connections {
		kinds[c.Alias] = string(c.Kind)
	}
	for _, t := range built.Tools() {
		r := rowOf(t.ID, kinds[t.Alias()], t.Traits, true, "")
		r.namespaces = t.Namespaces
		add(r)
	}
	for _, c := range agent.Connections {
		specs := named(c)
		for _, spec := range specs {
			active, reason := c.ToolActive(spec.Name)
			if c.Kind == config.KindNamedService {
				active, reason = false, c.Reason
			}
			if active && (c.Kind == config.KindPython || c.Kind == config.KindHTTP) {
				active, reason = false, "its source has no such tool" // a tool that was found has been added above
			}
			r := rowOf(c.Alias+"."+spec.Name, string(c.Kind), c.TraitsOf(spec, writ.EffectOnce), active, reason)
			if c.Kind == config.KindNamedService {
				r.namespaces = namespaceTraits(c, spec)
			}
			add(r)
		}
		if c.AllowAll && c.Kind != config.KindNamedService && !anyOf(rows, c.Alias) {
			active := c.Active
			add(rowOf(c.Alias+".*", string(c.Kind), c.TraitsOf(writ.ToolSpec{Name: trait.Any}, writ.EffectOnce), active, c.Reason))
		}
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].ID < rows[j].ID })
	return rows
}

func anyOf(rows []toolRow, alias string) bool {
	for _, r := range rows {
		if len(r.ID) > len(alias) && r.ID[:len(alias)+1] == alias+"." {
			return true
		}
	}
	return false
}

// named lists what a connection names in its configuration.
func named(c config.Connection) []writ.ToolSpec {
	if c.Kind == config.KindNamedService {
		u := unprovided(c)
		specs, _, _ := u.Tools.Tools(context.Background()) // a listing cannot fail
		return specs
	}
	var out []writ.ToolSpec
	for _, name := range c.Allowed {
		out = append(out, writ.ToolSpec{Name: name})
	}
	return out
}

func namespaceTraits(c config.Connection, spec writ.ToolSpec) map[string]writ.Traits {
	out := map[string]writ.Traits{}
	for name, ns := range c.Namespaces {
		if len(ns.Traits) > 0 {
			out[name] = trait.ForNamespace(name, ns.Traits, spec.Declared, spec.Hints, c.TrustAnnotations, c.Traits, spec.Name, writ.EffectOnce)
		}
	}
	return out
}
