package writ

// ActionState is the state of a row in the ledger. The zero value is no state; a row always has one of these.
type ActionState string

// The states of docs/ledger.md.
const (
	Held          ActionState = "held"          // waits for an approval
	Admitted      ActionState = "admitted"      // recorded; nothing has happened
	Dispatched    ActionState = "dispatched"    // granted once; the effect may have happened
	Succeeded     ActionState = "succeeded"     // happened, and the tool said so
	Failed        ActionState = "failed"        // the tool said it failed, or it certainly did not start
	Withheld      ActionState = "withheld"      // never started
	Indeterminate ActionState = "indeterminate" // may have happened; nobody knows
)

// ActionStates lists the states in the order of their life.
func ActionStates() []ActionState {
	return []ActionState{Held, Admitted, Dispatched, Succeeded, Failed, Withheld, Indeterminate}
}

// Settled reports whether the row will not change again.
func (s ActionState) Settled() bool {
	switch s {
	case Succeeded, Failed, Withheld, Indeterminate:
		return true
	}
	return false
}

// Code is a refusal code: why an action was not run. The set is closed and stable; docs/refusals.md is its table.
type Code string

// Codes of the overseer and of validation.
const (
	CodeTooManyActions       Code = "too_many_actions"
	CodeStrategyIncompatible Code = "strategy_incompatible"
	CodeFinalAfterNonNeutral Code = "final_after_non_neutral"
	CodeNonNeutralAfterFinal Code = "non_neutral_after_final"
	CodeSecondFinal          Code = "second_final"
	CodeUnknownTool          Code = "unknown_tool"
	CodeInvalidAction        Code = "invalid_action"
	CodeArgumentsUnparsable  Code = "arguments_unparsable"
	CodeArgumentsInvalid     Code = "arguments_invalid"
	CodeTruncated            Code = "truncated"
	CodeSameTarget           Code = "same_target"
	CodeConsumesSibling      Code = "consumes_sibling"
	CodeInterrupted          Code = "interrupted" // the turn was stopped before the action was admitted
)

// Codes of admission (the admission article; the set grows with the port).
const (
	CodeInvocationInactive      Code = "invocation_inactive"
	CodeInvocationClosed        Code = "invocation_closed"
	CodeRequestInvalid          Code = "request_invalid"
	CodeIdentityMismatch        Code = "identity_mismatch"
	CodeRequestConflict         Code = "request_conflict"
	CodeStateConflict           Code = "state_conflict"
	CodeOutcomeInvalid          Code = "outcome_invalid"
	CodeLedgerUnavailable       Code = "ledger_unavailable"
	CodeActionLimitReached      Code = "action_limit_reached"
	CodeConcurrencyLimitReached Code = "concurrency_limit_reached"
	CodeGenerationStale         Code = "generation_stale"
	CodeActionUnknown           Code = "action_unknown"
	CodeAffordanceUnbound       Code = "affordance_unbound"
	CodeBoundaryUnbound         Code = "boundary_unbound"
	CodeTargetUnbound           Code = "target_unbound"

	CodeAffordanceAmbiguous         Code = "affordance_ambiguous"
	CodeTargetQuarantined           Code = "target_quarantined"
	CodeTemporalBindingUnsupported  Code = "temporal_binding_unsupported"
	CodeExecutionBindingUnavailable Code = "execution_binding_unavailable"
	CodeExecutionBindingAmbiguous   Code = "execution_binding_ambiguous"
	CodePolicyProfileUnsupported    Code = "policy_profile_unsupported"
	CodeCrossingPolicyUnsupported   Code = "crossing_policy_unsupported"
	CodeRoleDenied                  Code = "role_denied"
	CodeConsentRequired             Code = "consent_required"
	CodeBudgetExhausted             Code = "budget_exhausted"
	CodeApprovalRequired            Code = "approval_required"
)

// FinalAction names the two actions that end a turn in the channel dialect.
const (
	ActionCall     = "call_tool"
	ActionComplete = "complete"
	ActionExit     = "exit"
)
