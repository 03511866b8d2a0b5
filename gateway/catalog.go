package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"sort"
	"strings"
	"time"

	"writ"
	"writ/config"
	"writ/internal/mcpclient"
	"writ/participant"
)

// Contracts of the actions that are no tools. A tool of such a name is left out.
const (
	resourcesRead = "resources-read"
	promptsGet    = "prompts-get"
)

// callable is something that a client may do: a tool, or reading resources or getting prompts of one upstream.
type callable struct {
	up      *upstream
	name    string // as the client knows it
	own     string // as the upstream knows it
	traits  writ.Traits
	targets []string // templates
	timeout time.Duration
	raw     json.RawMessage // a tool's definition, for the client
}

// id is the tool id that the ledger has.
func (c *callable) id() string { return c.up.alias + "." + c.own }

// catalog is what a session may use at one time: the compiled bindings, and what they are made of.
type catalog struct {
	from     [][]json.RawMessage // by upstream
	byName   map[string]*callable
	order    []*callable       // as listed, connection by connection
	items    []json.RawMessage // their definitions
	problems []writ.Problem
}

// current returns the catalog as the upstreams list it now.
func (s *session) current(ctx context.Context) (*catalog, error) {
	from := make([][]json.RawMessage, len(s.ups))
	done := make(chan struct{})
	for i, up := range s.ups {
		go func() {
			from[i] = up.list(ctx, tools)
			done <- struct{}{}
		}()
	}
	for range s.ups {
		<-done
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.catalog != nil && slices.EqualFunc(s.catalog.from, from, sameItems) {
		return s.catalog, nil
	}
	c := compile(s.ups, from, s.g.cfg.Prefix, s.catalog)
	for _, p := range c.problems {
		s.g.problem(p)
	}
	s.catalog = c
	return c, nil
}

// known is the catalog as it was last compiled.
func (s *session) known() *catalog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.catalog
}

// compile decides which of the listed tools may be used. What cannot be is left out by itself and named; a name that is
// taken stays whose it was.
func compile(ups []*upstream, from [][]json.RawMessage, prefix bool, before *catalog) *catalog {
	c := &catalog{from: from, byName: map[string]*callable{}}
	for i, up := range ups {
		c.add(up, from[i], prefix, before)
	}
	for _, t := range c.order {
		c.items = append(c.items, t.raw)
	}
	return c
}

func (c *catalog) add(up *upstream, raw []json.RawMessage, prefix bool, before *catalog) {
	specs, problems := mcpclient.ReadTools(raw, nil, up.conn.TrustTraits)
	for _, p := range problems {
		p.Tool = strings.TrimSuffix(up.alias+"."+p.Tool, ".")
		c.problems = append(c.problems, p)
	}
	definitions, listed := map[string]json.RawMessage{}, map[string]int{}
	for i, r := range raw {
		var named struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(r, &named) == nil {
			definitions[named.Name], listed[named.Name] = r, i
		}
	}
	slices.SortFunc(specs, func(a, b writ.ToolSpec) int { return listed[a.Name] - listed[b.Name] })
	for _, spec := range specs {
		t := newTool(up, spec, prefix)
		if why, hint := c.excluded(t, spec, before); why != "" {
			if up.conn.Allows(spec.Name) {
				c.problems = append(c.problems, writ.Problem{Tool: t.id(), Message: why, Hint: hint})
			}
			continue
		}
		if taken := c.byName[t.name]; taken != nil { // who had the name before keeps it
			c.problems = append(c.problems, writ.Problem{Tool: taken.id(), Message: "its name " + taken.name + " is that of " + t.id() + ", which had it before"})
			c.order = slices.DeleteFunc(c.order, func(other *callable) bool { return other == taken })
		}
		t.raw = renamed(definitions[spec.Name], spec.Name, t.name)
		c.byName[t.name], c.order = t, append(c.order, t)
	}
}

// excluded says why a tool may not be used.
func (c *catalog) excluded(t *callable, spec writ.ToolSpec, before *catalog) (why, hint string) {
	if ok, why := t.up.conn.ToolActive(t.own); !ok {
		return why, ""
	}
	if t.own == resourcesRead || t.own == promptsGet {
		return "its name is reserved", ""
	}
	switch pin, pinned := t.up.pins[t.own]; {
	case t.up.pins == nil || spec.Definition == "" || pin == spec.Definition:
	case !pinned:
		return "it is new since the connection's tools were accepted", acceptHint
	default:
		return "its definition changed since it was accepted", acceptHint
	}
	if taken := c.byName[t.name]; taken != nil {
		if owner := before.owner(t.name); owner == nil || owner.id() != t.id() {
			return "its name " + t.name + " is that of " + taken.id() + " already", ""
		}
	}
	return "", ""
}

const acceptHint = "look at it, then accept it with writ check --live --accept"

func (c *catalog) owner(name string) *callable {
	if c == nil {
		return nil
	}
	return c.byName[name]
}

func newTool(up *upstream, spec writ.ToolSpec, prefix bool) *callable {
	return &callable{up: up, own: spec.Name, name: outer(up.alias, spec.Name, prefix), traits: up.conn.TraitsOf(spec, writ.EffectOnce),
		targets: up.conn.Targets[spec.Name], timeout: up.conn.LimitsFor(spec.Name).Timeout}
}

// outer is the name by which a client knows a tool or a prompt.
func outer(alias, name string, prefix bool) string {
	if prefix {
		return alias + "__" + name
	}
	return name
}

// looking is the callable of reading resources or getting prompts: exploration without an effect.
func looking(up *upstream, contract string) *callable {
	return &callable{up: up, own: contract, name: outer(up.alias, contract, up.s.g.cfg.Prefix), timeout: up.conn.LimitsFor(contract).Timeout,
		traits: writ.Traits{Strategy: writ.Exploration, Effect: writ.EffectNone, StrategySource: "gateway"}}
}

// renamed is a definition under another name; everything else stays as the upstream wrote it.
func renamed(raw json.RawMessage, from, to string) json.RawMessage {
	if from == to {
		return raw
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return raw
	}
	fields["name"], _ = json.Marshal(to)
	out, err := json.Marshal(fields)
	if err != nil {
		return raw
	}
	return out
}

// bindings are what an invocation of the session may do, and the names of it by tool id. What the configuration names
// is bound whether or not the server offers it now.
func (s *session) bindings() (participant.Compiled, map[string]bool) {
	agent := s.g.cfg.Agent
	bound := map[string]bool{}
	var list []participant.Callable
	bind := func(up *upstream, name string, limits config.Limits) {
		id := up.alias + "." + name
		if bound[id] {
			return
		}
		bound[id] = true
		targets, templated := fixedTargets(up.conn.Targets[name])
		list = append(list, participant.Callable{Connection: up.alias, Name: name, Targets: targets, Templated: templated,
			Offer: participant.Offer{MaxInFlight: limits.Concurrency, Timeout: limits.Timeout}})
	}
	for _, up := range s.ups {
		for _, name := range up.conn.Allowed {
			if ok, _ := up.conn.ToolActive(name); ok {
				bind(up, name, up.conn.LimitsFor(name))
			}
		}
		look := config.Limits{}
		look.Timeout = up.conn.LimitsFor(resourcesRead).Timeout
		bind(up, resourcesRead, look)
		bind(up, promptsGet, look)
	}
	if c := s.known(); c != nil {
		for _, t := range c.byName {
			bind(t.up, t.own, t.up.conn.LimitsFor(t.own))
		}
	}
	sort.Slice(list, func(i, j int) bool {
		return list[i].Connection+"."+list[i].Name < list[j].Connection+"."+list[j].Name
	})
	implementation := "participant.implementation." + agent.Digest[:min(16, len(agent.Digest))]
	return participant.Derive(agent.ID, implementation, s.g.cfg.Actions, s.g.cfg.Concurrent, list), bound
}
