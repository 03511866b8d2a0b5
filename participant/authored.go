package participant

// Authored is admission as a person writes it: everything by its name. A nil list is one that was not written, an
// empty one grants nothing.
type Authored struct {
	Specifications map[string]Specification
	Contracts      map[string]Contract
	Boundaries     map[string]View
	Participants   map[string]Actor
	Runtimes       map[string]Manifest
}

// Specification is a behavior specification: who may do what, and see what. Each of its lists is a ceiling for what is
// below it; one that was not written means what is named below it.
type Specification struct {
	Participants []string // names
	Roles        []string // and everybody who has one of these roles
	Contracts    []string
	Boundaries   []string
	Autonomous   *Policy // nil = it owns nobody's invocations, and binds nothing
	Crossing     bool    // a participant-crossing policy is installed: the port refuses every action
	Affordances  map[string]Affordance
}

// Policy is an autonomous execution policy, as far as admission is concerned.
type Policy struct {
	Profile      string   // "v1", "v2", "v3" or the whole name; empty = v1
	Participants []string // nil = the specification's Participants
	Contract     string   // of the invocation itself; empty = [DerivedOuter]
}

// Affordance is a grant of action contracts and observation boundaries to participants. It is no proof that anything
// can run.
type Affordance struct {
	Contracts  []string // at least one
	Boundaries []string // at least one
	// Participants and Roles narrow it; with both nil it is for all of the specification's participants. Roles select
	// among those.
	Participants []string
	Roles        []string
	Tool         string // identity of the tool; not needed for admission
}

// Contract is an action contract. Its targets are the runtime addresses among the references.
type Contract struct {
	Effects       [][]string // target references, by effect
	Preconditions [][]string // support references, by precondition
	Failures      []string   // failure classes
	SharedTime    bool       // it has a shared-time binding, which the port refuses
}

// View is an observation boundary: each reference is in exactly one list.
type View struct {
	Observable []string
	Hidden     []string
	Evidence   []string
}

// Actor is a participant.
type Actor struct {
	Role           string
	Contracts      []string // a ceiling; nil = none of its own
	Boundaries     []string // a ceiling; nil = none of its own
	Implementation string   // NAME@VERSION; empty = that of the only runtime
	Withheld       []string // references that no outcome of its actions may carry
}

// Manifest is what a participant runtime says of itself.
type Manifest struct {
	Implementation string // NAME@VERSION
	Autonomous     bool   // supports_autonomous_execution
	// Features are levels of support by feature. Only FeatureToolAffordances and FeatureAutonomous are looked at.
	Features map[string]Level
	Claim    *Claim  // nil = no port is attached
	Offers   []Offer // contracts and targets are addresses
}

// Claim says that the runtime has each tool call admitted.
type Claim struct {
	Versions   []string
	Total      int // actions of one invocation, 1 to MaxTotal
	Concurrent int // at the same time, 1 to MaxConcurrent, at most Total
}

// Ceilings of a claim's limits: they bound the memory of one invocation.
const (
	MaxTotal      = 10_000
	MaxConcurrent = 1_024
)

// Level is how well a runtime supports a feature.
type Level string

// Levels of support.
const (
	Exact         Level = "exact"
	Bounded       Level = "bounded"
	DisclosedWeak Level = "disclosed_weak"
	Unsupported   Level = "unsupported"
)

// Positive reports whether the level is support at all.
func (l Level) Positive() bool { return l == Exact || l == Bounded || l == DisclosedWeak }

// Features that registration looks at.
const (
	FeatureToolAffordances = "tool_affordances"
	FeatureAutonomous      = "autonomous_execution"
)

// FailureClasses are the portable classes of a failure: what a contract declares and an unknown outcome is reported as.
func FailureClasses() []string {
	return []string{"precondition_unsatisfied", "unsupported_action", "target_unavailable", "authority_denied",
		"resource_exhausted", "timeout", "interrupted", "contention_lost", "partial_success", "unsafe_withheld",
		"backend_error", "unknown"}
}

// AffordanceRef is how an observation boundary refers to a tool affordance.
func AffordanceRef(spec, affordance string) string {
	return affordanceRoot + spec + ".tool_affordances." + affordance
}

const affordanceRoot = "behavior_specifications."
