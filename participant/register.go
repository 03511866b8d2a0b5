package participant

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Register checks what a runtime says of itself before it is used: m by itself, and the offers that the participants
// it drives need. attaches says whether the runtime can be given a port. The error holds every [Fault]. Without a
// claim a runtime needs neither the method nor offers: no port is attached to it.
func Register(m Manifest, attaches bool, participants ...Compiled) error {
	l := &faults{}
	m.check(l, nil, attaches)
	for _, p := range participants {
		if m.Claim != nil && m.Drives(p.Implementation) {
			m.missing(l, nil, "the runtime", p)
		}
	}
	return l.err()
}

// Drives reports whether the runtime drives an implementation: its own, or one that its offers name.
func (m *Manifest) Drives(implementation string) bool {
	return implementation != "" && (m.Implementation == implementation ||
		slices.ContainsFunc(m.Offers, func(o Offer) bool { return o.Implementation == implementation }))
}

// check applies the rules that the manifest alone decides.
func (m *Manifest) check(l *faults, at place, attaches bool) {
	if !isImplementation(m.Implementation) {
		l.add(at.to("implementation"), RuleManifestName, "write NAME@VERSION", "the implementation is %s", shown(m.Implementation))
	}
	caps := at.to("capabilities", "participant_runtime")
	features := caps.to("supported_behavior_features")
	for _, f := range sorted(m.Features) {
		if level := m.Features[f]; !level.Positive() && level != Unsupported {
			l.add(features.to(f), RuleFeatureLevel, "one of exact, bounded, disclosed_weak, unsupported", "the level is %s", shown(string(level)))
		}
	}
	if level, ok := m.Features[FeatureAutonomous]; ok && level.Positive() != m.Autonomous {
		l.add(features.to(FeatureAutonomous), RuleFeatureDiffers, "", "the level is %s, and supports_autonomous_execution is %v", level, m.Autonomous)
	}
	if m.Claim != nil {
		m.checkClaim(l, caps, attaches)
	}
	m.checkOffers(l, at.to("execution_bindings"))
}

func (m *Manifest) checkClaim(l *faults, caps place, attaches bool) {
	at := caps.to("invocation_tool_actions")
	if !attaches {
		l.add(at, RuleNoAttach, "implement AttachInvocationToolActions", "participant_runtime has no method attach_invocation_tool_actions")
	}
	if !m.Autonomous {
		l.add(at, RuleNoAutonomous, "set supports_autonomous_execution: true, if it is", "the claim needs autonomous execution")
	}
	if !m.Features[FeatureToolAffordances].Positive() {
		l.add(at, RuleNoAffordances, "set supported_behavior_features.tool_affordances", "the claim needs support of tool_affordances")
	}
	versions := at.to("semantic_versions")
	if len(m.Claim.Versions) == 0 {
		l.add(versions, RuleVersion, "write ["+SemanticVersion+"]", "the list is missing or empty")
	}
	for i, v := range m.Claim.Versions {
		if v != SemanticVersion {
			l.add(versions.to(strconv.Itoa(i)), RuleVersion, "this version knows "+SemanticVersion, "it has %s", shown(v))
		} else if slices.Index(m.Claim.Versions, v) < i {
			l.add(versions.to(strconv.Itoa(i)), RuleRepeated, "keep one of them", "%s is there twice", shown(v))
		}
	}
	limit := func(key string, n, most int) {
		switch {
		case n == 0:
			l.add(at.to(key), RuleLimits, fmt.Sprintf("set it, from 1 to %d", most), "the limit is missing or 0")
		case n < 0 || n > most:
			l.add(at.to(key), RuleLimits, "", "the limit is %d; it must be from 1 to %d", n, most)
		}
	}
	limit("max_tool_actions_per_invocation", m.Claim.Total, MaxTotal)
	limit("max_concurrent_tool_actions_per_invocation", m.Claim.Concurrent, MaxConcurrent)
	if m.Claim.Total > 0 && m.Claim.Concurrent > m.Claim.Total {
		l.add(at.to("max_concurrent_tool_actions_per_invocation"), RuleLimits, "",
			"%d actions at the same time are more than %d in all", m.Claim.Concurrent, m.Claim.Total)
	}
}

func (m *Manifest) checkOffers(l *faults, at place) {
	ids := map[string]bool{}
	holder := map[[3]string]int{} // contract, implementation, target → the offer
	for i, o := range m.Offers {
		here := at.to(strconv.Itoa(i))
		m.checkOffer(l, here, o)
		if o.ID != "" && ids[o.ID] {
			l.add(here.to("binding_id"), RuleOfferRepeatedID, "give one of them an id of its own", "%s is used twice", shown(o.ID))
		}
		ids[o.ID] = true
		own := map[string]bool{}
		for j, target := range o.Targets {
			if own[target] {
				l.add(here.to("target_addresses", strconv.Itoa(j)), RuleRepeated, "keep one of them", "%s is there twice", shown(target))
				continue
			}
			own[target] = true
			key := [3]string{o.Contract, o.Implementation, target}
			if first, twice := holder[key]; twice {
				l.add(here, RuleOfferTwice, "exactly one has to cover an action",
					"it covers what %s covers already: %s on %s by %s", m.Offers[first].label(first), o.Contract, target, o.Implementation)
				break
			}
			holder[key] = i
		}
	}
}

func (m *Manifest) checkOffer(l *faults, at place, o Offer) {
	invalid := func(key, hint, format string, args ...any) {
		l.add(at.to(key), RuleOfferInvalid, hint, format, args...)
	}
	if o.ID == "" {
		invalid("binding_id", "give it an id", "the execution binding has no binding_id")
	}
	if !strings.HasPrefix(o.Contract, PrefixContract) || !IsAddress(o.Contract) {
		invalid("action_contract_ref", "name an action contract", "the action contract is %s", shown(o.Contract))
	}
	if !isImplementation(o.Implementation) {
		invalid("participant_implementation_ref", "write NAME@VERSION", "the participant implementation is %s", shown(o.Implementation))
	}
	if len(o.Targets) == 0 {
		invalid("target_addresses", "list what it can act on", "the execution binding has no target_addresses")
	}
	for i, t := range o.Targets {
		if !IsAddress(t) {
			l.add(at.to("target_addresses", strconv.Itoa(i)), RuleOfferInvalid, "write an address, as provision.node.NAME.service.NAME",
				"%s is no address", shown(t))
		}
	}
	if o.MaxInFlight < 0 || o.MaxInFlight > MaxConcurrent {
		invalid("max_in_flight", "", "the bound is %d; it must be from 1 to %d", o.MaxInFlight, MaxConcurrent)
	}
	if o.Timeout < 0 {
		invalid("timeout_seconds", "", "the time is negative")
	}
}

// missing tells the contracts of a participant's bindings that no offer is for.
func (m *Manifest) missing(l *faults, at place, who string, p Compiled) {
	for i := range p.Bindings {
		b := &p.Bindings[i]
		if !slices.ContainsFunc(m.Offers, func(o Offer) bool { return o.Contract == b.Contract && o.Implementation == p.Implementation }) {
			l.add(at.to("execution_bindings"), RuleOfferMissing, "declare one, or drop the contract from the affordance",
				"%s has no execution binding for %s and %s", who, b.Contract, p.Implementation)
		}
	}
}

func (o *Offer) label(i int) string {
	if o.ID == "" {
		return "the binding at position " + strconv.Itoa(i+1)
	}
	return o.ID
}

// isImplementation reports whether s is NAME@VERSION, in what an address or a header can carry.
func isImplementation(s string) bool {
	name, version, ok := strings.Cut(s, "@")
	return ok && name != "" && version != "" && len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// shown is a name from outside, in quotes and cut.
func shown(s string) string {
	const most = 80
	if s == "" {
		return "missing"
	}
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}
