package participant

import (
	"strings"
	"testing"
)

const claimAt = "capabilities.participant_runtime.invocation_tool_actions"

// refused is every rule of registration, broken alone.
var refused = []struct {
	rule   Rule
	at     string
	change func(m *Manifest)
}{
	{RuleVersion, claimAt + ".semantic_versions", func(m *Manifest) { m.Claim.Versions = nil }},
	{RuleVersion, claimAt + ".semantic_versions", func(m *Manifest) { m.Claim.Versions = []string{} }},
	{RuleVersion, claimAt + ".semantic_versions.0", func(m *Manifest) { m.Claim.Versions = []string{""} }},
	{RuleVersion, claimAt + ".semantic_versions.0", func(m *Manifest) { m.Claim.Versions = []string{"participant-invocation-tool-actions/v2"} }},
	{RuleLimits, claimAt + ".max_tool_actions_per_invocation", func(m *Manifest) { m.Claim.Total = 0 }},
	{RuleLimits, claimAt + ".max_tool_actions_per_invocation", func(m *Manifest) { m.Claim.Total = -1 }},
	{RuleLimits, claimAt + ".max_tool_actions_per_invocation", func(m *Manifest) { m.Claim.Total = 10_001 }},
	{RuleLimits, claimAt + ".max_concurrent_tool_actions_per_invocation", func(m *Manifest) { m.Claim.Concurrent = 0 }},
	{RuleLimits, claimAt + ".max_concurrent_tool_actions_per_invocation", func(m *Manifest) { m.Claim.Concurrent = -4 }},
	{RuleLimits, claimAt + ".max_concurrent_tool_actions_per_invocation", func(m *Manifest) { m.Claim.Total, m.Claim.Concurrent = 10_000, 1_025 }},
	{RuleLimits, claimAt + ".max_concurrent_tool_actions_per_invocation", func(m *Manifest) { m.Claim.Concurrent = 17 }},
	{RuleNoAutonomous, claimAt, func(m *Manifest) { m.Autonomous = false }},
	{RuleNoAffordances, claimAt, func(m *Manifest) { m.Features = nil }},
	{RuleNoAffordances, claimAt, func(m *Manifest) { m.Features[FeatureToolAffordances] = Unsupported }},
	{RuleFeatureDiffers, "capabilities.participant_runtime.supported_behavior_features.autonomous_execution", func(m *Manifest) { m.Features[FeatureAutonomous] = Unsupported }},
	{RuleFeatureLevel, "capabilities.participant_runtime.supported_behavior_features.x", func(m *Manifest) { m.Features["x"] = "partly" }},
	{RuleOfferMissing, "execution_bindings", func(m *Manifest) { m.Offers = nil }},
	{RuleOfferMissing, "execution_bindings", func(m *Manifest) { m.Offers[0].Contract = ContractAddress("read") }},
	{RuleOfferMissing, "execution_bindings", func(m *Manifest) { m.Offers[0].Implementation = "other@1" }},
	{RuleOfferTwice, "execution_bindings.1", func(m *Manifest) {
		o := m.Offers[0]
		o.ID = "o2"
		o.Targets = []string{service}
		m.Offers = append(m.Offers, o)
	}},
	{RuleOfferRepeatedID, "execution_bindings.1.binding_id", func(m *Manifest) {
		o := m.Offers[0]
		o.Contract = ContractAddress("read")
		m.Offers = append(m.Offers, o)
	}},
	{RuleOfferInvalid, "execution_bindings.0.binding_id", func(m *Manifest) { m.Offers[0].ID = "" }},
	{RuleOfferInvalid, "execution_bindings.1.action_contract_ref", func(m *Manifest) {
		m.Offers = append(m.Offers, Offer{ID: "o2", Implementation: mini, Targets: []string{service}})
	}},
	{RuleOfferInvalid, "execution_bindings.1.action_contract_ref", func(m *Manifest) {
		m.Offers = append(m.Offers, Offer{ID: "o2", Contract: PrefixContract + "a b", Implementation: mini, Targets: []string{service}})
	}},
	{RuleOfferInvalid, "execution_bindings.1.action_contract_ref", func(m *Manifest) {
		m.Offers = append(m.Offers, Offer{ID: "o2", Contract: "participant.behavior.a", Implementation: mini, Targets: []string{service}})
	}},
	{RuleOfferInvalid, "execution_bindings.1.participant_implementation_ref", func(m *Manifest) {
		m.Offers = append(m.Offers, Offer{ID: "o2", Contract: ContractAddress("read"), Implementation: "mini", Targets: []string{service}})
	}},
	{RuleOfferInvalid, "execution_bindings.0.target_addresses", func(m *Manifest) { m.Offers[0].Targets = nil }},
	{RuleOfferInvalid, "execution_bindings.0.target_addresses.0", func(m *Manifest) { m.Offers[0].Targets = []string{"portal"} }},
	{RuleOfferInvalid, "execution_bindings.0.max_in_flight", func(m *Manifest) { m.Offers[0].MaxInFlight = -1 }},
	{RuleOfferInvalid, "execution_bindings.0.max_in_flight", func(m *Manifest) { m.Offers[0].MaxInFlight = 1_025 }},
	{RuleOfferInvalid, "execution_bindings.0.timeout_seconds", func(m *Manifest) { m.Offers[0].Timeout = -1 }},
	{RuleManifestName, "implementation", func(m *Manifest) { m.Implementation = "mini" }},
	{RuleManifestName, "implementation", func(m *Manifest) { m.Implementation = "" }},
	{RuleManifestName, "implementation", func(m *Manifest) { m.Implementation = "a b@1" }},
	{RuleNoAttach, claimAt, nil},
}

func TestRegister(t *testing.T) {
	compiled, err := Compile(portal())
	if err != nil {
		t.Fatal(err)
	}
	if err := Register(manifest(), true, compiled.Participants...); err != nil {
		t.Errorf("a good manifest is refused: %v", err)
	}
	for _, c := range refused {
		m := manifest()
		if c.change != nil {
			c.change(&m)
		}
		err := Register(m, c.rule != RuleNoAttach, compiled.Participants...)
		if f := Faults(err); len(f) != 1 || f[0].Rule != c.rule || strings.Join(f[0].At, ".") != c.at {
			t.Errorf("%s at %s: got %v", c.rule, c.at, err)
		}
	}
	if !strings.Contains(Register(manifest(), false).Error(), "attach_invocation_tool_actions") {
		t.Error("the message does not name the method")
	}
}

// TestRegisterAtTheLimits: the ceilings themselves are fine.
func TestRegisterAtTheLimits(t *testing.T) {
	m := manifest()
	m.Claim.Total, m.Claim.Concurrent = MaxTotal, MaxConcurrent
	m.Features = map[string]Level{FeatureToolAffordances: DisclosedWeak, FeatureAutonomous: Bounded}
	m.Offers[0].MaxInFlight = MaxConcurrent
	if err := Register(m, true); err != nil {
		t.Error(err)
	}
	m.Claim.Total, m.Claim.Concurrent = 1, 1
	if err := Register(m, true); err != nil {
		t.Error(err)
	}
}

// TestRegisterWithoutClaim: then nothing is attached, so nothing of it is asked for, method or not.
func TestRegisterWithoutClaim(t *testing.T) {
	compiled, err := Compile(portal())
	if err != nil {
		t.Fatal(err)
	}
	for _, attaches := range []bool{true, false} {
		if err := Register(Manifest{Implementation: mini}, attaches, compiled.Participants...); err != nil {
			t.Errorf("attaches %v: %v", attaches, err)
		}
	}
}
