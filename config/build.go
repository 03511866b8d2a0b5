package config

import (
	"maps"
	"slices"
	"strings"
)

// buildAgent resolves one agent.
func (c *checker) buildAgent(id string, pos Pos, s *agentShape) *Agent {
	a := &Agent{ID: id, Active: true, Pos: pos}
	c.behaviour(a)
	if len(s.Roles.V) > 0 || s.Roles.Bad {
		c.deactivate(a, s.Roles.Pos)
	}
	if s.Skills != nil && !s.Skills.empty() {
		c.report.warnf(s.Skills.node.pos, "", "skills is not provided by this version yet")
	}
	aliases := map[string]Pos{}
	for i := range s.Tools.V {
		if s.Tools.V[i].Malformed {
			continue
		}
		conn := c.connection(a, &s.Tools.V[i])
		if first, twice := aliases[conn.Alias]; twice && conn.Alias != "" {
			c.report.errorf(conn.aliasPos, "give one of them an alias of its own", "alias %s is used twice, first at line %d", quote(conn.Alias), first.Line)
		}
		aliases[conn.Alias] = conn.aliasPos
		a.Connections = append(a.Connections, conn.Connection)
	}
	slices.SortStableFunc(a.Connections, func(x, y Connection) int { return strings.Compare(x.Alias, y.Alias) })
	for i := range s.EventSources {
		a.EventSources = append(a.EventSources, c.eventSource(&s.EventSources[i]))
	}
	a.effective = canonical(a, c.models)
	a.Digest = digest(a.effective)
	return a
}

func (c *checker) eventSource(s *eventSourceShape) EventSource {
	out := EventSource{Kind: s.Kind.V, Name: s.Name.V, Discovery: s.Discovery.Mode.V, Policies: map[string]EventPolicy{}, Pos: s.Pos}
	switch {
	case s.Kind.Bad || s.Malformed:
	case !s.Kind.Set:
		c.report.errorf(s.Pos, "one of named_service, webhook, cron, mcp", "the event source has no kind")
	case s.Kind.V == string(KindNamedService):
		out.Name = s.Namespace.V
		if !s.Namespace.present() {
			c.report.errorf(s.Pos, "name the namespace", "the event source has no namespace")
		}
		c.misplacedKind("the event source", s.Kind.V, at{"name", s.Name.Pos})
	default:
		if !s.Name.present() {
			c.report.errorf(s.Pos, "give it a name", "the event source has no name")
		}
		c.misplacedKind("the event source", s.Kind.V, at{"namespace", s.Namespace.Pos})
	}
	for _, p := range []struct {
		key    string
		policy *policyShape
	}{{"block_production", s.Policies.BlockProduction}, {"pull", s.Policies.Pull}} {
		if p.policy == nil {
			continue
		}
		mode := p.policy.Mode.V
		if mode == "" {
			mode = "default"
		}
		out.Policies[p.key] = EventPolicy{mode, p.policy.Operation.V}
	}
	c.report.warnf(s.Pos, "", "event source %s is inactive: event sources are not provided by this version", quote(out.Name))
	return out
}

// misplacedKind reports keys that another kind has.
func (c *checker) misplacedKind(path, kind string, keys ...at) {
	for _, k := range keys {
		if !k.pos.IsZero() {
			c.report.errorf(k.pos, "drop it, or change the kind", "%s is of kind %s, which has no %s", path, kind, k.key)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
