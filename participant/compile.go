package participant

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxBindings bounds what a few lines of affordances can multiply to.
const maxBindings = 100_000

// Compilation is authored admission, joined.
type Compilation struct {
	// Participants have a port attached to their invocations, sorted by address.
	Participants []Compiled
	// Opaque participants have a policy and no port, sorted by address.
	Opaque []Opaque
	// Notes are what is legal and probably not meant.
	Notes []*Fault
}

// Opaque is a participant whose invocations are one action each, under its policy alone.
type Opaque struct {
	Name, Runtime  string // as authored
	Participant    string
	Implementation string
	Specification  string
	Scope          string
	OuterContract  string
	Profile        string
	Why            string // no port is attached
}

// Compile joins every affordance with the participants of its policy and with the targets of its action contracts. The
// error holds every [Fault]; with one there are no participants, and the notes are still there.
func Compile(a Authored) (*Compilation, error) {
	c := &compiler{Authored: a}
	joined := c.all()
	out := &Compilation{Notes: Faults(c.notes.err())}
	if err := c.err(); err != nil {
		return out, err
	}
	for _, p := range joined {
		if why := c.opaque(p); why != "" {
			out.Opaque = append(out.Opaque, Opaque{p.Name, p.Runtime, p.Participant, p.Implementation, p.Specification, p.Scope, p.OuterContract, p.Profile, why})
		} else {
			out.Participants = append(out.Participants, p)
		}
	}
	return out, nil
}

// all checks everything and joins it, faults or not.
func (c *compiler) all() []Compiled {
	c.names()
	c.contracts()
	c.boundaries()
	c.runtimes()
	c.actors()
	for _, name := range sorted(c.Specifications) {
		c.specification(name)
	}
	joined := c.join()
	c.offers(joined)
	return joined
}

type compiler struct {
	Authored
	faults
	notes faults

	targets map[string][]string        // by contract
	views   map[string]map[string]bool // by boundary: what it classifies
	driver  map[string]string          // by participant: the runtime
	acts    map[string]ceiling         // by participant: action contracts
	sees    map[string]ceiling         // by participant: observation boundaries
	owner   map[string]string          // by participant: the specification whose policy has it
	grants  []grant

	everybody []string // all participants, sorted
	bindings  int      // at most, of the grants
}

// grant is one affordance with everybody of its policy whom it is for.
type grant struct {
	spec, id string
	members  []string // sorted
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func has[V any](m map[string]V) func(string) bool {
	return func(name string) bool { _, ok := m[name]; return ok }
}

func set(list []string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, s := range list {
		out[s] = true
	}
	return out
}

// names refuses what cannot be part of an address as it is.
func (c *compiler) names() {
	check := func(at place, names []string) {
		for _, n := range names {
			if !IsSegment(n) {
				c.add(at.to(n), RuleName, "use up to 64 lower case letters, digits, - and _, a letter or digit first", "%s cannot be a name", shown(n))
			}
		}
	}
	check(place{"action_contracts"}, sorted(c.Contracts))
	check(place{"observation_boundaries"}, sorted(c.Boundaries))
	check(place{"participants"}, sorted(c.Participants))
	check(place{"runtimes"}, sorted(c.Runtimes))
	check(place{"behavior_specifications"}, sorted(c.Specifications))
	for _, n := range sorted(c.Specifications) {
		check(place{"behavior_specifications", n, "tool_affordances"}, sorted(c.Specifications[n].Affordances))
	}
}

// kind is what a list refers to.
type kind struct {
	what  string
	rule  Rule
	known func(string) bool
	names func() []string // for the hint
}

func (c *compiler) contractKind(rule Rule) kind {
	return kind{"action contract", rule, has(c.Contracts), func() []string { return sorted(c.Contracts) }}
}

func (c *compiler) boundaryKind(rule Rule) kind {
	return kind{"observation boundary", rule, has(c.Boundaries), func() []string { return sorted(c.Boundaries) }}
}

func (c *compiler) participantKind() kind {
	return kind{"participant", RuleReference, has(c.Participants), func() []string { return sorted(c.Participants) }}
}

func (c *compiler) roleKind() kind {
	roles := map[string]bool{}
	for _, p := range c.Participants {
		if p.Role != "" {
			roles[p.Role] = true
		}
	}
	return kind{"role of a participant", RuleReference, has(roles), func() []string { return sorted(roles) }}
}

// refs checks one list: every entry is known, and there once.
func (c *compiler) refs(at place, list []string, k kind) {
	seen := map[string]bool{}
	for i, ref := range list {
		here := at.to(strconv.Itoa(i))
		switch {
		case seen[ref]:
			c.add(here, RuleRepeated, "keep one of them", "%s is there twice", shown(ref))
		case !k.known(ref):
			c.unknown(here, k.rule, ref, k.names(), "no "+k.what+" is called %s", shown(ref))
		}
		seen[ref] = true
	}
}

func (c *compiler) unknown(at place, rule Rule, name string, known []string, format string, args ...any) {
	f := c.add(at, rule, "", format, args...)
	f.Unknown, f.Known = name, known
}

// contracts finds the targets of every contract: the addresses among its references. Others are no targets.
func (c *compiler) contracts() {
	c.targets = map[string][]string{}
	for _, name := range sorted(c.Contracts) {
		contract, at := c.Contracts[name], place{"action_contracts", name}
		seen := map[string]bool{}
		take := func(at place, list []string, effect bool) {
			for i, ref := range list {
				here := at.to(strconv.Itoa(i))
				switch {
				case seen[ref]:
				case IsRuntimeAddress(ref):
					seen[ref] = true
					c.targets[name] = append(c.targets[name], ref)
				case strings.HasPrefix(ref, runtimePrefix):
					c.add(here, RuleTargetMalformed, "write it as provision.node.NAME.service.NAME", "%s is no address", shown(ref))
				case ref == "":
					c.add(here, RuleReference, "", "the reference is empty")
				case effect:
					c.notes.add(here, "", "an address starts with "+runtimePrefix, "%s is no runtime address, so it is no target", shown(ref))
				}
			}
		}
		for i, refs := range contract.Effects {
			take(at.to("effects", strconv.Itoa(i), "target_refs"), refs, true)
		}
		for i, refs := range contract.Preconditions {
			take(at.to("preconditions", strconv.Itoa(i), "support_refs"), refs, false)
		}
		classes := set(FailureClasses())
		c.refs(at.to("failure_classes"), contract.Failures, kind{"failure class", RuleFailureClass, has(classes), FailureClasses})
	}
}

// boundaries reads what each boundary classifies. A reference to an affordance has to be to one that is there.
func (c *compiler) boundaries() {
	affordances := map[string]bool{}
	for spec, s := range c.Specifications {
		for id := range s.Affordances {
			affordances[AffordanceRef(spec, id)] = true
		}
	}
	c.views = map[string]map[string]bool{}
	for _, name := range sorted(c.Boundaries) {
		v, at := c.Boundaries[name], place{"observation_boundaries", name}
		classified := map[string]bool{}
		c.views[name] = classified
		for _, list := range []struct {
			key  string
			refs []string
		}{{"observable", v.Observable}, {"hidden", v.Hidden}, {"evidence", v.Evidence}} {
			for i, ref := range list.refs {
				here := at.to(list.key, strconv.Itoa(i))
				switch {
				case classified[ref]:
					c.add(here, RuleClassifiedTwice, "keep it in one of observable, hidden and evidence", "%s is classified twice", shown(ref))
				case !c.plain(here, ref):
				case strings.HasPrefix(ref, affordanceRoot) && !affordances[ref]:
					c.unknown(here, RuleReference, ref, sorted(affordances), "there is no tool affordance %s", shown(ref))
				}
				classified[ref] = true
			}
		}
	}
}

// plain refuses references that something further down would read as more than themselves.
func (c *compiler) plain(at place, ref string) bool {
	switch {
	case ref == "":
		c.add(at, RuleReference, "", "the reference is empty")
	case strings.Contains(ref, "*"):
		c.add(at, RulePattern, "write every reference out", "%s is a pattern", shown(ref))
	default:
		return true
	}
	return false
}

func (c *compiler) runtimes() {
	first := map[string]string{}
	for _, name := range sorted(c.Runtimes) {
		m, at := c.Runtimes[name], place{"runtimes", name}
		m.check(&c.faults, at, true) // a file cannot say what a program's runtime implements
		if other, twice := first[m.Implementation]; twice && m.Implementation != "" {
			c.add(at.to("implementation"), RuleImplementationTwice, "one runtime drives an implementation", "runtime %s has implementation %s already", other, m.Implementation)
		}
		first[m.Implementation] = name
		for i, o := range m.Offers {
			contract := strings.TrimPrefix(o.Contract, PrefixContract)
			if _, ok := c.Contracts[contract]; !ok && contract != "" {
				c.unknown(at.to("execution_bindings", strconv.Itoa(i), "action_contract_ref"), RuleReference, contract, sorted(c.Contracts),
					"no action contract is called %s", shown(contract))
			}
		}
	}
}

// actors checks the participants and finds the runtime of each.
func (c *compiler) actors() {
	c.everybody = sorted(c.Participants)
	everywhere := map[string]bool{}
	for _, v := range c.views {
		maps.Copy(everywhere, v)
	}
	c.driver, c.owner, c.acts, c.sees = map[string]string{}, map[string]string{}, map[string]ceiling{}, map[string]ceiling{}
	for _, name := range c.everybody {
		p, at := c.Participants[name], place{"participants", name}
		c.refs(at.to("actions"), p.Contracts, c.contractKind(RuleReference))
		c.refs(at.to("observation_boundaries"), p.Boundaries, c.boundaryKind(RuleReference))
		for i, ref := range p.Withheld {
			here := at.to("exposure", "withheld_refs", strconv.Itoa(i))
			if c.plain(here, ref) && !everywhere[ref] {
				c.unknown(here, RuleWithheldUnknown, ref, sorted(everywhere), "no observation boundary classifies %s, so withholding it does nothing", shown(ref))
			}
		}
		c.driver[name], c.acts[name], c.sees[name] = c.drivenBy(at, p), ceilingOf(p.Contracts), ceilingOf(p.Boundaries)
	}
}

func (c *compiler) drivenBy(at place, p Actor) string {
	var drivers, implementations []string
	for _, r := range sorted(c.Runtimes) {
		m := c.Runtimes[r]
		if p.Implementation == "" || m.Drives(p.Implementation) {
			drivers = append(drivers, r)
		}
		implementations = append(implementations, m.Implementation)
	}
	switch {
	case len(drivers) == 1:
		return drivers[0]
	case len(drivers) > 1 && p.Implementation == "":
		c.add(at, RuleImplementationTwice, "set implementation", "it names no implementation and there are several runtimes: %s", strings.Join(drivers, ", "))
	case len(drivers) > 1:
		c.add(at.to("implementation"), RuleImplementationTwice, "", "several runtimes drive %s: %s", p.Implementation, strings.Join(drivers, ", "))
	case p.Implementation == "":
		c.add(at, RuleImplementation, "declare one under runtimes", "there is no runtime to drive it")
	default:
		c.unknown(at.to("implementation"), RuleImplementation, p.Implementation, implementations, "no runtime drives %s", shown(p.Implementation))
	}
	return ""
}
