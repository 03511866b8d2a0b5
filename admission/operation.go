package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"writ"
	"writ/store"
)

// Dispositions of an unknown outcome.
const (
	EffectApplied = "effect_applied" // it happened
	EffectAbsent  = "effect_absent"  // it did not happen
	AcceptUnknown = "accept_unknown" // nobody can find out, and that is accepted
)

// Dispositions lists them.
func Dispositions() []string { return []string{EffectApplied, EffectAbsent, AcceptUnknown} }

// Errors of the operations on actions, for callers to branch on.
var (
	ErrForbidden = errors.New("admission: not allowed")
	ErrState     = errors.New("admission: the action is not in a state for that")
	ErrDone      = errors.New("admission: it has been done before")
	ErrInvalid   = errors.New("admission: invalid")
	ErrExpired   = errors.New("admission: the time for it is over")
)

const (
	maxNote = 4000
	maxKey  = 256
)

// Actor is who does something about an action.
type Actor struct {
	ID       string // for example local:1000
	Operator bool   // may act for everybody
}

func (a Actor) mayFor(owner string) bool { return a.Operator || a.ID != "" && a.ID == owner }

// Resolution says what was found out of an unknown outcome.
type Resolution struct {
	Action      string
	Disposition string
	By          Actor
	Note        string
	Evidence    []string
	Key         string // idempotency key; the same resolution again under it is accepted. Empty = a new one
}

// Resolve records what was found out of an indeterminate action, as an operation linked to it: the row never changes.
// The operator may, and the owner for their own. It lifts the quarantine of the action's targets and is an event of the
// conversation's history. A second resolution is ErrDone. blocks are written with it.
//
// It proves neither that the effect is there nor that it may be tried again: a new attempt is a new action.
func (l *Ledger) Resolve(ctx context.Context, r Resolution, blocks func(row store.Action, op store.Operation) []store.Block) (store.Operation, error) {
	fail := func(err error) (store.Operation, error) {
		return store.Operation{}, fmt.Errorf("admission: resolving %s: %w", r.Action, err)
	}
	row, err := l.cfg.Store.Action(ctx, r.Action)
	switch {
	case err != nil:
		return fail(err)
	case !slices.Contains(Dispositions(), r.Disposition):
		return fail(fmt.Errorf("%w: disposition %q is none of %v", ErrInvalid, r.Disposition, Dispositions()))
	case len(r.Note) > maxNote || !utf8.ValidString(r.Note) || !references(r.Evidence, maxEvidence) || len(r.Key) > maxKey:
		return fail(fmt.Errorf("%w: a note of at most %d bytes, at most %d different references, a key of at most %d bytes", ErrInvalid, maxNote, maxEvidence, maxKey))
	case r.Key != "" && r.Key == row.IdempotencyKey:
		return fail(fmt.Errorf("%w: the action's own idempotency key cannot be the resolution's", ErrInvalid))
	case !r.By.mayFor(row.Owner):
		return fail(ErrForbidden)
	case row.State != writ.Indeterminate:
		return fail(fmt.Errorf("%w: it is %s, and only an indeterminate one is resolved", ErrState, row.State))
	}
	body, _ := json.Marshal(map[string]any{"disposition": r.Disposition, "note": r.Note, "evidence_refs": r.Evidence})
	op := store.Operation{Kind: store.OperationResolution, Parent: row.ID, Tenant: row.Tenant, Actor: r.By.ID, Once: "resolution:" + row.ID, Body: body}
	return l.operate(ctx, op, row, r.Key, r.Disposition, r.Evidence, &store.Batch{}, blocks)
}

// Report keeps an outcome that came after its action had been settled as indeterminate, as an operation linked to it:
// the row stays, and the report is what a resolution can go by. Only the first one is kept. Who reports need not hold a
// lease or a port; he must be the one who ran it.
func (l *Ledger) Report(ctx context.Context, actionID, actor string, o Outcome, blocks func(row store.Action, op store.Operation) []store.Block) (store.Operation, error) {
	fail := func(err error) (store.Operation, error) {
		return store.Operation{}, fmt.Errorf("admission: late report of %s: %w", actionID, err)
	}
	row, err := l.cfg.Store.Action(ctx, actionID)
	switch {
	case err != nil:
		return fail(err)
	case !o.recordable():
		return fail(fmt.Errorf("%w: the outcome is not one that can be recorded", ErrInvalid))
	case row.State != writ.Indeterminate:
		return fail(fmt.Errorf("%w: it is %s", ErrState, row.State))
	}
	status := string(o.State)
	if o.Status != "" {
		status = o.Status
	}
	body, _ := json.Marshal(map[string]any{"status": status, "failure_class": o.Failure, "evidence_refs": o.Evidence, "result_digest": o.ResultDigest})
	op := store.Operation{Kind: store.OperationReport, Parent: row.ID, Tenant: row.Tenant, Actor: actor, Once: "report:" + row.ID, Body: body}
	return l.operate(ctx, op, row, "", status, o.Evidence, &store.Batch{}, blocks)
}

// Verdict decides an approval.
type Verdict struct {
	Action  string
	Approve bool
	By      Actor
	Note    string
	Key     string // idempotency key; empty = a new one
}

// Decide decides the approval of a held action, once. Approved, the action stays held until its invocation releases
// it, which checks everything again; declined, it is withheld in the same write, and block makes its result.
func (l *Ledger) Decide(ctx context.Context, v Verdict, block Block) (store.Approval, error) {
	fail := func(err error) (store.Approval, error) {
		return store.Approval{}, fmt.Errorf("admission: deciding on %s: %w", v.Action, err)
	}
	a, err := l.cfg.Store.Approval(ctx, v.Action)
	if err != nil {
		return fail(err)
	}
	row, err := l.cfg.Store.Action(ctx, v.Action)
	if err != nil {
		return fail(err)
	}
	now, want := l.cfg.Now(), store.ApprovalDeclined
	if v.Approve {
		want = store.ApprovalApproved
	}
	switch {
	case len(v.Note) > maxNote || !utf8.ValidString(v.Note) || len(v.Key) > maxKey:
		return fail(fmt.Errorf("%w: a note of at most %d bytes and a key of at most %d", ErrInvalid, maxNote, maxKey))
	case a.Approver == ByOperator && !v.By.Operator, !v.By.mayFor(a.Owner):
		return fail(fmt.Errorf("%w: its approver is the %s", ErrForbidden, a.Approver))
	case a.State != store.ApprovalPending && a.State == want && a.Actor == v.By.ID:
		return a, nil // the same decision again
	case a.State != store.ApprovalPending:
		return fail(fmt.Errorf("%w: it is %s", ErrDone, a.State))
	case !now.Before(a.Expires):
		return fail(fmt.Errorf("%w: it expired at %s", ErrExpired, a.Expires.UTC().Format(time.RFC3339)))
	}
	a.State, a.Actor, a.Note, a.Decided = want, v.By.ID, v.Note, now
	b := &store.Batch{Approvals: []store.ApprovalWrite{{Approval: a, Expect: store.ApprovalPending}}}
	if !v.Approve {
		w := store.ActionWrite{Action: row, Expect: writ.Held}
		w.State, w.Failure, w.SettledAt = writ.Withheld, FailureDeclined, now
		b.Actions, b.Blocks = []store.ActionWrite{w}, block.of(w.Action)
	}
	body, _ := json.Marshal(map[string]any{"decision": want, "note": v.Note, "argument_digest": a.ArgumentDigest, "policy_digest": a.PolicyDigest})
	op := store.Operation{Kind: store.OperationApproval, Parent: row.ID, Tenant: row.Tenant, Actor: v.By.ID, Once: "approval:" + row.ID, Body: body}
	if _, err := l.operate(ctx, op, row, v.Key, want, nil, b, nil); err != nil {
		return fail(err)
	}
	return a, nil
}

// Expire withholds the held actions whose approvals were not decided in time, each in one write with its result. It
// returns the rows. It is idempotent.
func (l *Ledger) Expire(ctx context.Context, f store.ApprovalFilter, block Block) ([]store.Action, error) {
	f.States = []string{store.ApprovalPending}
	list, err := l.cfg.Store.Approvals(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("admission: listing approvals: %w", err)
	}
	var out []store.Action
	for _, a := range list {
		now := l.cfg.Now()
		if now.Before(a.Expires) {
			continue
		}
		row, err := l.cfg.Store.Action(ctx, a.Action)
		if err != nil {
			return out, fmt.Errorf("admission: expiring %s: %w", a.Action, err)
		}
		a.State, a.Decided = store.ApprovalExpired, now
		w := store.ActionWrite{Action: row, Expect: writ.Held}
		w.State, w.Failure, w.SettledAt = writ.Withheld, FailureApprovalExpired, now
		b := &store.Batch{Approvals: []store.ApprovalWrite{{Approval: a, Expect: store.ApprovalPending}}, Actions: []store.ActionWrite{w}, Blocks: block.of(w.Action)}
		if err := l.commit(ctx, b); errors.Is(err, store.ErrConflict) {
			continue // decided at the same time
		} else if err != nil {
			return out, fmt.Errorf("admission: expiring %s: %w", a.Action, err)
		}
		out = append(out, w.Action)
	}
	return out, nil
}

// operate writes an operation on an action with its event in the conversation's history. Under a key that was used for
// the same, the stored operation is the answer; for something else, or when it was done before, ErrDone.
func (l *Ledger) operate(ctx context.Context, op store.Operation, row store.Action, key, decision string, evidence []string, b *store.Batch,
	blocks func(store.Action, store.Operation) []store.Block) (store.Operation, error) {
	op.ID, op.Time = l.cfg.NewID("op_"), l.cfg.Now()
	if key != "" {
		c := store.Claim{Scope: op.Kind + ":" + op.Tenant + ":" + op.Actor, Key: key, Subject: op.ID, Time: op.Time,
			Digest: l.digest("operation", []byte(op.Kind), []byte(op.Parent), op.Body)}
		have, err := l.cfg.Store.Claim(ctx, c.Scope, key)
		switch {
		case err == nil && have.Digest == c.Digest:
			return l.cfg.Store.Operation(ctx, have.Subject)
		case err == nil:
			return op, fmt.Errorf("%w: the key was used for something else", ErrDone)
		case !errors.Is(err, store.ErrNotFound):
			return op, err
		}
		b.Claims = []store.Claim{c}
	}
	b.Operations = []store.Operation{op}
	turn, err := l.cfg.Store.Turn(ctx, row.Turn)
	if err != nil {
		return op, err
	}
	e := Event{EventType: EventOperation, Participant: row.Participant, Episode: row.Conversation, ActionID: row.ID, Contract: row.Contract,
		Operation: &OperationContext{ID: op.ID, Kind: op.Kind, Parent: row.ID, Actor: op.Actor, Decision: decision, Evidence: evidence}}
	b.History = []store.Event{e.stored(turn.ID, op.Time)}
	if blocks != nil {
		b.Blocks = append(b.Blocks, blocks(row, op)...)
	}
	err = l.commit(ctx, b)
	var conflict *store.Conflict
	if errors.As(err, &conflict) {
		return op, fmt.Errorf("%w: %s", ErrDone, conflict.Why)
	}
	return op, err
}

// Operation states, as an operation reads to the outside.
const (
	OperationAccepted      = "accepted" // recorded, or waiting for an approval
	OperationRunning       = "running"
	OperationSucceeded     = "succeeded"
	OperationFailed        = "failed"
	OperationCancelled     = "cancelled" // never started
	OperationIndeterminate = "indeterminate"
)

// Operation is one thing that was done, as it reads to the outside: a tool action is a child of its invocation, a
// resolution a child of the action it is about.
type Operation struct {
	ID           string            `json:"operation_id"`
	Kind         string            `json:"kind"` // tool_action, invocation, or a kind of package store
	Parent       string            `json:"parent_operation_id,omitempty"`
	State        string            `json:"state"`
	Status       string            `json:"status,omitempty"` // of the result, where the state says less
	Failure      string            `json:"failure_class,omitempty"`
	Tool         string            `json:"tool,omitempty"`
	Ordinal      *int              `json:"admission_ordinal,omitempty"`
	Participant  string            `json:"participant_address,omitempty"`
	Episode      string            `json:"episode_id,omitempty"`
	Targets      []string          `json:"target_addresses,omitempty"`
	Evidence     []string          `json:"evidence_refs,omitempty"`
	Actor        string            `json:"actor,omitempty"`
	Detail       json.RawMessage   `json:"detail,omitempty"`
	AdmittedAt   time.Time         `json:"admitted_at,omitzero"`
	DispatchedAt time.Time         `json:"dispatched_at,omitzero"`
	SettledAt    time.Time         `json:"settled_at,omitzero"`
	Held         bool              `json:"held,omitempty"`
	Children     []store.Operation `json:"-"` // what was done about an action
	Cursor       int64             `json:"cursor,omitempty"`
}

// OperationOf reads a row as an operation.
func OperationOf(row store.Action) Operation {
	ordinal := row.Ordinal
	return Operation{ID: row.ID, Kind: "tool_action", Parent: row.Turn, State: operationState(row.State), Status: row.Status, Failure: row.Failure,
		Tool: row.Tool, Ordinal: &ordinal, Participant: row.Participant, Episode: row.Conversation, Targets: row.Targets, Evidence: row.Evidence,
		AdmittedAt: row.AdmittedAt, DispatchedAt: row.DispatchedAt, SettledAt: row.SettledAt, Held: row.State == writ.Held, Cursor: row.Seq}
}

func operationState(s writ.ActionState) string {
	switch s {
	case writ.Held, writ.Admitted:
		return OperationAccepted
	case writ.Dispatched:
		return OperationRunning
	case writ.Withheld:
		return OperationCancelled
	}
	return string(s) // succeeded, failed, indeterminate
}

// Get returns one operation by its id: a tool action, an invocation, or what was done about an action.
func (l *Ledger) Get(ctx context.Context, id string) (Operation, error) {
	row, err := l.cfg.Store.Action(ctx, id)
	if err == nil {
		op := OperationOf(row)
		op.Children, err = l.cfg.Store.Operations(ctx, id)
		return op, err
	}
	if !errors.Is(err, store.ErrNotFound) {
		return Operation{}, err
	}
	t, err := l.cfg.Store.Turn(ctx, id)
	if err == nil {
		return invocationOperation(t), nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return Operation{}, err
	}
	o, err := l.cfg.Store.Operation(ctx, id)
	if err != nil {
		return Operation{}, err
	}
	return Operation{ID: o.ID, Kind: o.Kind, Parent: o.Parent, State: OperationSucceeded, Actor: o.Actor, Detail: o.Body, SettledAt: o.Time}, nil
}

func invocationOperation(t store.Turn) Operation {
	op := Operation{ID: t.ID, Kind: "invocation", Episode: t.Conversation, Participant: identityOf(t).Participant, AdmittedAt: t.Started,
		DispatchedAt: t.Started, SettledAt: t.Ended, State: OperationFailed}
	switch t.State {
	case store.TurnRunning, store.TurnDraining:
		op.State = OperationRunning
	case store.TurnParked:
		op.State, op.Held = OperationAccepted, true
	case store.TurnAnswered:
		op.State = OperationSucceeded
	case store.TurnInterrupted:
		op.State, op.Failure = OperationIndeterminate, "interrupted"
	}
	return op
}

// List pages through the tool actions that the filter selects, in the order of their admission. A page starts after
// f.Page.After; the last operation's Cursor is where the next one starts.
func (l *Ledger) List(ctx context.Context, f store.ActionFilter) ([]Operation, error) {
	rows, err := l.cfg.Store.Actions(ctx, f)
	if err != nil {
		return nil, err
	}
	out := make([]Operation, len(rows))
	for i, row := range rows {
		out[i] = OperationOf(row)
	}
	return out, nil
}
