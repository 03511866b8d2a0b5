package participant

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	service = "provision.node.portal.service.http"
	mini    = "mini@1.0"
)

// portal is authored admission that compiles: two participants, one affordance, one runtime with a claim.
func portal() Authored {
	return Authored{
		Specifications: map[string]Specification{"visit": {
			Participants: []string{"ann", "bob"}, Autonomous: &Policy{},
			Affordances: map[string]Affordance{"client": {Contracts: []string{"login"}, Boundaries: []string{"view"}}},
		}},
		Contracts: map[string]Contract{
			"login": {Effects: [][]string{{service}}, Preconditions: [][]string{{"backend.runtime", service}, {"provision.content.form"}},
				Failures: []string{"timeout"}},
			"read": {Effects: [][]string{{service}}},
		},
		Boundaries: map[string]View{
			"view":  {Observable: []string{AffordanceRef("visit", "client")}, Hidden: []string{"content.db"}, Evidence: []string{"evidence.page", "evidence.cookie"}},
			"blind": {Hidden: []string{"content.db"}},
		},
		Participants: map[string]Actor{
			"ann": {Role: "green", Contracts: []string{"login"}, Boundaries: []string{"view"}, Implementation: mini, Withheld: []string{"evidence.cookie"}},
			"bob": {Role: "red"},
		},
		Runtimes: map[string]Manifest{"harness": manifest()},
	}
}

func manifest() Manifest {
	return Manifest{Implementation: mini, Autonomous: true, Features: map[string]Level{FeatureToolAffordances: Exact},
		Claim: &Claim{Versions: []string{SemanticVersion}, Total: 16, Concurrent: 4},
		Offers: []Offer{{ID: "o1", Contract: ContractAddress("login"), Implementation: mini,
			Targets: []string{service, "provision.content.form"}, MaxInFlight: 2, Timeout: 30 * time.Second}}}
}

func TestCompile(t *testing.T) {
	got, err := Compile(portal())
	if err != nil || len(got.Notes) != 0 || len(got.Opaque) != 0 {
		t.Fatalf("%v, notes %v, opaque %v", err, got.Notes, got.Opaque)
	}
	want := func(name string, withheld ...string) Compiled {
		return Compiled{Name: name, Runtime: "harness", Participant: "participant.behavior." + name, Implementation: mini,
			Specification: "participant.behavior-specification.visit", Scope: "participant.autonomous-execution.visit",
			OuterContract: "participant.action-contract.turn", Profile: ProfileV1, Total: 16, Concurrent: 4, Withheld: withheld,
			Bindings: []Binding{{Participant: "participant.behavior." + name,
				Affordance: "participant.behavior-specification.visit.tool-affordance.client",
				Contract:   "participant.action-contract.login", Boundaries: []string{"participant.observation-boundary.view"},
				Targets: []string{service, "provision.content.form"}}},
			Boundaries: []Boundary{{"participant.observation-boundary.view", []string{AffordanceRef("visit", "client")},
				[]string{"content.db"}, []string{"evidence.page", "evidence.cookie"}}},
			Offers: manifest().Offers}
	}
	if d := cmp.Diff([]Compiled{want("ann", "evidence.cookie"), want("bob")}, got.Participants); d != "" {
		t.Error(d)
	}
}

// TestCompileChanges: what a change of the authored admission does to what is compiled.
func TestCompileChanges(t *testing.T) {
	bindings := func(c *Compilation) string {
		var out []string
		for _, p := range c.Participants {
			for _, b := range p.Bindings {
				out = append(out, p.Name+" "+strings.TrimPrefix(b.Affordance, "participant.behavior-specification.")+" "+strings.TrimPrefix(b.Contract, PrefixContract))
			}
		}
		for _, o := range c.Opaque {
			out = append(out, o.Name+" opaque")
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct {
		name   string
		change func(a *Authored)
		want   string
	}{
		{"an affordance's participants", func(a *Authored) { affordance(a, func(f *Affordance) { f.Participants = []string{"bob"} }) },
			"bob visit.tool-affordance.client login, ann opaque"},
		{"an affordance's roles", func(a *Authored) { affordance(a, func(f *Affordance) { f.Roles = []string{"green"} }) },
			"ann visit.tool-affordance.client login, bob opaque"},
		{"an affordance for nobody", func(a *Authored) { affordance(a, func(f *Affordance) { f.Participants = []string{} }) }, "ann opaque, bob opaque"},
		{"a specification's roles", func(a *Authored) {
			spec(a, func(s *Specification) {
				s.Participants, s.Roles, s.Autonomous.Participants = nil, []string{"red"}, []string{"bob"}
			})
		}, "bob visit.tool-affordance.client login"},
		{"participants named below", func(a *Authored) {
			spec(a, func(s *Specification) { s.Participants, s.Autonomous.Participants = nil, []string{"ann"} })
		}, "ann visit.tool-affordance.client login"},
		{"a role that the policy does not have", func(a *Authored) {
			spec(a, func(s *Specification) { s.Participants, s.Roles = []string{"ann"}, []string{"red"} })
		}, "ann visit.tool-affordance.client login"},
		{"a policy of fewer", func(a *Authored) { spec(a, func(s *Specification) { s.Autonomous.Participants = []string{"bob"} }) },
			"bob visit.tool-affordance.client login"},
		{"a role's holder outside the specification, whose ceiling is no matter", func(a *Authored) {
			spec(a, func(s *Specification) { s.Participants = []string{"ann"} })
			affordance(a, func(f *Affordance) { f.Participants, f.Roles = []string{"ann"}, []string{"green"} })
			a.Participants["cal"] = Actor{Role: "green", Contracts: []string{}}
		}, "ann visit.tool-affordance.client login"},
		{"no policy", func(a *Authored) { spec(a, func(s *Specification) { s.Autonomous = nil }) }, ""},
		{"no claim", func(a *Authored) { runtime(a, func(m *Manifest) { m.Claim, m.Offers = nil, nil }) }, "ann opaque, bob opaque"},
		{"lists at the ceiling", func(a *Authored) {
			spec(a, func(s *Specification) { s.Contracts, s.Boundaries = []string{"login"}, []string{"view"} })
		}, "ann visit.tool-affordance.client login, bob visit.tool-affordance.client login"},
	} {
		a := portal()
		c.change(&a)
		got, err := Compile(a)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if text := bindings(got); text != c.want {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}

func TestCompileFacts(t *testing.T) {
	a := portal()
	spec(&a, func(s *Specification) { s.Crossing, s.Autonomous.Profile, s.Autonomous.Contract = true, "v3", "login" })
	a.Contracts["login"] = Contract{Effects: [][]string{{service}}, SharedTime: true}
	got, err := Compile(a)
	if err != nil {
		t.Fatal(err)
	}
	p := got.Participants[0]
	if !p.Crossing || p.Profile != ProfileV3 || p.OuterContract != ContractAddress("login") || !p.Bindings[0].Temporal {
		t.Errorf("%+v", p)
	}
	for in, want := range map[string]string{"": ProfileV1, "v1": ProfileV1, ProfileV2: ProfileV2, "v4": "", "V1": "", "participant-autonomous-execution/": ""} {
		if got := profile(in); got != want {
			t.Errorf("profile %q is %q", in, got)
		}
	}
}

// TestCompileOffers: only what is for the participant's implementation and its contracts comes along.
func TestCompileOffers(t *testing.T) {
	a := portal()
	runtime(&a, func(m *Manifest) {
		m.Offers = append(m.Offers, Offer{ID: "read", Contract: ContractAddress("read"), Implementation: mini, Targets: []string{service}},
			Offer{ID: "other", Contract: ContractAddress("login"), Implementation: "other@1", Targets: []string{service}})
	})
	got, err := Compile(a)
	if err != nil || len(got.Participants) != 2 || len(got.Participants[0].Offers) != 1 || got.Participants[0].Offers[0].ID != "o1" {
		t.Errorf("%v, %+v", err, got)
	}
	o := got.Participants[0].Offers[0]
	for _, c := range []struct {
		contract, implementation string
		targets                  []string
		covers                   bool
	}{
		{ContractAddress("login"), mini, []string{service}, true},
		{ContractAddress("login"), mini, []string{service, "provision.node.x"}, false},
		{ContractAddress("login"), "other@1", []string{service}, false},
		{ContractAddress("read"), mini, []string{service}, false},
	} {
		if o.Covers(c.contract, c.implementation, c.targets) != c.covers {
			t.Errorf("%+v", c)
		}
	}
}

func TestCompileNotes(t *testing.T) {
	a := portal()
	a.Participants["cal"] = Actor{}
	a.Specifications["idle"] = Specification{}
	a.Contracts["read"] = Contract{Effects: [][]string{{"nodes.portal"}}}
	runtime(&a, func(m *Manifest) { m.Offers[0].Targets = []string{service} })
	got, err := Compile(a)
	if err != nil {
		t.Fatal(err)
	}
	var notes []string
	for _, n := range got.Notes {
		notes = append(notes, n.Error())
	}
	want := []string{
		`participant: action_contracts.read.effects.0.target_refs.0: "nodes.portal" is no runtime address, so it is no target (hint: an address starts with provision.)`,
		`participant: behavior_specifications.idle: idle has no autonomous_execution: it owns nobody's invocations and binds nothing (hint: set autonomous_execution)`,
		`participant: participants.cal: participant cal is in no autonomous_execution: it has no invocations (hint: add it to a specification that has one)`,
		`participant: runtimes.harness.execution_bindings: no execution binding of harness covers provision.content.form for participant.action-contract.login: such actions are refused (hint: add it to the target_addresses of one)`,
	}
	if d := cmp.Diff(want, notes); d != "" {
		t.Error(d)
	}
}

func spec(a *Authored, change func(*Specification)) {
	s := a.Specifications["visit"]
	change(&s)
	a.Specifications["visit"] = s
}

func affordance(a *Authored, change func(*Affordance)) {
	f := a.Specifications["visit"].Affordances["client"]
	change(&f)
	a.Specifications["visit"].Affordances["client"] = f
}

func runtime(a *Authored, change func(*Manifest)) {
	m := a.Runtimes["harness"]
	change(&m)
	a.Runtimes["harness"] = m
}

func actor(a *Authored, name string, change func(*Actor)) {
	p := a.Participants[name]
	change(&p)
	a.Participants[name] = p
}

func contract(a *Authored, change func(*Contract)) {
	c := a.Contracts["login"]
	change(&c)
	a.Contracts["login"] = c
}

func view(a *Authored, change func(*View)) {
	v := a.Boundaries["view"]
	change(&v)
	a.Boundaries["view"] = v
}

// broken is every rule of compilation, broken alone: what is done to portal(), and where it is told.
var broken = []struct {
	rule   Rule
	at     string
	change func(a *Authored)
}{
	{RuleName, "participants.Ann", func(a *Authored) { a.Participants["Ann"] = Actor{} }},
	{RuleName, "runtimes.-x", func(a *Authored) {
		a.Runtimes["-x"] = Manifest{Implementation: "x@1"}
		actor(a, "bob", func(p *Actor) { p.Implementation = mini })
	}},
	{RuleName, "action_contracts.a.b", func(a *Authored) { a.Contracts["a.b"] = Contract{} }},
	{RuleName, "observation_boundaries.", func(a *Authored) { a.Boundaries[""] = View{} }},
	{RuleName, "behavior_specifications.é", func(a *Authored) { a.Specifications["é"] = Specification{} }},
	{RuleName, "behavior_specifications.visit.tool_affordances.x y", func(a *Authored) {
		view(a, func(v *View) { v.Hidden = append(v.Hidden, AffordanceRef("visit", "x y")) })
		spec(a, func(s *Specification) {
			s.Affordances["x y"] = Affordance{Contracts: []string{"login"}, Boundaries: []string{"view"}, Tool: "t"}
		})
	}},

	{RuleReference, "behavior_specifications.visit.participant_refs.2", func(a *Authored) { spec(a, func(s *Specification) { s.Participants = append(s.Participants, "eve") }) }},
	{RuleReference, "behavior_specifications.visit.participant_role_refs.0", func(a *Authored) { spec(a, func(s *Specification) { s.Roles = []string{"blue"} }) }},
	{RuleReference, "behavior_specifications.visit.action_contract_refs.1", func(a *Authored) { spec(a, func(s *Specification) { s.Contracts = []string{"login", "logon"} }) }},
	{RuleReference, "behavior_specifications.visit.observation_boundary_refs.0", func(a *Authored) { spec(a, func(s *Specification) { s.Boundaries = []string{"", "view"} }) }},
	{RuleReference, "behavior_specifications.visit.autonomous_execution.participant_refs.0", func(a *Authored) { spec(a, func(s *Specification) { s.Autonomous.Participants = []string{"eve"} }) }},
	{RuleReference, "behavior_specifications.visit.autonomous_execution.action_contract_ref", func(a *Authored) { spec(a, func(s *Specification) { s.Autonomous.Contract = "turn" }) }},
	{RuleReference, "behavior_specifications.visit.tool_affordances.client.participant_refs.0", func(a *Authored) { affordance(a, func(f *Affordance) { f.Participants = []string{"eve", "ann"} }) }},
	{RuleReference, "behavior_specifications.visit.tool_affordances.client.participant_role_refs.0", func(a *Authored) { affordance(a, func(f *Affordance) { f.Roles = []string{"blue"} }) }},
	{RuleReference, "action_contracts.login.effects.0.target_refs.0", func(a *Authored) { contract(a, func(c *Contract) { c.Effects = [][]string{{"", service}} }) }},
	{RuleReference, "observation_boundaries.view.observable.1", func(a *Authored) {
		view(a, func(v *View) { v.Observable = append(v.Observable, AffordanceRef("visit", "cleint")) })
	}},
	{RuleReference, "observation_boundaries.view.evidence.2", func(a *Authored) { view(a, func(v *View) { v.Evidence = append(v.Evidence, "") }) }},
	{RuleReference, "participants.bob.actions.0", func(a *Authored) { actor(a, "bob", func(p *Actor) { p.Contracts = []string{"x", "login"} }) }},
	{RuleReference, "participants.bob.observation_boundaries.1", func(a *Authored) { actor(a, "bob", func(p *Actor) { p.Boundaries = []string{"view", "x"} }) }},
	{RuleReference, "participants.bob.exposure.withheld_refs.0", func(a *Authored) { actor(a, "bob", func(p *Actor) { p.Withheld = []string{""} }) }},
	{RuleReference, "runtimes.harness.execution_bindings.1.action_contract_ref", func(a *Authored) {
		runtime(a, func(m *Manifest) {
			m.Offers = append(m.Offers, Offer{ID: "o2", Contract: ContractAddress("logon"), Implementation: mini, Targets: []string{service}})
		})
	}},
	{RuleRepeated, "behavior_specifications.visit.participant_refs.2", func(a *Authored) { spec(a, func(s *Specification) { s.Participants = append(s.Participants, "ann") }) }},
	{RuleRepeated, "behavior_specifications.visit.tool_affordances.client.action_contract_refs.1", func(a *Authored) { affordance(a, func(f *Affordance) { f.Contracts = append(f.Contracts, "login") }) }},
	{RuleRepeated, "behavior_specifications.visit.tool_affordances.client.observation_boundary_refs.1", func(a *Authored) { affordance(a, func(f *Affordance) { f.Boundaries = append(f.Boundaries, "view") }) }},
	{RuleRepeated, "runtimes.harness.capabilities.participant_runtime.invocation_tool_actions.semantic_versions.1", func(a *Authored) {
		runtime(a, func(m *Manifest) { m.Claim.Versions = append(m.Claim.Versions, SemanticVersion) })
	}},
	{RuleRepeated, "runtimes.harness.execution_bindings.0.target_addresses.2", func(a *Authored) {
		runtime(a, func(m *Manifest) { m.Offers[0].Targets = append(m.Offers[0].Targets, service) })
	}},
	{RuleTargetMalformed, "action_contracts.login.preconditions.0.support_refs.1", func(a *Authored) {
		contract(a, func(c *Contract) { c.Preconditions = [][]string{{"x", "provision.Node"}} })
	}},
	{RuleFailureClass, "action_contracts.login.failure_classes.1", func(a *Authored) { contract(a, func(c *Contract) { c.Failures = append(c.Failures, "timed_out") }) }},
	{RuleClassifiedTwice, "observation_boundaries.view.evidence.2", func(a *Authored) { view(a, func(v *View) { v.Evidence = append(v.Evidence, "content.db") }) }},
	{RuleClassifiedTwice, "observation_boundaries.view.hidden.1", func(a *Authored) { view(a, func(v *View) { v.Hidden = append(v.Hidden, "content.db") }) }},
	{RulePattern, "observation_boundaries.view.evidence.2", func(a *Authored) { view(a, func(v *View) { v.Evidence = append(v.Evidence, "evidence.*") }) }},
	{RulePattern, "participants.bob.exposure.withheld_refs.0", func(a *Authored) { actor(a, "bob", func(p *Actor) { p.Withheld = []string{"*"} }) }},
	{RuleWithheldUnknown, "participants.bob.exposure.withheld_refs.0", func(a *Authored) { actor(a, "bob", func(p *Actor) { p.Withheld = []string{"evidence.cokie"} }) }},
	{RuleImplementation, "participants.ann.implementation", func(a *Authored) { actor(a, "ann", func(p *Actor) { p.Implementation = "mini@2" }) }},
	{RuleImplementation, "participants.bob", func(a *Authored) {
		a.Runtimes = nil
		delete(a.Participants, "ann")
		spec(a, func(s *Specification) { s.Participants = []string{"bob"} })
	}},
	{RuleImplementationTwice, "runtimes.same.implementation", func(a *Authored) {
		a.Runtimes["same"] = Manifest{Implementation: "other@1"}
		a.Runtimes["other"] = Manifest{Implementation: "other@1"}
		actor(a, "bob", func(p *Actor) { p.Implementation = mini })
	}},
	{RuleImplementationTwice, "participants.bob", func(a *Authored) { a.Runtimes["other"] = Manifest{Implementation: "other@1"} }},
	{RuleImplementationTwice, "participants.ann.implementation", func(a *Authored) {
		a.Runtimes["other"] = Manifest{Implementation: "other@1", Offers: manifest().Offers}
		actor(a, "bob", func(p *Actor) { p.Implementation = "other@1" })
	}},

	{RuleAffordanceEmpty, "behavior_specifications.visit.tool_affordances.client.action_contract_refs", func(a *Authored) { affordance(a, func(f *Affordance) { f.Contracts = nil }) }},
	{RuleAffordanceEmpty, "behavior_specifications.visit.tool_affordances.client.observation_boundary_refs", func(a *Authored) { affordance(a, func(f *Affordance) { f.Boundaries = []string{} }) }},
	{RuleAffordanceTwice, "behavior_specifications.visit.tool_affordances.other", func(a *Authored) { second(a, func(*Affordance) {}) }},
	{RuleContractUnbound, "behavior_specifications.visit.tool_affordances.client.action_contract_refs.0", func(a *Authored) { affordance(a, func(f *Affordance) { f.Contracts = []string{"logn", "login"} }) }},
	{RuleBoundaryUnbound, "behavior_specifications.visit.tool_affordances.client.observation_boundary_refs.1", func(a *Authored) { affordance(a, func(f *Affordance) { f.Boundaries = []string{"view", "x"} }) }},
	{RuleContractWidens, "behavior_specifications.visit.tool_affordances.client.action_contract_refs.0", func(a *Authored) { spec(a, func(s *Specification) { s.Contracts = []string{"read"} }) }},
	{RuleContractWidens, "behavior_specifications.visit.tool_affordances.client.action_contract_refs.0", func(a *Authored) { spec(a, func(s *Specification) { s.Contracts = []string{} }) }},
	{RuleBoundaryWidens, "behavior_specifications.visit.tool_affordances.client.observation_boundary_refs.0", func(a *Authored) { spec(a, func(s *Specification) { s.Boundaries = []string{"blind"} }) }},
	{RuleParticipantWidens, "behavior_specifications.visit.tool_affordances.client.participant_refs.1", func(a *Authored) {
		spec(a, func(s *Specification) { s.Participants = []string{"ann"} })
		affordance(a, func(f *Affordance) { f.Participants = []string{"ann", "bob"} })
	}},
	{RuleParticipantWidens, "behavior_specifications.visit.tool_affordances.client.participant_role_refs.0", func(a *Authored) {
		spec(a, func(s *Specification) { s.Participants = []string{"ann"} })
		affordance(a, func(f *Affordance) { f.Roles = []string{"red"} })
	}},
	{RuleContractOutside, "behavior_specifications.visit.tool_affordances.client.action_contract_refs.0", func(a *Authored) { actor(a, "bob", func(p *Actor) { p.Contracts = []string{"read"} }) }},
	{RuleBoundaryOutside, "behavior_specifications.visit.tool_affordances.client.observation_boundary_refs.0", func(a *Authored) { actor(a, "bob", func(p *Actor) { p.Boundaries = []string{} }) }},
	{RuleViewUnclassified, "behavior_specifications.visit.tool_affordances.client.observation_boundary_refs.1", func(a *Authored) {
		affordance(a, func(f *Affordance) { f.Boundaries = []string{"view", "blind"} })
		actor(a, "ann", func(p *Actor) { p.Boundaries = nil })
	}},
	{RuleContractNoTarget, "action_contracts.login", func(a *Authored) {
		contract(a, func(c *Contract) { c.Effects, c.Preconditions = nil, [][]string{{"backend.runtime"}} })
	}},
	{RulePolicyProfile, "behavior_specifications.visit.autonomous_execution.profile", func(a *Authored) { spec(a, func(s *Specification) { s.Autonomous.Profile = "v4" }) }},
	{RulePolicyNobody, "behavior_specifications.visit.autonomous_execution", func(a *Authored) { spec(a, func(s *Specification) { s.Participants, s.Roles = nil, []string{"red"} }) }},
	{RulePolicyWidens, "behavior_specifications.visit.autonomous_execution.participant_refs.1", func(a *Authored) {
		spec(a, func(s *Specification) {
			s.Participants, s.Autonomous.Participants = []string{"ann"}, []string{"ann", "bob"}
		})
	}},
	{RulePolicyTwoOwners, "behavior_specifications.visit.autonomous_execution", func(a *Authored) {
		a.Specifications["another"] = Specification{Participants: []string{"bob"}, Autonomous: &Policy{}}
	}},
	{RulePolicyActionWidens, "behavior_specifications.visit.autonomous_execution.action_contract_ref", func(a *Authored) {
		spec(a, func(s *Specification) { s.Contracts, s.Autonomous.Contract = []string{"login"}, "read" })
		actor(a, "ann", func(p *Actor) { p.Contracts = nil })
	}},
	{RulePolicyActionOutside, "behavior_specifications.visit.autonomous_execution.action_contract_ref", func(a *Authored) { spec(a, func(s *Specification) { s.Autonomous.Contract = "read" }) }},

	{RuleVersion, "runtimes.harness.capabilities.participant_runtime.invocation_tool_actions.semantic_versions.1", func(a *Authored) {
		runtime(a, func(m *Manifest) {
			m.Claim.Versions = append(m.Claim.Versions, "participant-invocation-tool-actions/v2")
		})
	}},
	{RuleOfferMissing, "runtimes.harness.execution_bindings", func(a *Authored) { runtime(a, func(m *Manifest) { m.Offers = nil }) }},
	{RuleOfferTwice, "runtimes.harness.execution_bindings.1", func(a *Authored) {
		runtime(a, func(m *Manifest) {
			m.Offers = append(m.Offers, Offer{ID: "o2", Contract: ContractAddress("login"), Implementation: mini, Targets: []string{"provision.content.other", service}})
		})
	}},
}

// second is another affordance of the specification.
func second(a *Authored, change func(*Affordance)) {
	f := a.Specifications["visit"].Affordances["client"]
	change(&f)
	a.Specifications["visit"].Affordances["other"] = f
	view(a, func(v *View) { v.Hidden = append(v.Hidden, AffordanceRef("visit", "other")) })
}

func TestCompileRules(t *testing.T) {
	for _, c := range broken {
		a := portal()
		c.change(&a)
		got, err := Compile(a)
		faults := Faults(err)
		if len(faults) != 1 || faults[0].Rule != c.rule || strings.Join(faults[0].At, ".") != c.at {
			t.Errorf("%s at %s: got %v", c.rule, c.at, err)
		}
		if err != nil && (len(got.Participants)+len(got.Opaque) != 0 || !strings.Contains(err.Error(), "["+string(c.rule)+"]")) {
			t.Errorf("%s: participants %v, %v", c.rule, got.Participants, err)
		}
	}
}

// TestEveryRuleIsTested: a rule without a row in one of the tables cannot be seen to hold.
func TestEveryRuleIsTested(t *testing.T) {
	tested := map[Rule]bool{RuleTooManyBindings: true} // TestTooManyBindings
	for _, c := range broken {
		tested[c.rule] = true
	}
	for _, c := range refused {
		tested[c.rule] = true
	}
	for _, r := range Rules() {
		if !tested[r] {
			t.Errorf("%s is in no table", r)
		}
	}
}

// TestSeveralFaults: one run tells everything, once.
func TestSeveralFaults(t *testing.T) {
	a := portal()
	for _, c := range broken[6:9] {
		c.change(&a)
	}
	affordance(&a, func(f *Affordance) { f.Contracts = []string{"x", "y"} })
	_, err := Compile(a)
	if got := Faults(err); len(got) != 5 {
		t.Errorf("%d faults:\n%v", len(got), err)
	}
}

func TestAlikeButNotTheSame(t *testing.T) {
	for name, change := range map[string]func(f *Affordance){
		"another tool":         func(f *Affordance) { f.Tool = "provision.content.browser" },
		"another contract":     func(f *Affordance) { f.Contracts = []string{"login", "read"} },
		"another participant":  func(f *Affordance) { f.Participants = []string{"ann"} },
		"another boundary too": func(f *Affordance) { f.Boundaries = []string{"view", "third"} },
	} {
		a := portal()
		a.Participants["ann"] = Actor{Role: "green"}
		runtime(&a, func(m *Manifest) {
			m.Offers = append(m.Offers, Offer{ID: "o2", Contract: ContractAddress("read"), Implementation: mini, Targets: []string{service}})
		})
		a.Boundaries["third"] = View{Hidden: []string{AffordanceRef("visit", "other")}}
		second(&a, change)
		if _, err := Compile(a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTooManyBindings(t *testing.T) {
	a := portal()
	a.Participants = map[string]Actor{}
	var names []string
	for i := range 400 {
		n := fmt.Sprintf("p%d", i)
		a.Participants[n], names = Actor{}, append(names, n)
	}
	var contracts []string
	for i := range 300 {
		n := fmt.Sprintf("c%d", i)
		a.Contracts[n], contracts = Contract{Effects: [][]string{{service}}}, append(contracts, n)
	}
	spec(&a, func(s *Specification) { s.Participants = names })
	affordance(&a, func(f *Affordance) { f.Contracts = contracts })
	_, err := Compile(a)
	if f := Faults(err); len(f) != 1 || f[0].Rule != RuleTooManyBindings {
		t.Errorf("%d faults: %.300v", len(f), err)
	}
}

var ruleRow = regexp.MustCompile("(?m)^\\| `([a-z.-]+)` \\| (.+) \\|$")

func TestRulesAreTheDocument(t *testing.T) {
	doc, err := os.ReadFile("../docs/admission.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []Rule
	for _, m := range ruleRow.FindAllStringSubmatch(string(doc), -1) {
		r := Rule(m[1])
		documented = append(documented, r)
		if r.Meaning() != m[2] {
			t.Errorf("%s: the document says %q, the code %q", r, m[2], r.Meaning())
		}
	}
	if !slices.Equal(documented, Rules()) {
		t.Errorf("documented rules\n%v\nrules\n%v", documented, Rules())
	}
}
