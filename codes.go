package writ

// codeMeanings is the closed set of refusal codes with what each says to a person and to the model. docs/refusals.md
// is this table; a test compares them.
var codeMeanings = []struct {
	Code    Code
	Meaning string
}{
	{CodeTooManyActions, "the round has as many actions as it may have; send it in the next round"},
	{CodeStrategyIncompatible, "it may not follow an earlier action of the same round, whose result does not exist yet; send it in the next round"},
	{CodeFinalAfterNonNeutral, "a final answer may not stand beside an action whose result has not been seen; answer in the next round"},
	{CodeNonNeutralAfterFinal, "after a final answer only purely neutral tools may be called; call it in a round before the answer"},
	{CodeSecondFinal, "the round has a final answer already; give one"},
	{CodeUnknownTool, "no tool of this agent has that id; use one of the catalog"},
	{CodeInvalidAction, "the action block is not one well-formed decision; write exactly one JSON object"},
	{CodeArgumentsUnparsable, "the arguments are not one JSON object within the limits; write them anew"},
	{CodeArgumentsInvalid, "the arguments do not fit the tool's parameters; the model is told where"},
	{CodeTruncated, "the output ended before the action did; nothing of it was run; write less in one round"},
	{CodeSameTarget, "an earlier action of the round writes the same target; do it in the next round"},
	{CodeConsumesSibling, "it uses what another action of the same round only makes; do it in the next round"},
	{CodeInterrupted, "the turn was stopped before it ran"},
	{CodeInvocationInactive, "the invocation has not begun"},
	{CodeInvocationClosed, "the invocation is over"},
	{CodeRequestInvalid, "the request is not well formed"},
	{CodeIdentityMismatch, "the request names another invocation than the one it was sent to"},
	{CodeRequestConflict, "the same call was recorded with other arguments; what was recorded stands"},
	{CodeStateConflict, "the action is not in the state that the request expects"},
	{CodeOutcomeInvalid, "the outcome is not one that can be recorded; report it as unknown"},
	{CodeLedgerUnavailable, "the ledger could not record it, so it was not run"},
	{CodeActionLimitReached, "the invocation has had as many actions as it may have"},
	{CodeConcurrencyLimitReached, "as many actions as may run at once are running; try again when one has settled"},
	{CodeGenerationStale, "the conversation has been taken over; this run may start nothing more"},
	{CodeActionUnknown, "no action of this invocation has that id"},
	{CodeAffordanceUnbound, "the agent's connections do not offer that action"},
	{CodeBoundaryUnbound, "the observation boundary does not belong to that action"},
	{CodeTargetUnbound, "a target does not belong to that action"},
	{CodeAffordanceAmbiguous, "two bindings offer that action, so neither does"},
	{CodeTargetQuarantined, "an earlier action on the same target may have happened and nobody knows; until that is resolved only looking is allowed"},
	{CodeTemporalBindingUnsupported, "the action is bound to a shared clock, which is not supported"},
	{CodeExecutionBindingUnavailable, "no execution binding covers that action on those targets"},
	{CodeExecutionBindingAmbiguous, "two execution bindings cover that action, so neither does"},
	{CodePolicyProfileUnsupported, "the policy's profile wants resource vectors, which are not supported"},
	{CodeCrossingPolicyUnsupported, "a participant-crossing policy is installed, which is not supported"},
	{CodeRoleDenied, "the person's role does not allow that action"},
	{CodeConsentRequired, "the action needs a consent that has not been given"},
	{CodeBudgetExhausted, "a budget is used up"},
	{CodeApprovalRequired, "the action is recorded and waits for an approval; it has not run"},
}

// Codes lists the refusal codes in the order of their table.
func Codes() []Code {
	out := make([]Code, len(codeMeanings))
	for i, m := range codeMeanings {
		out[i] = m.Code
	}
	return out
}

// Meaning says in one clause why an action was refused and what to do; "" for a code that is none.
func (c Code) Meaning() string {
	for _, m := range codeMeanings {
		if m.Code == c {
			return m.Meaning
		}
	}
	return ""
}
