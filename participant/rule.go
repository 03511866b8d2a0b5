package participant

// Rule is the code of a rule of authored admission. The set is closed and stable; docs/admission.md is its table.
type Rule string

// Rules of compilation.
const (
	RuleName                Rule = "participant.name-invalid"
	RuleReference           Rule = "participant.reference-unbound"
	RuleRepeated            Rule = "participant.reference-repeated"
	RuleTargetMalformed     Rule = "participant.target-malformed"
	RuleFailureClass        Rule = "participant.failure-class-unknown"
	RuleClassifiedTwice     Rule = "participant.observation-boundary-classified-twice"
	RulePattern             Rule = "participant.observation-boundary-pattern"
	RuleWithheldUnknown     Rule = "participant.exposure-withheld-unclassified"
	RuleImplementation      Rule = "participant.implementation-unbound"
	RuleImplementationTwice Rule = "participant.implementation-ambiguous"
	RuleTooManyBindings     Rule = "participant.tool-affordance-too-many-bindings"

	RuleAffordanceEmpty     Rule = "participant.tool-affordance-relation-empty"
	RuleAffordanceTwice     Rule = "participant.tool-affordance-duplicate-relation"
	RuleContractUnbound     Rule = "participant.tool-affordance-action-contract-ref-unbound"
	RuleBoundaryUnbound     Rule = "participant.tool-affordance-observation-boundary-ref-unbound"
	RuleContractWidens      Rule = "participant.tool-affordance-action-widens-parent"
	RuleBoundaryWidens      Rule = "participant.tool-affordance-boundary-widens-parent"
	RuleParticipantWidens   Rule = "participant.tool-affordance-participant-widens-parent"
	RuleContractOutside     Rule = "participant.tool-affordance-action-outside-participant"
	RuleBoundaryOutside     Rule = "participant.tool-affordance-boundary-outside-participant"
	RuleViewUnclassified    Rule = "participant.tool-affordance-view-unclassified"
	RuleContractNoTarget    Rule = "participant.tool-affordance-action-without-target"
	RulePolicyProfile       Rule = "participant.autonomous-profile-unknown"
	RulePolicyNobody        Rule = "participant.autonomous-explicit-participants-required"
	RulePolicyWidens        Rule = "participant.autonomous-participant-widens-parent"
	RulePolicyTwoOwners     Rule = "participant.autonomous-two-owners"
	RulePolicyActionWidens  Rule = "participant.autonomous-action-widens-parent"
	RulePolicyActionOutside Rule = "participant.autonomous-action-outside-participant"
)

// Rules of registration.
const (
	RuleVersion         Rule = "registry.tool-actions-version-unsupported"
	RuleLimits          Rule = "registry.tool-actions-limits-invalid"
	RuleNoAutonomous    Rule = "registry.tool-actions-without-autonomous-execution"
	RuleNoAffordances   Rule = "registry.tool-actions-without-tool-affordances"
	RuleFeatureDiffers  Rule = "registry.autonomous-execution-disagrees"
	RuleFeatureLevel    Rule = "registry.feature-level-unknown"
	RuleNoAttach        Rule = "registry.target-contract-mismatch"
	RuleOfferMissing    Rule = "registry.execution-binding-missing"
	RuleOfferTwice      Rule = "registry.execution-binding-duplicate"
	RuleOfferRepeatedID Rule = "registry.execution-binding-id-duplicate"
	RuleOfferInvalid    Rule = "registry.execution-binding-invalid"
	RuleManifestName    Rule = "registry.implementation-invalid"
)

// rules is every rule with what it says, in the order of the document.
var rules = []struct {
	rule    Rule
	meaning string
}{
	{RuleName, "a name is not of lower case letters, digits, `-` and `_`, up to 64, a letter or digit first"},
	{RuleReference, "a reference names nothing that the file declares"},
	{RuleRepeated, "a list has the same reference twice"},
	{RuleTargetMalformed, "a reference starts with `provision.` and is no address"},
	{RuleFailureClass, "a failure class is none of the closed set"},
	{RuleClassifiedTwice, "a boundary classifies a reference more than once"},
	{RulePattern, "a boundary or an exposure has a pattern; references are written out"},
	{RuleWithheldUnknown, "a withheld reference is in no boundary, so that withholding it would do nothing"},
	{RuleImplementation, "no runtime drives the participant's implementation"},
	{RuleImplementationTwice, "several runtimes could drive the participant"},
	{RuleTooManyBindings, "the affordances make more than 100,000 bindings; what follows is not looked at"},

	{RuleAffordanceEmpty, "an affordance names no action contract, or no observation boundary"},
	{RuleAffordanceTwice, "two affordances of a specification have the same tool, contracts, boundaries and participants"},
	{RuleContractUnbound, "an affordance names an action contract that is not declared"},
	{RuleBoundaryUnbound, "an affordance names an observation boundary that is not declared"},
	{RuleContractWidens, "an affordance has an action contract that its specification's list does not have"},
	{RuleBoundaryWidens, "an affordance has an observation boundary that its specification's list does not have"},
	{RuleParticipantWidens, "an affordance has a participant or role that its specification does not have"},
	{RuleContractOutside, "an affordance has an action contract that a participant's `actions` does not have"},
	{RuleBoundaryOutside, "an affordance has an observation boundary that a participant's `observation_boundaries` does not have"},
	{RuleViewUnclassified, "a boundary that an affordance names does not classify the affordance's own reference"},
	{RuleContractNoTarget, "an affordance has an action contract without any target"},
	{RulePolicyProfile, "the policy profile is none of v1, v2 and v3"},
	{RulePolicyNobody, "an autonomous policy names no participant; roles do not count"},
	{RulePolicyWidens, "an autonomous policy has a participant that its specification does not have"},
	{RulePolicyTwoOwners, "two specifications have an autonomous policy for the same participant"},
	{RulePolicyActionWidens, "the policy's own action contract is not in its specification's list"},
	{RulePolicyActionOutside, "the policy's own action contract is not among a participant's `actions`"},

	{RuleVersion, "the claim names no version of the composition, or one that is not `" + SemanticVersion + "`"},
	{RuleLimits, "a limit of the claim is missing, less than 1 or above the ceiling (10,000 in total, 1,024 at the same time), or more at the same time than in total"},
	{RuleNoAutonomous, "the claim stands without `supports_autonomous_execution: true`"},
	{RuleNoAffordances, "the claim stands without a `tool_affordances` level of `exact`, `bounded` or `disclosed_weak`"},
	{RuleFeatureDiffers, "`supports_autonomous_execution` and the level of `autonomous_execution` contradict each other"},
	{RuleFeatureLevel, "a feature's level is none of `exact`, `bounded`, `disclosed_weak`, `unsupported`"},
	{RuleNoAttach, "the runtime has no method that takes the port"},
	{RuleOfferMissing, "a claimed tool contract has no execution binding for the participant's implementation"},
	{RuleOfferTwice, "two execution bindings cover the same contract, implementation and target"},
	{RuleOfferRepeatedID, "two execution bindings have the same id"},
	{RuleOfferInvalid, "an execution binding lacks its id, contract, implementation or targets, or a bound is negative"},
	{RuleManifestName, "an implementation is not written NAME@VERSION"},
}

// Rules lists every rule in the order of the document.
func Rules() []Rule {
	out := make([]Rule, len(rules))
	for i, r := range rules {
		out[i] = r.rule
	}
	return out
}

// Meaning says when the rule is broken, in Markdown; empty for what is no rule.
func (r Rule) Meaning() string {
	for _, known := range rules {
		if known.rule == r {
			return known.meaning
		}
	}
	return ""
}
