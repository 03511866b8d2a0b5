package config

// This file holds the roots of authored admission. The limits of a claim and the completeness of an execution binding
// are rules of registration, which package participant tells by their codes; the shapes leave them to it.

// specificationShape is one behavior specification.
type specificationShape struct {
	positioned
	Participants val[[]val[string]]    `key:"participant_refs" doc:"Participants, by name." default:"those that are named below it"`
	Roles        val[[]val[string]]    `key:"participant_role_refs" doc:"And every participant with one of these roles." default:"none"`
	Contracts    val[[]val[string]]    `key:"action_contract_refs" doc:"The action contracts its affordances may have." default:"those they name"`
	Boundaries   val[[]val[string]]    `key:"observation_boundary_refs" doc:"The observation boundaries its affordances may have." default:"those they name"`
	Autonomous   *autonomousShape      `key:"autonomous_execution" doc:"The policy of the participants' invocations. Without one nothing is bound."`
	Crossing     *crossingValue        `key:"crossing_policy" doc:"The participant-crossing policy that is installed, by name or in full; with one, the port refuses every action."`
	Affordances  dict[affordanceShape] `key:"tool_affordances" doc:"Tool affordances, by id."`
}

// crossingValue is a participant-crossing policy: a name, or the policy itself, which nobody here reads.
type crossingValue struct {
	name val[string]
}

func (c *crossingValue) decode(d *decoder, n *node, f field) {
	switch n.kind {
	case kindString:
		c.name.decode(d, n, f)
	case kindMap:
	default:
		d.wrongType(n, f, "a name or a mapping")
	}
}

func (c *crossingValue) schema(*generator, field) schema {
	return schema{"anyOf": []schema{{"type": "string", "pattern": `\S`}, {"type": "object"}}}
}

// autonomousShape is an autonomous execution policy, as far as admission is concerned.
type autonomousShape struct {
	Profile      val[string]        `key:"profile" default:"v1" doc:"v1, v2 or v3, or participant-autonomous-execution/v1 and so on. Under v3 the port refuses every action."`
	Participants val[[]val[string]] `key:"participant_refs" doc:"The participants whose invocations it owns." default:"the specification's participant_refs"`
	Contract     val[string]        `key:"action_contract_ref" doc:"The action contract of the invocation itself." default:"participant.action-contract.turn"`
}

// affordanceShape is one tool affordance. It is closed: nothing of how a tool is run stands here.
type affordanceShape struct {
	positioned
	Contracts    val[[]val[string]] `key:"action_contract_refs" doc:"The action contracts a tool call can use: at least one."`
	Boundaries   val[[]val[string]] `key:"observation_boundary_refs" doc:"The observation boundaries a tool call can use: at least one."`
	Participants val[[]val[string]] `key:"participant_refs" doc:"The participants it is for." default:"those of the specification"`
	Roles        val[[]val[string]] `key:"participant_role_refs" doc:"And those of the specification with one of these roles." default:"none"`
	Tool         val[string]        `key:"tool_ref" doc:"The identity of the tool; not needed for admission."`
}

// contractShape is one action contract.
type contractShape struct {
	positioned
	Effects       []contractEffectShape       `key:"effects" doc:"What the action does."`
	Preconditions []contractPreconditionShape `key:"preconditions" doc:"What it rests on."`
	Failures      val[[]val[string]]          `key:"failure_classes" doc:"How it can fail, in the portable classes."`
	SharedTime    *sharedTimeShape            `key:"shared_time" doc:"A shared-time binding; the port refuses an action that has one."`
}

type contractEffectShape struct {
	positioned
	Targets val[[]val[string]] `key:"target_refs" doc:"What is acted on. Runtime addresses (provision.…) are targets; other references are not."`
}

type contractPreconditionShape struct {
	positioned
	Supports val[[]val[string]] `key:"support_refs" doc:"What it needs. Runtime addresses (provision.…) are targets too; other references are not."`
}

// sharedTimeShape is a binding of a contract to a shared clock.
type sharedTimeShape struct {
	positioned
	Version val[string] `key:"semantic_version" enum:"participant-shared-time/v1" doc:"The version of the binding."`
	Clock   val[string] `key:"clock_ref" doc:"The shared clock."`
	Kind    val[string] `key:"guarantee" enum:"deadline,dwell" doc:"What is guaranteed: an end, or a stay."`
	Ticks   val[int]    `key:"ticks" min:"0" doc:"By how many ticks of the clock."`
}

// boundaryShape is one observation boundary: every reference is in exactly one list.
type boundaryShape struct {
	positioned
	Observable val[[]val[string]] `key:"observable" doc:"References that the participant sees."`
	Hidden     val[[]val[string]] `key:"hidden" doc:"References that it does not see."`
	Evidence   val[[]val[string]] `key:"evidence" doc:"References that an outcome may carry as evidence."`
}

// participantShape is one participant.
type participantShape struct {
	positioned
	Role           val[string]        `key:"role" doc:"Its role, for participant_role_refs."`
	Actions        val[[]val[string]] `key:"actions" doc:"The action contracts it may use at all." default:"those it is granted"`
	Boundaries     val[[]val[string]] `key:"observation_boundaries" doc:"The observation boundaries it may have at all." default:"those it is granted"`
	Implementation val[string]        `key:"implementation" doc:"Who drives it: NAME@VERSION." default:"that of the only runtime"`
	Exposure       exposureShape      `key:"exposure" doc:"What may be exposed of it."`
}

type exposureShape struct {
	Withheld val[[]val[string]] `key:"withheld_refs" doc:"References that no outcome of its actions may carry, whatever the boundary says." default:"none"`
}

// runtimeShape is what a participant runtime says of itself.
type runtimeShape struct {
	positioned
	Implementation val[string]       `key:"implementation" doc:"The participant implementation it drives: NAME@VERSION."`
	Capabilities   capabilitiesShape `key:"capabilities" doc:"What it can do."`
	Bindings       []bindingShape    `key:"execution_bindings" doc:"Offers to run an action contract against targets."`
}

type capabilitiesShape struct {
	Participant capabilityShape `key:"participant_runtime" doc:"What it can do as a participant runtime."`
}

type capabilityShape struct {
	Autonomous val[bool]     `key:"supports_autonomous_execution" default:"false" doc:"Whether it runs autonomous policies."`
	Features   featuresShape `key:"supported_behavior_features" doc:"How well it supports single features."`
	Claim      *claimShape   `key:"invocation_tool_actions" doc:"The claim that every tool call inside an invocation is admitted. Without it no port is attached."`
}

type featuresShape struct {
	Affordances val[string] `key:"tool_affordances" enum:"exact,bounded,disclosed_weak,unsupported" default:"unsupported" doc:"exact, bounded, disclosed_weak or unsupported."`
	Autonomous  val[string] `key:"autonomous_execution" enum:"exact,bounded,disclosed_weak,unsupported" doc:"exact, bounded, disclosed_weak or unsupported; it agrees with supports_autonomous_execution."`
}

type claimShape struct {
	Versions   val[[]val[string]] `key:"semantic_versions" doc:"participant-invocation-tool-actions/v1."`
	Total      val[int]           `key:"max_tool_actions_per_invocation" doc:"Actions of one invocation: 1 to 10000."`
	Concurrent val[int]           `key:"max_concurrent_tool_actions_per_invocation" doc:"Actions at the same time: 1 to 1024, and not more than in all."`
}

// bindingShape is one offer.
type bindingShape struct {
	positioned
	ID             val[string]        `key:"binding_id" doc:"A name for the binding, once per runtime."`
	Contract       val[string]        `key:"action_contract_ref" doc:"The action contract, by name."`
	Address        val[string]        `key:"action_contract_address" doc:"The action contract, by address, instead of action_contract_ref."`
	Targets        val[[]val[string]] `key:"target_addresses" doc:"What it can act on: at least one."`
	Implementation val[string]        `key:"participant_implementation_ref" doc:"For which implementation: NAME@VERSION." default:"the runtime's"`
	Constraints    val[[]val[string]] `key:"constraint_refs" doc:"Kept; nothing depends on it."`
	Evidence       val[[]val[string]] `key:"evidence_refs" doc:"Kept; nothing depends on it."`
	Attempts       val[int]           `key:"max_action_attempts" min:"1" doc:"Kept; the claim's limits count actions."`
	InFlight       val[int]           `key:"max_in_flight" min:"1" max:"1024" doc:"Actions of this binding at the same time, in one invocation." default:"no bound of its own"`
	Timeout        val[int]           `key:"timeout_seconds" min:"1" max:"86400" doc:"How long one action may take from its grant." default:"no bound of its own"`
	Retries        val[int]           `key:"max_retries" min:"0" max:"1024" doc:"Kept; admission never repeats an action."`
}
