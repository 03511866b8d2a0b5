package config

import (
	"fmt"
	"slices"
	"strings"

	"writ"
	"writ/trait"
)

// toolSettings reads everything a connection says of single tools.
func (c *checker) toolSettings(conn *builtConn, s *connShape) {
	conn.Traits = c.traits(conn, s.ToolTraits)
	for _, e := range s.Paths.Entries {
		if c.knows(conn, "paths", e.Key, e.Pos, false) {
			conn.Paths[e.Key] = writ.ToolPaths{Reads: texts(e.Val.Reads.V), Writes: texts(e.Val.Writes.V)}
		}
	}
	for _, e := range s.Targets.Entries {
		if c.knows(conn, "targets", e.Key, e.Pos, false) {
			conn.Targets[e.Key] = texts(e.Val.V)
			if e.Val.Set && len(e.Val.V) == 0 {
				c.report.errorf(e.Val.Pos, "leave the key out for the tool itself", "%s.targets.%s is empty", conn.path, e.Key)
			}
			for _, t := range e.Val.V {
				conn.target(e.Key, t, c.report)
			}
		}
	}
	for i := range s.Limits.Entries {
		e := &s.Limits.Entries[i]
		if c.knows(conn, "limits", e.Key, e.Pos, true) {
			conn.limits[e.Key] = limit{pointer(e.Val.Timeout), pointer(e.Val.Concurrency), pointer(e.Val.Retries)}
			c.checkRetries(conn, s, e.Key, e.Val.Retries)
		}
	}
	c.approvals(conn, s)
	c.unprovided(conn, s)
}

func pointer[T any](v val[T]) *T {
	if !v.Set {
		return nil
	}
	return &v.V
}

// checkRetries refuses retries where an effect could happen twice. The effect of a Go registration is known to the
// program alone, so the runtime decides there.
func (c *checker) checkRetries(conn *builtConn, s *connShape, key string, retries val[int]) {
	if !retries.Set || retries.V == 0 {
		return
	}
	c.report.warnf(retries.Pos, "a lost answer is told to the model, which decides", "%s.limits.%s.retries is not used by this version", conn.path, key)
	names := []string{key}
	if key == trait.Any && conn.strict {
		names = nil
		for _, name := range conn.Allowed {
			if own, ok := s.Limits.get(name); !ok || !own.Retries.Set {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		effect := trait.Merged(conn.Traits, name).Effect
		if effect == nil && conn.Kind == KindGo {
			continue
		}
		if effect == nil || *effect == writ.EffectOnce {
			c.report.errorf(retries.Pos, "drop retries, or declare effect none or idempotent under tool_traits",
				"%s.limits.%s.retries: %s has effect once and is never repeated", conn.path, key, name)
		}
	}
}

// approvals reads when a person must approve.
func (c *checker) approvals(conn *builtConn, s *connShape) {
	for _, e := range s.Approval.Entries {
		if !c.knows(conn, "approval", e.Key, e.Pos, true) {
			continue
		}
		conn.approval[e.Key] = ApprovalMode(e.Val.V)
		if !e.Val.Set {
			conn.approval[e.Key] = ApprovalAlways // unusable, and reported
		}
	}
}

// unprovided makes tools inactive that ask for a check this version does not have: it must not run them without.
func (c *checker) unprovided(conn *builtConn, s *connShape) {
	for _, e := range s.Claims.Entries {
		if !e.Val.empty() && c.knows(conn, "claims", e.Key, e.Pos, true) {
			conn.blocked[e.Key] = "claims are not provided by this version"
			c.toolInactive(conn, e.Key, e.Pos, conn.blocked[e.Key])
		}
	}
	if s.Roles == nil {
		return
	}
	if len(s.Roles.All.V) > 0 {
		c.inactive(conn, s.Roles.Pos, noRoles)
	}
	for _, e := range s.Roles.Tools.Entries {
		if len(e.Val.V) > 0 && c.knows(conn, "roles", e.Key, e.Pos, true) {
			conn.blocked[e.Key] = noRoles
			c.toolInactive(conn, e.Key, e.Pos, noRoles)
		}
	}
}

// toolInactive says that one tool, or every tool, of a connection cannot be offered.
func (c *checker) toolInactive(conn *builtConn, key string, pos Pos, reason string) {
	tool := "tool " + conn.path + "." + key
	if key == trait.Any {
		tool = "every tool of " + conn.path
	}
	c.report.warnf(pos, "", "%s is inactive: %s", tool, reason)
}

// traits reads a tool_traits mapping and warns of what is legal and probably not meant.
func (c *checker) traits(conn *builtConn, m dict[traitShape]) map[string]trait.Config {
	out := map[string]trait.Config{}
	places := map[string]*traitShape{}
	for i := range m.Entries {
		e := &m.Entries[i]
		if !c.knows(conn, "tool_traits", e.Key, e.Pos, true) {
			continue
		}
		var tc trait.Config
		if v := &e.Val.Strategy; v.Set {
			tc.Strategy = &v.V.V
		}
		if v := &e.Val.Execution; v.Set {
			tc.Execution = &v.V.V
		}
		if v := &e.Val.Effect; v.Set {
			tc.Effect = &v.V.V
		}
		e.Val.Pos = e.Pos
		out[e.Key], places[e.Key] = tc, &e.Val
	}
	for _, name := range sortedKeys(out) {
		c.lintTraits(conn, name, trait.Merged(out, name), places[name])
	}
	if general, ok := places[trait.Any]; ok {
		c.lintAny(conn, out, general.Pos)
	}
	return out
}

// lintTraits warns of a profile that cannot start anything early, of unknown beside other strategies, and of an
// early start whose lost answer nobody could make up for.
func (c *checker) lintTraits(conn *builtConn, name string, t trait.Config, place *traitShape) {
	path := conn.path + ".tool_traits." + name
	if s := t.Strategy; s != nil && place.Strategy.Set && *s != writ.Unknown && *s&writ.Unknown != 0 {
		c.report.warnf(place.Strategy.Pos, "leave unknown out", "%s: unknown beside other strategies: the tool runs alone", path)
	}
	if t.Execution == nil || t.Execution.IsZero() {
		return
	}
	pos := place.Execution.Pos
	if !place.Execution.Set {
		pos = place.Pos
	}
	switch {
	case trait.Partial(*t.Execution):
		c.report.warnf(pos, "set "+strings.Join(missingFields(*t.Execution), ", ")+" too",
			"%s: the execution profile is incomplete; early: false", path)
	case t.Strategy == nil:
	case len(t.Strategy.List()) > 1:
		c.report.warnf(pos, "leave execution out", "%s: a mixed tool (%s) never starts early; early: false", path, t.Strategy)
	case !t.Strategy.Only(writ.Neutral):
		c.report.warnf(pos, "leave execution out", "%s: only a neutral tool starts early and this one is %s; early: false", path, t.Strategy)
	case t.Effect == nil || *t.Effect == writ.EffectOnce:
		c.report.warnf(pos, "make sure it deduplicates by the idempotency key, or declare its effect",
			"%s: starts early with effect once, so a lost answer stays unknown and nothing repeats the call", path)
	}
}

func missingFields(e writ.Execution) []string {
	var out []string
	for i, v := range []string{e.Trigger, e.Concurrency, e.ResultDependency, e.Replay} {
		if v == "" {
			out = append(out, trait.ExecutionFields()[i])
		}
	}
	return out
}

// lintAny warns of an entry for every tool that covers several: they had better be alike.
func (c *checker) lintAny(conn *builtConn, configs map[string]trait.Config, pos Pos) {
	covered := "every tool"
	switch {
	case conn.Kind == KindNamedService:
		n := len(slices.DeleteFunc(sortedKeys(conn.callable), func(k string) bool { _, own := configs[k]; return own }))
		if n < 2 {
			return
		}
		covered = fmt.Sprintf("%d callables", n)
	case conn.strict:
		n := len(slices.DeleteFunc(slices.Clone(conn.Allowed), func(k string) bool { _, own := configs[k]; return own }))
		if n < 2 {
			return
		}
		covered = fmt.Sprintf("%d tools", n)
	}
	c.report.warnf(pos, "name the tools unless all of them truly behave alike", "%s.tool_traits: '*' gives %s the same traits", conn.path, covered)
}
