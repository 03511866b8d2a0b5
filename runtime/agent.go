package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strings"

	"writ"
	"writ/config"
	"writ/internal/overseer"
	"writ/internal/prompt"
	"writ/internal/schema"
	"writ/internal/workspace"
	"writ/participant"
	"writ/trait"
)

// Connection is an opened tool connection with the configuration that governs it.
type Connection struct {
	Config config.Connection
	Tools  writ.Toolset
	// Effects are a Go registration's own effects, by tool name.
	Effects map[string]writ.Effect
	// Pins are the accepted definitions, by tool name (writ.ToolSpec.Definition). Nil means that the connection is not
	// pinned; otherwise a tool whose definition changed, or is new, is left out until it is accepted.
	Pins map[string]string
}

// Agent is one declared agent with its tools, built for one turn and immutable: the kit that the prompt renders and
// the dispatcher enforces.
type Agent struct {
	Config *config.Agent
	// Problems are tools and connections that cannot be used, and why.
	Problems []writ.Problem

	tools    map[string]*Tool
	ids      []string          // sorted
	byVendor map[string]string // vendor-safe name → tool id
	kit      prompt.Kit
	schemas  *schema.Cache
}

// Tool is one callable of an agent, resolved.
type Tool struct {
	ID         string
	Spec       writ.ToolSpec
	Traits     writ.Traits
	Namespaces map[string]writ.Traits
	Paths      writ.ToolPaths
	Targets    []string
	Limits     config.Limits
	Approval   config.ApprovalMode
	Vendor     string

	alias   string
	set     writ.Toolset
	schema  *schema.Schema
	targets []participant.Template
	builtin bool
}

// Build lists the tools of the connections and resolves what each means. A connection or tool that cannot be used is
// left out and named in Problems; it never takes others down. Same inputs, same kit, byte for byte.
func Build(ctx context.Context, cfg *config.Agent, conns []Connection) (*Agent, error) {
	return build(ctx, cfg, conns, &schema.Cache{})
}

func build(ctx context.Context, cfg *config.Agent, conns []Connection, schemas *schema.Cache) (*Agent, error) {
	a := &Agent{Config: cfg, tools: map[string]*Tool{}, byVendor: map[string]string{}, schemas: schemas}
	conns = slices.Clone(conns)
	sort.SliceStable(conns, func(i, j int) bool { return conns[i].Config.Alias < conns[j].Config.Alias })
	for i := range conns {
		specs, problems, err := conns[i].Tools.Tools(ctx)
		alias := conns[i].Config.Alias
		for _, p := range problems {
			p.Tool = strings.TrimSuffix(alias+"."+p.Tool, ".")
			a.Problems = append(a.Problems, p)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("runtime: listing tools of %s: %w", alias, err)
			}
			a.Problems = append(a.Problems, writ.Problem{Tool: alias, Message: err.Error()})
			continue
		}
		for _, spec := range specs {
			a.add(&conns[i], spec)
		}
	}
	sort.Strings(a.ids)
	a.nameForVendors()
	a.render()
	return a, nil
}

func (a *Agent) add(c *Connection, spec writ.ToolSpec) {
	id := c.Config.Alias + "." + spec.Name
	builtin := c.Config.Kind == ""
	if !builtin {
		if ok, why := c.Config.ToolActive(spec.Name); !ok {
			if c.Config.Allows(spec.Name) {
				a.Problems = append(a.Problems, writ.Problem{Tool: id, Message: why})
			}
			return
		}
	}
	if why := c.unpinned(spec); why != "" {
		a.Problems = append(a.Problems, writ.Problem{Tool: id, Message: why, Hint: "look at it, then accept it with writ check --live --accept"})
		return
	}
	if a.tools[id] != nil {
		a.Problems = append(a.Problems, writ.Problem{Tool: id, Message: "a second tool has this id; the first one stands"})
		return
	}
	schema, err := a.schemas.Schema(spec.Schema)
	if err != nil {
		a.Problems = append(a.Problems, writ.Problem{Tool: id, Message: "its schema cannot be used: " + err.Error()})
		return
	}
	t := &Tool{ID: id, Spec: spec, Paths: spec.Paths, alias: c.Config.Alias, set: c.Tools, schema: schema, builtin: builtin}
	t.Traits = trait.Resolve(spec.Declared, nil, false, nil, spec.Name, c.Effects[spec.Name])
	t.Limits.Timeout = a.Config.ToolTimeout
	if !builtin {
		t.Traits = c.Config.TraitsOf(spec, c.Effects[spec.Name])
		t.Limits = c.Config.LimitsFor(spec.Name)
		t.Approval = c.Config.ApprovalFor(spec.Name)
		p := c.Config.Paths[spec.Name]
		t.Paths.Reads, t.Paths.Writes = append(t.Paths.Reads, p.Reads...), append(t.Paths.Writes, p.Writes...)
		t.Targets = c.Config.Targets[spec.Name]
		t.Namespaces = namespaces(&c.Config, spec)
	}
	for _, text := range t.Targets {
		target, err := participant.ParseTarget(text)
		if err != nil { // the configuration has been checked; a Go program's may not have been
			a.Problems = append(a.Problems, writ.Problem{Tool: id, Message: err.Error()})
			return
		}
		t.targets = append(t.targets, target)
	}
	a.tools[id] = t
	a.ids = append(a.ids, id)
}

func (c *Connection) unpinned(spec writ.ToolSpec) string {
	switch {
	case c.Pins == nil || spec.Definition == "" || c.Pins[spec.Name] == spec.Definition:
		return ""
	case c.Pins[spec.Name] == "":
		return "it is new since the connection's tools were accepted"
	}
	return "its definition changed since it was accepted"
}

// namespaces resolves the traits that a call's namespace argument selects; nil for a tool without namespaces.
func namespaces(c *config.Connection, spec writ.ToolSpec) map[string]writ.Traits {
	if len(c.Namespaces) == 0 {
		return nil
	}
	out := map[string]writ.Traits{}
	for ns, n := range c.Namespaces {
		out[strings.ToLower(ns)] = trait.ForNamespace(ns, n.Traits, spec.Declared, spec.Hints, c.TrustAnnotations, c.Traits, spec.Name, writ.EffectOnce)
	}
	return out
}

// Tools lists the tools by id.
func (a *Agent) Tools() []*Tool {
	out := make([]*Tool, len(a.ids))
	for i, id := range a.ids {
		out[i] = a.tools[id]
	}
	return out
}

// nameForVendors gives each tool a name that every provider takes: letters, digits, "_" and "-", at most 64. The
// mapping is reversible: names that would collide or be cut carry a digest of the id.
func (a *Agent) nameForVendors() {
	for _, id := range a.ids {
		var b strings.Builder
		changed := false
		for _, r := range id {
			switch {
			case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-':
				b.WriteRune(r)
			case r == '.':
				b.WriteString("__")
			default:
				b.WriteByte('_')
				changed = true
			}
		}
		name := b.String()
		if _, taken := a.byVendor[name]; taken || changed || len(name) > 64 {
			sum := sha256.Sum256([]byte(id))
			name = name[:min(len(name), 53)] + "_" + hex.EncodeToString(sum[:5])
		}
		a.tools[id].Vendor = name
		a.byVendor[name] = id
	}
}

// toolID turns the name a model used into a tool id; a name that is nobody's stays as it is and is an unknown tool.
func (a *Agent) toolID(name string) string {
	if id, ok := a.byVendor[name]; ok {
		return id
	}
	return name
}

func (a *Agent) vendorName(id string) string {
	if t := a.tools[id]; t != nil {
		return t.Vendor
	}
	return prompt.SafeName(id) // a tool of an earlier turn that is gone, or one the model has made up
}

func (a *Agent) render() {
	var list []prompt.Tool
	for _, t := range a.Tools() {
		list = append(list, prompt.Tool{ID: t.ID, Name: t.Vendor, Description: t.Spec.Description, Schema: t.Spec.Schema,
			Traits: t.Traits, Namespaces: t.Namespaces, CodeParam: t.Spec.CodeParam})
	}
	a.kit = prompt.BuildKit(a.Config.Dialect, list, a.Config.Instructions)
}

// lookup is what the overseer reads of a tool.
func (a *Agent) lookup(id string) (overseer.Tool, bool) {
	t := a.tools[id]
	if t == nil {
		return overseer.Tool{}, false
	}
	return overseer.Tool{Traits: t.Traits, Namespaces: t.Namespaces, Paths: t.Paths}, true
}

func (a *Agent) nearest(id string) string { return trait.Nearest(id, a.ids) }

// Alias is the connection the tool belongs to.
func (t *Tool) Alias() string { return t.alias }

// ToolIDs turns the names that a provider sees into tool ids, by the agent's configuration alone: the reverse of the
// mapping for every id without a character that providers refuse.
func ToolIDs(cfg *config.Agent) func(name string) string {
	return func(name string) string {
		if name == "" {
			return ""
		}
		for _, c := range append([]config.Connection{{Alias: workspace.Alias}}, cfg.Connections...) {
			if rest, ok := strings.CutPrefix(name, c.Alias+"__"); ok {
				return c.Alias + "." + rest
			}
		}
		return name
	}
}

// Has reports whether the agent has the tool.
func (a *Agent) Has(id string) bool { return a.tools[id] != nil }
