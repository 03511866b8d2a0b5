package participant

// Derived addresses of an ordinary agent.
const (
	DerivedBoundary = PrefixBoundary + "conversation"
	DerivedOuter    = PrefixContract + "turn"
)

// Callable is one tool of an agent, as far as admission is concerned.
type Callable struct {
	Connection string // the alias: the affordance
	Name       string // the callable: the contract
	Targets    []string
	Templated  bool  // some targets are templates over the arguments
	Offer      Offer // only MaxInFlight and Timeout are read
}

// Derive makes the implicit authoring of an agent explicit: a connection is an affordance, a callable a contract, the
// connection's targets or else the tool itself the target, the agent's build the implementation, and the conversation
// the one boundary.
func Derive(agent, implementation string, total, concurrent int, tools []Callable) Compiled {
	out := Compiled{Name: agent, Participant: Address(agent), Implementation: implementation, Specification: SpecificationAddress(agent),
		OuterContract: DerivedOuter, Total: max(total, concurrent), Concurrent: concurrent, Profile: ProfileV1,
		Boundaries: []Boundary{{Address: DerivedBoundary, Observable: []string{"conv:*"}, Evidence: []string{"conv:*"}}}}
	for _, t := range tools {
		contract := ContractAddress(t.Connection, t.Name)
		targets := t.Targets
		if len(targets) == 0 && !t.Templated {
			targets = []string{ToolTarget(t.Connection + "." + t.Name)}
		}
		out.Bindings = append(out.Bindings, Binding{Participant: out.Participant, Affordance: AffordanceAddress(agent, t.Connection),
			Contract: contract, Boundaries: []string{DerivedBoundary}, Targets: targets, Derived: t.Templated})
		out.Offers = append(out.Offers, Offer{ID: t.Connection + "." + t.Name, Contract: contract, Implementation: implementation,
			MaxInFlight: t.Offer.MaxInFlight, Timeout: t.Offer.Timeout})
	}
	return out
}

// ToolTarget is the target of a tool that names no other.
func ToolTarget(tool string) string { return "tool." + tool }
