package participant

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// specification checks one behavior specification and notes who gets its affordances.
func (c *compiler) specification(name string) {
	s, at := c.Specifications[name], place{"behavior_specifications", name}
	c.refs(at.to("participant_refs"), s.Participants, c.participantKind())
	c.refs(at.to("participant_role_refs"), s.Roles, c.roleKind())
	c.refs(at.to("action_contract_refs"), s.Contracts, c.contractKind(RuleReference))
	c.refs(at.to("observation_boundary_refs"), s.Boundaries, c.boundaryKind(RuleReference))
	within := c.members(&s)
	policy := c.policy(name, &s, within)
	if s.Autonomous == nil {
		c.notes.add(at, "", "set autonomous_execution", "%s has no autonomous_execution: it owns nobody's invocations and binds nothing", name)
	}
	first := map[[sha256.Size]byte]string{}
	for _, id := range sorted(s.Affordances) {
		if c.bindings > maxBindings {
			break // told; looking at the rest is the work that the bound is there to save
		}
		f, here := s.Affordances[id], at.to("tool_affordances", id)
		scope := c.affordance(here, name, id, &s, &f, within)
		relation := digest([]string{f.Tool}, f.Contracts, f.Boundaries, scope)
		if other, twice := first[relation]; twice {
			c.add(here, RuleAffordanceTwice, "drop one of them", "it grants what %s grants: the same tool, contracts, boundaries and participants", other)
		}
		first[relation] = id
		if c.bindings += len(scope) * max(1, len(f.Contracts)); c.bindings > maxBindings {
			c.add(here, RuleTooManyBindings, "narrow the affordances", "there are more than %d bindings", maxBindings)
			break
		}
		c.grants = append(c.grants, grant{name, id, intersect(scope, policy)})
	}
}

// digest stands for lists whose order does not matter.
func digest(lists ...[]string) [sha256.Size]byte {
	h := sha256.New()
	for _, list := range lists {
		for _, s := range slices.Sorted(slices.Values(list)) {
			fmt.Fprintf(h, "%d:%s,", len(s), s)
		}
		h.Write([]byte(";"))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// intersect keeps the order of a.
func intersect(a, b []string) []string {
	in := set(b)
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !in[s] })
}

// members are the participants of a specification, sorted: those it names and those with a role it names. One that
// names none has those that are named below it.
func (c *compiler) members(s *Specification) []string {
	names, roles := slices.Clone(s.Participants), slices.Clone(s.Roles)
	if s.Participants == nil && s.Roles == nil {
		if s.Autonomous != nil {
			names = append(names, s.Autonomous.Participants...)
		}
		for _, f := range s.Affordances {
			names, roles = append(names, f.Participants...), append(roles, f.Roles...)
		}
	}
	return c.choose(names, roles)
}

// choose are the declared participants that are in names or have one of the roles, sorted.
func (c *compiler) choose(names, roles []string) []string {
	byName, byRole := set(names), set(roles)
	var out []string
	for _, p := range c.everybody {
		if role := c.Participants[p].Role; byName[p] || role != "" && byRole[role] {
			out = append(out, p)
		}
	}
	return out
}

// policy checks a specification's autonomous policy and returns its participants.
func (c *compiler) policy(spec string, s *Specification, within []string) []string {
	if s.Autonomous == nil {
		return nil
	}
	p, at := s.Autonomous, place{"behavior_specifications", spec, "autonomous_execution"}
	if profile(p.Profile) == "" {
		c.add(at.to("profile"), RulePolicyProfile, "one of v1, v2, v3", "the profile is %s", shown(p.Profile))
	}
	names := p.Participants
	if names == nil {
		names = s.Participants
	} else {
		c.refs(at.to("participant_refs"), names, c.participantKind())
		in := set(within)
		for i, n := range names {
			if _, known := c.Participants[n]; known && !in[n] {
				c.add(at.to("participant_refs", strconv.Itoa(i)), RulePolicyWidens, "add it to the specification's participants", "%s has no participant %s", spec, n)
			}
		}
	}
	out := intersect(within, names)
	if len(names) == 0 {
		c.add(at, RulePolicyNobody, "set participant_refs, here or on the specification", "the policy of %s names no participant", spec)
	}
	for _, n := range out {
		if other, twice := c.owner[n]; twice {
			c.add(at, RulePolicyTwoOwners, "take it out of one of them", "participant %s is in the autonomous_execution of %s already", n, other)
			continue
		}
		c.owner[n] = spec
	}
	c.outer(at.to("action_contract_ref"), s, out)
	return out
}

// outer checks the action contract of the invocation itself.
func (c *compiler) outer(at place, s *Specification, members []string) {
	contract := s.Autonomous.Contract
	if contract == "" {
		return
	}
	if _, ok := c.Contracts[contract]; !ok {
		c.unknown(at, RuleReference, contract, sorted(c.Contracts), "no action contract is called %s", shown(contract))
		return
	}
	if !ceilingOf(s.Contracts).has(contract) {
		c.add(at, RulePolicyActionWidens, "add it to the specification's action_contract_refs", "the specification has no action contract %s", contract)
	}
	if who := outside(members, c.acts, contract); who != "" {
		c.add(at, RulePolicyActionOutside, "add it to the participant's actions", "%s has no action %s", who, contract)
	}
}

// ceiling is a list that bounds what is below it; nil bounds nothing.
type ceiling map[string]bool

func (c ceiling) has(name string) bool { return c == nil || c[name] }

func ceilingOf(list []string) ceiling {
	if list == nil {
		return nil
	}
	return set(list)
}

// outside are the participants whose own ceiling does not have the name, as a phrase; empty when there are none.
func outside(members []string, ceilings map[string]ceiling, name string) string {
	first, more := "", 0
	for _, m := range members {
		switch {
		case ceilings[m].has(name):
		case first == "":
			first = m
		default:
			more++
		}
	}
	switch {
	case first == "":
		return ""
	case more > 0:
		return "participant " + first + " (and " + strconv.Itoa(more) + " more)"
	}
	return "participant " + first
}

// affordance checks one affordance and returns whom it is for, sorted. It can only narrow what its specification and
// its participants have.
func (c *compiler) affordance(at place, spec, id string, s *Specification, f *Affordance, within []string) []string {
	scope := c.scope(at, spec, f, within)
	contracts, boundaries := at.to("action_contract_refs"), at.to("observation_boundary_refs")
	for _, list := range []struct {
		at   place
		refs []string
	}{{contracts, f.Contracts}, {boundaries, f.Boundaries}} {
		if key := list.at[len(list.at)-1]; len(list.refs) == 0 {
			c.add(list.at, RuleAffordanceEmpty, "name at least one", "tool affordance %s has no %s", id, key)
		}
	}
	c.refs(contracts, f.Contracts, c.contractKind(RuleContractUnbound))
	c.refs(boundaries, f.Boundaries, c.boundaryKind(RuleBoundaryUnbound))
	parent := ceilingOf(s.Contracts)
	for i, name := range f.Contracts {
		if _, known := c.Contracts[name]; !known {
			continue
		}
		here := contracts.to(strconv.Itoa(i))
		if !parent.has(name) {
			c.add(here, RuleContractWidens, "add it to the specification's action_contract_refs", "%s has no action contract %s", spec, name)
		}
		if who := outside(scope, c.acts, name); who != "" {
			c.add(here, RuleContractOutside, "add it to the participant's actions", "%s has no action %s", who, name)
		}
		if len(c.targets[name]) == 0 {
			c.add(place{"action_contracts", name}, RuleContractNoTarget, "an effect's target_refs name what is acted on, as provision.node.NAME.service.NAME",
				"%s has no target, and tool affordance %s uses it", name, id)
		}
	}
	parent = ceilingOf(s.Boundaries)
	for i, name := range f.Boundaries {
		if _, known := c.Boundaries[name]; !known {
			continue
		}
		here := boundaries.to(strconv.Itoa(i))
		if !parent.has(name) {
			c.add(here, RuleBoundaryWidens, "add it to the specification's observation_boundary_refs", "%s has no observation boundary %s", spec, name)
		}
		if who := outside(scope, c.sees, name); who != "" {
			c.add(here, RuleBoundaryOutside, "add it to the participant's observation_boundaries", "%s has no observation boundary %s", who, name)
		}
		if ref := AffordanceRef(spec, id); !c.views[name][ref] {
			c.add(here, RuleViewUnclassified, "put it under observable, hidden or evidence", "observation boundary %s does not classify %s", name, ref)
		}
	}
	return scope
}

// scope are the participants an affordance is for: those it names, or all of its specification's.
func (c *compiler) scope(at place, spec string, f *Affordance, within []string) []string {
	if f.Participants == nil && f.Roles == nil {
		return within
	}
	c.refs(at.to("participant_refs"), f.Participants, c.participantKind())
	c.refs(at.to("participant_role_refs"), f.Roles, c.roleKind())
	in := set(within)
	for i, n := range f.Participants {
		if _, known := c.Participants[n]; known && !in[n] {
			c.add(at.to("participant_refs", strconv.Itoa(i)), RuleParticipantWidens, "add it to the specification's participants", "%s has no participant %s", spec, n)
		}
	}
	for i, role := range f.Roles {
		holders := c.choose(nil, []string{role})
		if len(holders) > 0 && len(intersect(holders, within)) == 0 {
			c.add(at.to("participant_role_refs", strconv.Itoa(i)), RuleParticipantWidens, "add the role to the specification's", "%s has no participant with role %s", spec, role)
		}
	}
	return intersect(within, c.choose(f.Participants, f.Roles))
}

// join makes a Compiled of everybody who has a policy, with a binding for every contract of every affordance that is
// for them. It narrows again by all that it joins, so that no mistake above can widen anything.
func (c *compiler) join() []Compiled {
	compiled := map[string]*Compiled{}
	for _, name := range c.everybody {
		spec, owned := c.owner[name]
		if !owned {
			c.notes.add(place{"participants", name}, "", "add it to a specification that has one", "participant %s is in no autonomous_execution: it has no invocations", name)
			continue
		}
		compiled[name] = c.identity(name, spec)
	}
	for _, g := range c.grants {
		s := c.Specifications[g.spec]
		f := s.Affordances[g.id]
		for _, name := range g.members {
			p := compiled[name]
			if p == nil || c.owner[name] != g.spec {
				continue
			}
			c.bind(p, name, g, &s, &f)
		}
	}
	var out []Compiled
	for _, p := range compiled {
		c.seen(p)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Compiled) int { return cmp.Compare(a.Participant, b.Participant) })
	return out
}

func (c *compiler) identity(name, spec string) *Compiled {
	s, actor := c.Specifications[spec], c.Participants[name]
	runtime := c.driver[name]
	m := c.Runtimes[runtime]
	p := &Compiled{Name: name, Runtime: runtime, Participant: Address(name), Implementation: cmp.Or(actor.Implementation, m.Implementation),
		Specification: SpecificationAddress(spec), Scope: ScopeAddress(spec), OuterContract: DerivedOuter, Withheld: slices.Clone(actor.Withheld),
		Profile: profile(s.Autonomous.Profile), Crossing: s.Crossing}
	if contract := s.Autonomous.Contract; contract != "" {
		p.OuterContract = ContractAddress(contract)
	}
	if m.Claim != nil {
		p.Total, p.Concurrent = m.Claim.Total, m.Claim.Concurrent
	}
	return p
}

// bind adds the bindings of one affordance. Their lists are shared: a Compiled is read, not written.
func (c *compiler) bind(p *Compiled, name string, g grant, s *Specification, f *Affordance) {
	var boundaries []string
	parent := ceilingOf(s.Boundaries)
	for _, b := range f.Boundaries {
		if parent.has(b) && c.sees[name].has(b) && c.views[b][AffordanceRef(g.spec, g.id)] {
			boundaries = append(boundaries, BoundaryAddress(b))
		}
	}
	parent = ceilingOf(s.Contracts)
	for _, contract := range f.Contracts {
		if !parent.has(contract) || !c.acts[name].has(contract) || len(boundaries) == 0 || len(c.targets[contract]) == 0 {
			continue
		}
		p.Bindings = append(p.Bindings, Binding{Participant: p.Participant, Affordance: AffordanceAddress(g.spec, g.id),
			Contract: ContractAddress(contract), Boundaries: boundaries, Targets: c.targets[contract],
			Temporal: c.Contracts[contract].SharedTime})
	}
}

// seen adds the boundaries of the bindings, and the offers for their contracts.
func (c *compiler) seen(p *Compiled) {
	boundaries, contracts := map[string]bool{}, map[string]bool{}
	for _, b := range p.Bindings {
		contracts[b.Contract] = true
		for _, address := range b.Boundaries {
			boundaries[address] = true
		}
	}
	for _, name := range sorted(c.Boundaries) {
		if v := c.Boundaries[name]; boundaries[BoundaryAddress(name)] {
			p.Boundaries = append(p.Boundaries, Boundary{BoundaryAddress(name), v.Observable, v.Hidden, v.Evidence})
		}
	}
	for _, o := range c.Runtimes[p.Runtime].Offers {
		if contracts[o.Contract] && o.Implementation == p.Implementation {
			p.Offers = append(p.Offers, o)
		}
	}
}

// offers checks that what is claimed can be run, for everybody who has a port.
func (c *compiler) offers(all []Compiled) {
	checked := map[[3]string]bool{} // runtime, implementation, contract: alike for many participants
	for i := range all {
		p := &all[i]
		if c.opaque(*p) != "" {
			continue
		}
		m, at := c.Runtimes[p.Runtime], place{"runtimes", p.Runtime}
		var news []Binding
		for _, b := range p.Bindings {
			if key := [3]string{p.Runtime, p.Implementation, b.Contract}; !checked[key] {
				checked[key] = true
				news = append(news, b)
			}
		}
		m.missing(&c.faults, at, "runtime "+p.Runtime, Compiled{Participant: p.Participant, Implementation: p.Implementation, Bindings: news})
		for _, b := range news {
			for _, target := range b.Targets {
				some, covered := false, false
				for _, o := range p.Offers {
					some = some || o.Contract == b.Contract
					covered = covered || o.Covers(b.Contract, p.Implementation, []string{target})
				}
				if some && !covered {
					c.notes.add(at.to("execution_bindings"), "", "add it to the target_addresses of one", "no execution binding of %s covers %s for %s: such actions are refused", p.Runtime, target, b.Contract)
				}
			}
		}
	}
}

// opaque says why no port is attached to the participant's invocations; empty when one is.
func (c *compiler) opaque(p Compiled) string {
	switch m := c.Runtimes[p.Runtime]; {
	case m.Claim == nil:
		return "runtime " + p.Runtime + " does not claim invocation_tool_actions"
	case len(p.Bindings) == 0:
		return "no tool affordance is for it"
	}
	return ""
}

// profile is the whole name of a policy profile; empty for what is none.
func profile(s string) string {
	const prefix = "participant-autonomous-execution/"
	switch whole := prefix + strings.TrimPrefix(s, prefix); {
	case s == "":
		return ProfileV1
	case whole == ProfileV1 || whole == ProfileV2 || whole == ProfileV3:
		return whole
	}
	return ""
}
