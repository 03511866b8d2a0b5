package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"writ"
	"writ/store"
)

// Event types of the history. Every settled tool action has the first three, in this order; so has its invocation.
const (
	EventAttempted  = "action_attempted"
	EventTransition = "state_transition_recorded"
	EventObserved   = "observation_emitted"
	EventOperation  = "operation_recorded" // a resolution, a late report, a decided approval: what was done about an action later
)

// Settlements that an invocation_tool_context names.
const (
	SettlementCompleted     = "completed"
	SettlementWithheld      = "withheld"
	SettlementIndeterminate = "indeterminate"
)

// Statuses of an action result, and of an observation.
const (
	StatusSucceeded = "succeeded"
	StatusFailed    = "failed"
	StatusWithheld  = "withheld"
	StatusUnknown   = "unknown"

	ObservationTerminal = "terminal"
	ObservationOrphaned = "orphaned_action"
)

// Event is the body of one entry of the history. It holds references, codes and digests, never a value: no argument,
// result, credential or error text. Which fields an event of which type has is in docs/history.md.
type Event struct {
	EventType    string            `json:"event_type"`
	Timestamp    string            `json:"timestamp"` // RFC 3339, UTC: when it was committed
	Participant  string            `json:"participant_address"`
	Episode      string            `json:"episode_id"`
	ActionID     string            `json:"action_instance_id"`
	Contract     string            `json:"action_contract_address,omitempty"`
	Phase        string            `json:"lifecycle_phase,omitempty"`
	Realization  string            `json:"phase_realization,omitempty"`
	Disposition  string            `json:"admission_disposition,omitempty"`
	Actor        string            `json:"actor_provenance,omitempty"`
	Transition   string            `json:"state_transition_kind,omitempty"`
	StateDigest  string            `json:"post_state_digest,omitempty"`
	Boundary     string            `json:"observation_boundary_address,omitempty"`
	Observation  string            `json:"observation_point,omitempty"`
	ObservedAs   string            `json:"observation_status,omitempty"`
	ActionResult *ActionResult     `json:"action_result,omitempty"`
	Tool         *ToolContext      `json:"invocation_tool_context,omitempty"`
	Operation    *OperationContext `json:"operation,omitempty"`
}

// ActionResult is what an observation says of an outcome.
type ActionResult struct {
	Status   string   `json:"status"`
	Failure  string   `json:"failure_class,omitempty"`
	Evidence []string `json:"evidence_refs,omitempty"`
	Digest   string   `json:"result_digest,omitempty"`
}

// OperationContext tells what was done about an action after it had been settled or held.
type OperationContext struct {
	ID       string   `json:"operation_id"`
	Kind     string   `json:"kind"`
	Parent   string   `json:"parent_operation_id"`
	Actor    string   `json:"actor"`
	Decision string   `json:"decision"` // a disposition, a verdict, or the state that a late report tells of
	Evidence []string `json:"evidence_refs,omitempty"`
}

// ToolContext tells of which invocation a tool action is; all three events of a tool action have it, with equal values.
type ToolContext struct {
	Invocation         string    `json:"invocation_action_instance_id"`
	InvocationContract string    `json:"invocation_action_contract_address"`
	Affordance         string    `json:"tool_affordance_address"`
	ToolCallID         string    `json:"tool_call_id"`
	Ordinal            int       `json:"admission_ordinal"`
	Settlement         string    `json:"settlement"`
	Scope              string    `json:"execution_scope_ref"`
	Generation         int64     `json:"execution_generation"`
	AdmittedAt         time.Time `json:"admitted_at"`
	DispatchedAt       time.Time `json:"dispatched_at,omitzero"`
	SettledAt          time.Time `json:"settled_at"`
}

// Ending says what became of an invocation. The zero value is one that raised or returned something invalid: the tool
// history commits, the attempt is consumed, and the invocation itself gets no events.
type Ending struct {
	Status  string // StatusSucceeded, StatusFailed or StatusPartial
	Failure string // failure class, when not succeeded
}

// valid reports whether the invocation itself is told in the history.
func (e Ending) valid() bool {
	switch e.Status {
	case StatusSucceeded:
		return e.Failure == ""
	case StatusFailed, StatusPartial, StatusRejected:
		return failureClass(e.Failure)
	}
	return false
}

// identity is what the history needs to know of an invocation; it is stored with the turn, so that a restart can tell
// the history of one that was cut off.
type identity struct {
	Participant    string `json:"participant_address"`
	Implementation string `json:"participant_implementation_ref"`
	Contract       string `json:"action_contract_address"`
	Boundary       string `json:"observation_boundary_address,omitempty"`
	Scope          string `json:"execution_scope_ref"`
	Generation     int64  `json:"execution_generation"`
	Observation    string `json:"observation_point"`
}

func (in *Invocation) identity() identity {
	id := identity{Participant: in.Participant, Implementation: in.Implementation, Contract: in.OuterContract, Scope: in.Scope,
		Generation: in.Generation, Observation: in.Observation}
	if id.Scope == "" {
		id.Scope = in.Conversation
	}
	if len(in.Boundaries) > 0 {
		id.Boundary = in.Boundaries[0].Address
	}
	return id
}

// Turn is the row of the invocation as it begins: running, with the identity that its history will carry.
func (in *Invocation) Turn(holder, configDigest string, now time.Time) store.Turn {
	body, _ := json.Marshal(in.identity()) // strings and one integer always marshal
	return store.Turn{ID: in.ID, Conversation: in.Conversation, Agent: in.Agent, State: store.TurnRunning, Kind: in.Kind, Tenant: in.Tenant,
		Owner: in.Owner, Body: body, ConfigDigest: configDigest, Holder: holder, Started: now}
}

func identityOf(t store.Turn) identity {
	var id identity
	if len(t.Body) > 0 {
		_ = json.Unmarshal(t.Body, &id) // written by Turn; a turn of an older version has none
	}
	return id
}

// history tells all settled actions of an invocation, in admission order, and then the invocation itself.
func history(id identity, turn, conversation string, rows []store.Action, end Ending, now time.Time) []store.Event {
	var out []store.Event
	for i := range rows {
		if rows[i].State.Settled() {
			out = append(out, actionEvents(id, &rows[i], now)...)
		}
	}
	if !end.valid() {
		return out
	}
	base := Event{Participant: id.Participant, Episode: conversation, ActionID: turn, Contract: id.Contract}
	result := &ActionResult{Status: end.Status, Failure: end.Failure}
	digest := stateDigest(id.Participant, id.Contract, id.Boundary, turn, id.Scope, fmt.Sprint(id.Generation))
	return append(out, triple(base, id, "admitted", "participant_action_admitted", ObservationTerminal, digest, result, turn, now)...)
}

func actionEvents(id identity, row *store.Action, now time.Time) []store.Event {
	ctx := &ToolContext{Invocation: row.Turn, InvocationContract: id.Contract, Affordance: row.Affordance, ToolCallID: row.ToolCallID,
		Ordinal: row.Ordinal, Scope: row.Scope, Generation: row.Generation, Settlement: SettlementCompleted,
		AdmittedAt: row.AdmittedAt.UTC(), DispatchedAt: row.DispatchedAt.UTC(), SettledAt: row.SettledAt.UTC()}
	if row.DispatchedAt.IsZero() {
		ctx.DispatchedAt = time.Time{}
	}
	base := Event{Participant: row.Participant, Episode: row.Conversation, ActionID: row.ID, Contract: row.Contract, Tool: ctx}
	disposition, kind, observed, status := "admitted", "participant_action_admitted", ObservationTerminal, string(row.State)
	switch row.State {
	case writ.Withheld:
		ctx.Settlement, disposition, kind, status = SettlementWithheld, "withheld", "participant_action_withheld", StatusWithheld
	case writ.Indeterminate:
		ctx.Settlement, kind, observed, status = SettlementIndeterminate, "participant_action_indeterminate", ObservationOrphaned, StatusUnknown
	}
	if row.Status != "" {
		status = row.Status
	}
	parts := append([]string{row.Participant, row.Contract, row.Boundary, row.ID}, row.Targets...)
	digest := stateDigest(append(parts, row.Scope, fmt.Sprint(row.Generation))...)
	id.Boundary, id.Implementation, id.Observation = row.Boundary, row.Implementation, row.Observation
	return triple(base, id, disposition, kind, observed, digest, &ActionResult{Status: status, Failure: row.Failure, Evidence: row.Evidence, Digest: row.ResultDigest}, row.Turn, now)
}

// triple makes the three events of one action.
func triple(base Event, id identity, disposition, kind, observed, digest string, res *ActionResult, turn string, now time.Time) []store.Event {
	one, two, three := base, base, base
	one.EventType, one.Phase, one.Realization, one.Disposition = EventAttempted, "selection_or_admission", "runtime_mediated", disposition
	one.Actor = "participant-implementation:" + id.Implementation
	two.EventType, two.Phase, two.Transition, two.StateDigest = EventTransition, "state_update_commit", kind, digest
	three.EventType, three.Phase, three.Boundary, three.ObservedAs = EventObserved, "observation_emission", id.Boundary, observed
	three.StateDigest, three.Observation, three.ActionResult = digest, id.Observation, res
	return []store.Event{one.stored(turn, now), two.stored(turn, now), three.stored(turn, now)}
}

// stored is the event as the store keeps it.
func (e Event) stored(turn string, now time.Time) store.Event {
	now = now.UTC().Truncate(time.Microsecond)
	e.Timestamp = now.Format(time.RFC3339Nano)
	body, _ := json.Marshal(e) // only strings, numbers and times
	return store.Event{Conversation: e.Episode, Participant: e.Participant, Turn: turn, Action: e.ActionID, Type: e.EventType, Body: body, Time: now}
}

// stateDigest is a digest of what the action was, not of the state of the world: identities only.
func stateDigest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
