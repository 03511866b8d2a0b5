// Package participant compiles what an actor is allowed into the bindings that admission checks: authored in a
// configuration (behavior specifications, action contracts, observation boundaries, offers), or derived from an
// agent's tool connections. Both ways end in the same [Compiled]. It has no I/O and knows nothing of files.
//
// Source: the article "Admit tool actions inside an autonomous invocation" (participant-invocation-tool-actions/v1).
package participant

import (
	"slices"
	"strings"
	"time"
)

// SemanticVersion is the one version of the composition that is supported.
const SemanticVersion = "participant-invocation-tool-actions/v1"

// Policy profiles. The port refuses actions under v3, which wants a resource vector for every action.
const (
	ProfileV1 = "participant-autonomous-execution/v1"
	ProfileV2 = "participant-autonomous-execution/v2"
	ProfileV3 = "participant-autonomous-execution/v3"
)

// Compiled is everything that bounds the invocations of one participant. It is plain data.
type Compiled struct {
	Name           string // as authored, or the agent's id
	Runtime        string // the authored runtime's name; empty for a derived participant
	Participant    string // address
	Implementation string // who drives it: NAME@VERSION, or the digest of an agent's build
	Specification  string // address of the behavior specification
	Scope          string // execution_scope_ref; empty = the episode
	OuterContract  string // the action contract of the invocation itself

	Bindings   []Binding
	Boundaries []Boundary
	Offers     []Offer
	Withheld   []string // references that no outcome may carry (exposure.withheld_refs)

	Profile  string // of the autonomous policy; empty = v1
	Crossing bool   // a participant-crossing policy is installed

	// Total and Concurrent are the limits of one invocation.
	Total      int
	Concurrent int
}

// Binding is affordance × contract × participant: what one tool action may be admitted as.
type Binding struct {
	Participant string
	Affordance  string
	Contract    string
	Boundaries  []string // addresses
	Targets     []string // addresses; an action names one or more of them
	// Derived allows any target that [Target] makes, besides Targets: the contract's targets are templates over the
	// arguments, and only their keyed digests are known to the ledger.
	Derived bool
	// Temporal says that the contract has a shared-time binding, which the port refuses.
	Temporal bool
}

// Boundary is an observation boundary: what may be said of a result. An entry that ends in "*" stands for all
// references with that beginning; only derived boundaries have such.
type Boundary struct {
	Address    string
	Observable []string
	Hidden     []string
	Evidence   []string
}

// Offer says that an implementation can run a contract against targets, within bounds. Targets empty = all targets of
// the contract's bindings; only derived offers are so.
type Offer struct {
	ID             string
	Contract       string
	Implementation string
	Targets        []string
	MaxInFlight    int           // 0 = no bound of its own
	Timeout        time.Duration // of one action, from its grant; 0 = none
}

// Covers reports whether the offer is for the contract, the implementation and all of the targets.
func (o *Offer) Covers(contract, implementation string, targets []string) bool {
	if o.Contract != contract || o.Implementation != implementation {
		return false
	}
	if len(o.Targets) == 0 {
		return true
	}
	return !slices.ContainsFunc(targets, func(t string) bool { return !slices.Contains(o.Targets, t) })
}

// AllowsTarget reports whether the target belongs to the binding.
func (b *Binding) AllowsTarget(target string) bool {
	return slices.Contains(b.Targets, target) || b.Derived && strings.HasPrefix(target, derivedPrefix) && len(target) > len(derivedPrefix)
}

// Declares reports whether the boundary declares the reference as evidence.
func (b *Boundary) Declares(ref string) bool { return matches(b.Evidence, ref) }

func matches(list []string, ref string) bool {
	return slices.ContainsFunc(list, func(e string) bool {
		if head, ok := strings.CutSuffix(e, "*"); ok {
			return strings.HasPrefix(ref, head)
		}
		return e == ref
	})
}

// Clone shares nothing with c.
func (c Compiled) Clone() Compiled {
	c.Bindings, c.Boundaries, c.Offers = slices.Clone(c.Bindings), slices.Clone(c.Boundaries), slices.Clone(c.Offers)
	for i := range c.Bindings {
		c.Bindings[i].Boundaries, c.Bindings[i].Targets = slices.Clone(c.Bindings[i].Boundaries), slices.Clone(c.Bindings[i].Targets)
	}
	for i := range c.Offers {
		c.Offers[i].Targets = slices.Clone(c.Offers[i].Targets)
	}
	for i := range c.Boundaries {
		b := &c.Boundaries[i]
		b.Observable, b.Hidden, b.Evidence = slices.Clone(b.Observable), slices.Clone(b.Hidden), slices.Clone(b.Evidence)
	}
	c.Withheld = slices.Clone(c.Withheld)
	return c
}
