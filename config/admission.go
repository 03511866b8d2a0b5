package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"writ/participant"
	"writ/trait"
)

// admission compiles authored admission and puts what is wrong with it where it stands in the file.
func (c *checker) admission(out *Config) {
	c.shapesOfAdmission()
	compiled, err := participant.Compile(c.authored())
	unreadable := map[Pos]bool{}
	for _, p := range c.report.Errors {
		unreadable[Pos{p.File, p.Line, p.Column}] = true
	}
	for _, f := range participant.Faults(err) {
		pos, n := c.find(f.At)
		if !n.holds(unreadable) { // what cannot be read has been reported; what follows from it is no news
			c.report.errorf(pos, faultHint(f), "%s: %s", faultPath(f.At), f.Text())
		}
	}
	for _, f := range compiled.Notes {
		pos, _ := c.find(f.At)
		c.report.warnf(pos, faultHint(f), "%s: %s", faultPath(f.At), f.Text())
	}
	out.Participants, out.Opaque = compiled.Participants, compiled.Opaque
	for i := range c.roots.Participants.Entries {
		e := &c.roots.Participants.Entries[i]
		for _, id := range out.Agents() {
			if participant.Address(id) == participant.Address(e.Key) {
				c.report.errorf(e.Pos, "an agent is a participant already; choose another name", "participants.%s: agent %s has the same address", e.Key, id)
			}
		}
	}
}

// shapesOfAdmission checks what is written in two ways, and warns of what is read and not used.
func (c *checker) shapesOfAdmission() {
	for i := range c.roots.Contracts.Entries {
		e := &c.roots.Contracts.Entries[i]
		if t := e.Val.SharedTime; t != nil && !t.Malformed && !t.Version.present() {
			c.report.errorf(t.Pos, "write participant-shared-time/v1", "action_contracts.%s.shared_time has no semantic_version", e.Key)
		}
	}
	for i := range c.roots.Runtimes.Entries {
		e := &c.roots.Runtimes.Entries[i]
		for j := range e.Val.Bindings {
			b := &e.Val.Bindings[j]
			path := "runtimes." + e.Key + ".execution_bindings[" + strconv.Itoa(j) + "]"
			if b.Contract.present() && b.Address.present() {
				c.report.errorf(b.Address.Pos, "keep one of them", "%s has action_contract_ref and action_contract_address, which mean the same", path)
			}
			if b.Retries.V > 0 {
				c.report.warnf(b.Retries.Pos, "a lost answer is told to the model, which decides", "%s.max_retries is not used: admission never repeats an action", path)
			}
		}
	}
}

// authored is what the file says, as package participant takes it. Values that cannot be read are empty here.
func (c *checker) authored() participant.Authored {
	r := c.roots
	out := participant.Authored{Specifications: map[string]participant.Specification{}, Contracts: map[string]participant.Contract{},
		Boundaries: map[string]participant.View{}, Participants: map[string]participant.Actor{}, Runtimes: map[string]participant.Manifest{}}
	for i := range r.Specifications.Entries {
		e := &r.Specifications.Entries[i]
		out.Specifications[e.Key] = e.Val.authored()
	}
	for _, e := range r.Contracts.Entries {
		contract := participant.Contract{Failures: list(e.Val.Failures), SharedTime: e.Val.SharedTime != nil}
		for _, effect := range e.Val.Effects {
			contract.Effects = append(contract.Effects, list(effect.Targets))
		}
		for _, p := range e.Val.Preconditions {
			contract.Preconditions = append(contract.Preconditions, list(p.Supports))
		}
		out.Contracts[e.Key] = contract
	}
	for _, e := range r.Boundaries.Entries {
		out.Boundaries[e.Key] = participant.View{Observable: list(e.Val.Observable), Hidden: list(e.Val.Hidden), Evidence: list(e.Val.Evidence)}
	}
	for _, e := range r.Participants.Entries {
		out.Participants[e.Key] = participant.Actor{Role: e.Val.Role.V, Contracts: list(e.Val.Actions), Boundaries: list(e.Val.Boundaries),
			Implementation: e.Val.Implementation.V, Withheld: list(e.Val.Exposure.Withheld)}
	}
	for i := range r.Runtimes.Entries {
		e := &r.Runtimes.Entries[i]
		out.Runtimes[e.Key] = e.Val.manifest()
	}
	return out
}

func (s *specificationShape) authored() participant.Specification {
	out := participant.Specification{Participants: list(s.Participants), Roles: list(s.Roles), Contracts: list(s.Contracts),
		Boundaries: list(s.Boundaries), Crossing: s.Crossing != nil, Affordances: map[string]participant.Affordance{}}
	if a := s.Autonomous; a != nil {
		out.Autonomous = &participant.Policy{Profile: a.Profile.V, Participants: list(a.Participants), Contract: a.Contract.V}
	}
	for _, e := range s.Affordances.Entries {
		out.Affordances[e.Key] = participant.Affordance{Contracts: list(e.Val.Contracts), Boundaries: list(e.Val.Boundaries),
			Participants: list(e.Val.Participants), Roles: list(e.Val.Roles), Tool: e.Val.Tool.V}
	}
	return out
}

func (s *runtimeShape) manifest() participant.Manifest {
	caps := &s.Capabilities.Participant
	out := participant.Manifest{Implementation: s.Implementation.V, Autonomous: caps.Autonomous.V, Features: map[string]participant.Level{}}
	for feature, level := range map[string]val[string]{participant.FeatureToolAffordances: caps.Features.Affordances,
		participant.FeatureAutonomous: caps.Features.Autonomous} {
		if level.Set {
			out.Features[feature] = participant.Level(level.V)
		}
	}
	if claim := caps.Claim; claim != nil {
		out.Claim = &participant.Claim{Versions: list(claim.Versions), Total: claim.Total.V, Concurrent: claim.Concurrent.V}
	}
	for _, b := range s.Bindings {
		contract := b.Address.V
		if b.Contract.V != "" {
			contract = participant.PrefixContract + b.Contract.V
		}
		out.Offers = append(out.Offers, participant.Offer{ID: b.ID.V, Contract: contract, Targets: list(b.Targets),
			Implementation: cmp.Or(b.Implementation.V, s.Implementation.V),
			MaxInFlight:    b.InFlight.V, Timeout: time.Duration(b.Timeout.V) * time.Second})
	}
	return out
}

// list is a list of names; nil when the key is not there, or no list.
func list(v val[[]val[string]]) []string {
	if !v.present() || v.Bad && v.V == nil {
		return nil
	}
	return texts(v.V)
}

// otherNames are keys that say the same as another one.
var otherNames = map[string]string{"action_contract_ref": "action_contract_address"}

// find is the place of a fault and what stands there: the last part of its path that is in the file. A mapping is
// where its key is, anything else where its value is.
func (c *checker) find(at []string) (Pos, *node) {
	n, pos := c.tree, Pos{File: c.name}
	for _, part := range at {
		if i, err := strconv.Atoi(part); err == nil && n.kind == kindList && i < len(n.items) {
			n = n.items[i]
			pos = n.pos
			continue
		}
		e, ok := n.get(part)
		if !ok {
			e, ok = n.get(otherNames[part])
		}
		if !ok {
			return pos, nil
		}
		if n, pos = e.value, e.value.pos; n.kind == kindMap {
			pos = e.pos
		}
	}
	return pos, n
}

// holds reports whether the value, or one inside it, is at one of the places.
func (n *node) holds(places map[Pos]bool) bool {
	if n == nil {
		return false
	}
	return places[n.pos] || slices.ContainsFunc(n.items, func(i *node) bool { return i.holds(places) }) ||
		slices.ContainsFunc(n.entries, func(e entry) bool { return e.value.holds(places) })
}

func faultHint(f *participant.Fault) string {
	if f.Unknown != "" {
		return trait.DidYouMean(f.Unknown, f.Known)
	}
	return f.Hint
}

// faultPath writes a path as the other messages do.
func faultPath(at []string) string {
	var b strings.Builder
	for i, part := range at {
		_, err := strconv.Atoi(part)
		switch {
		case err == nil && i > 1: // a name may be a number; it then stands right below a root
			b.WriteString("[" + part + "]")
		case i > 0:
			b.WriteString("." + part)
		default:
			b.WriteString(part)
		}
	}
	return b.String()
}
