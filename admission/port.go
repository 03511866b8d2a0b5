package admission

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"writ"
	"writ/store"
)

// phase of a port. Zero is the safe one.
type phase int

const (
	inactive phase = iota
	open
	draining
	closed
)

type bindingKey struct{ affordance, contract string }

// record is the port's view of one row. mu serialises the writes of one action; the row is what is durable.
type record struct {
	mu     sync.Mutex
	row    store.Action
	digest string // of the request
	grant  *Grant // once dispatched
	free   bool   // guarded by Port.mu: settled, and no longer counted as running
}

// Port admits and settles the tool actions of one invocation. It is safe from any goroutine, never calls the runtime
// and never waits for a tool.
type Port struct {
	l        *Ledger
	inv      Invocation
	bindings map[bindingKey]*Binding

	life      sync.RWMutex // held for reading by every method, for writing by Activate, Drain and Close
	phase     phase
	lastClose string // the batch of a Close whose outcome nobody knew

	// admit is held by admissions, one at a time, so that ordinals have no gaps and equal requests are single-flight,
	// and by heal, so that no admission is under way while rows are read back.
	admit sync.Mutex
	stale atomic.Bool // the lease was found lost; it never comes back

	// The port's rows may be behind the store while lost > healed: so many writes had an outcome that nobody knew, or
	// found a row in another state than the port's. Until it is read back, only this invocation is fenced.
	lost, healed atomic.Int64

	mu        sync.Mutex // guards what follows
	calls     map[string]*record
	actions   map[string]*record
	order     []*record
	unsettled int
	freed     chan struct{}
}

// Activate opens the port for its invocation.
func (p *Port) Activate() {
	p.life.Lock()
	defer p.life.Unlock()
	if p.phase == inactive {
		p.phase = open
	}
}

// Invocation returns the identity that requests repeat, and the bounds. It is a copy: nothing done to it widens them.
func (p *Port) Invocation() Invocation { return p.inv.clone() }

// Request fills the identity fields of a request.
func (p *Port) Request(toolCallID, affordance, contract, boundary string, targets []string) Request {
	return Request{ToolCallID: toolCallID, Invocation: p.inv.ID, Participant: p.inv.Participant, Episode: p.inv.Conversation,
		Implementation: p.inv.Implementation, Affordance: affordance, Contract: contract, Boundary: boundary, Targets: targets,
		Scope: p.inv.Scope, Generation: p.inv.Generation}
}

// Admit records the action before it has any effect. On an admitted decision the row and the block are durable. Equal
// requests get the stored decision; the checks run in a fixed order (docs/ledger.md) and the first refusal wins.
func (p *Port) Admit(ctx context.Context, req Request, slot Slot, block Block) Decision {
	if !req.wellFormed() {
		return Decision{Refusal: writ.CodeRequestInvalid}
	}
	p.life.RLock()
	defer p.life.RUnlock()
	if c := p.refusedPhase(false); c != "" {
		return Decision{Refusal: c}
	}
	p.admit.Lock()
	defer p.admit.Unlock()
	if !p.heal(ctx) {
		return Decision{Refusal: writ.CodeLedgerUnavailable}
	}
	digest := p.l.requestDigest(req)
	p.mu.Lock()
	known, total, busy, freed := p.calls[req.ToolCallID], len(p.order), p.unsettled, p.freed
	p.mu.Unlock()
	if known != nil {
		if known.digest != digest {
			return Decision{Refusal: writ.CodeRequestConflict}
		}
		known.mu.Lock()
		defer known.mu.Unlock()
		return Decision{Admitted: true, ActionID: known.row.ID, Key: known.row.IdempotencyKey}
	}
	if p.stale.Load() {
		return Decision{Refusal: writ.CodeGenerationStale}
	}
	if c := p.bound(req); c != "" {
		return Decision{Refusal: c}
	}
	if total >= p.inv.Limits.Total {
		return Decision{Refusal: writ.CodeActionLimitReached}
	}
	if busy >= p.inv.Limits.Concurrent {
		return Decision{Refusal: writ.CodeConcurrencyLimitReached, Freed: freed}
	}
	rec := &record{row: p.row(req, slot, total+1, digest), digest: digest}
	switch c := p.write(ctx, rec, rec.row, "", block); c {
	case "":
	case writ.CodeStateConflict: // the slot or the call id is another action's
		return Decision{Refusal: writ.CodeRequestConflict}
	default:
		return Decision{Refusal: c}
	}
	d := Decision{Admitted: true, ActionID: rec.row.ID, Key: rec.row.IdempotencyKey}
	p.keep(rec)
	return d
}

func (p *Port) refusedPhase(settling bool) writ.Code {
	switch {
	case p.phase == inactive:
		return writ.CodeInvocationInactive
	case p.phase == closed, p.phase == draining && !settling:
		return writ.CodeInvocationClosed
	}
	return ""
}

// ready is the beginning of every method on an admitted action: the phase, the port's rows as new as the store's, and
// the action's record.
func (p *Port) ready(ctx context.Context, actionID string, settling bool) (*record, writ.Code) {
	if c := p.refusedPhase(settling); c != "" {
		return nil, c
	}
	if p.healed.Load() != p.lost.Load() {
		p.admit.Lock()
		ok := p.heal(ctx)
		p.admit.Unlock()
		if !ok {
			return nil, writ.CodeLedgerUnavailable
		}
	}
	rec := p.find(actionID)
	if rec == nil {
		return nil, writ.CodeActionUnknown
	}
	return rec, ""
}

// bound checks identity and binding, rows 5 to 8 of the order in docs/ledger.md.
func (p *Port) bound(req Request) writ.Code {
	in := p.inv
	if req.Invocation != in.ID || req.Participant != in.Participant || req.Episode != in.Conversation ||
		req.Implementation != in.Implementation || req.Scope != in.Scope || req.Generation != in.Generation {
		return writ.CodeIdentityMismatch
	}
	b := p.bindings[bindingKey{req.Affordance, req.Contract}]
	if b == nil { // none, or more than one
		return writ.CodeAffordanceUnbound
	}
	if b.Boundary != req.Boundary {
		return writ.CodeBoundaryUnbound
	}
	for _, t := range req.Targets {
		if !slices.Contains(b.Targets, t) {
			return writ.CodeTargetUnbound
		}
	}
	return ""
}

func (p *Port) row(req Request, s Slot, ordinal int, digest string) store.Action {
	id := p.l.cfg.NewID("act_")
	if s.Attempt == 0 { // an outside harness: each action is its own round
		s.Round, s.Attempt, s.Index = ordinal, 1, 0
	}
	return store.Action{ID: id, Tenant: p.inv.Tenant, Conversation: p.inv.Conversation, Turn: p.inv.ID, Ordinal: ordinal,
		Round: s.Round, Attempt: s.Attempt, Index: s.Index, Tool: s.Tool, ToolCallID: req.ToolCallID, Fingerprint: s.Fingerprint,
		RequestDigest: digest, ArgumentDigest: req.ArgumentDigest, Participant: req.Participant, Implementation: req.Implementation,
		Affordance: req.Affordance, Contract: req.Contract, Boundary: req.Boundary, Targets: slices.Clone(req.Targets), Scope: req.Scope,
		Generation: req.Generation, LeaseToken: p.inv.LeaseToken, Strategy: s.Traits.Strategy.String(),
		Execution: s.Traits.Execution.String(), Effect: s.Traits.Effect.String(), PolicyDigest: p.inv.PolicyDigest,
		IdempotencyKey: p.l.digest("idempotency", []byte(id))[:32], Observation: p.inv.Observation, Early: s.Early,
		AdmittedAt: p.l.cfg.Now(), State: writ.Admitted}
}

// Grant is the single-use permission to start one effect. Only an accepted dispatch makes one.
type Grant struct {
	action string
	key    string
	given  time.Time
	within time.Duration
	now    func() time.Time
	used   atomic.Bool
}

// ActionID is the action the grant is for.
func (g *Grant) ActionID() string { return g.action }

// Key is the action's idempotency key.
func (g *Grant) Key() string { return g.key }

// Start uses the grant up, right before the effect. It reports false for a nil or zero grant, for a second use, once
// the port is being closed, and when the grant is older than start_within: then nothing may be started, now or later.
func (g *Grant) Start() bool {
	if g == nil || g.now == nil || !g.used.CompareAndSwap(false, true) {
		return false
	}
	return g.now().Sub(g.given) <= g.within
}

// Dispatch grants the one start of an admitted action. The grant is durable before it is returned; a second dispatch
// is state_conflict, also when the first answer got lost.
func (p *Port) Dispatch(ctx context.Context, actionID string) (*Grant, Receipt) {
	p.life.RLock()
	defer p.life.RUnlock()
	rec, c := p.ready(ctx, actionID, false)
	if c != "" {
		return nil, Receipt{Code: c}
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.row.State != writ.Admitted {
		return nil, Receipt{Code: writ.CodeStateConflict}
	}
	row := rec.row
	row.State, row.DispatchedAt = writ.Dispatched, p.l.cfg.Now()
	given := row.DispatchedAt
	if c := p.write(ctx, rec, row, writ.Admitted, nil); c != "" {
		return nil, Receipt{Code: c}
	}
	rec.grant = &Grant{action: actionID, key: row.IdempotencyKey, given: given, within: p.l.cfg.StartWithin, now: p.l.cfg.Now}
	return rec.grant, Receipt{Accepted: true}
}

// Complete settles a dispatched action with what the tool answered. Row and block are one durable write. The same
// outcome again is accepted; another one is state_conflict. After outcome_invalid the action stays dispatched: complete
// it with an outcome that can be recorded, or report it as unknown. It needs no lease.
func (p *Port) Complete(ctx context.Context, actionID string, o Outcome, block Block) Receipt {
	s := settlement{from: writ.Dispatched, to: []writ.ActionState{writ.Succeeded, writ.Failed}, block: block, set: func(row *store.Action) {
		row.State, row.Failure, row.ResultDigest, row.Evidence = o.State, o.Failure, o.ResultDigest, slices.Clone(o.Evidence)
	}}
	if !o.recordable() {
		s.invalid = writ.CodeOutcomeInvalid
	}
	return p.settle(ctx, actionID, s)
}

// ReportUnknown settles a dispatched action as indeterminate: it may have happened. reason is a failure class.
func (p *Port) ReportUnknown(ctx context.Context, actionID, reason string, block Block) Receipt {
	s := settlement{from: writ.Dispatched, to: []writ.ActionState{writ.Indeterminate}, block: block, set: func(row *store.Action) {
		row.State, row.Failure = writ.Indeterminate, reason
	}}
	if !failureClass(reason) {
		s.invalid = writ.CodeRequestInvalid
	}
	return p.settle(ctx, actionID, s)
}

// Cancel withholds an admitted action. After dispatch it is state_conflict. reason is a failure class, or empty.
func (p *Port) Cancel(ctx context.Context, actionID, reason string, block Block) Receipt {
	s := settlement{from: writ.Admitted, to: []writ.ActionState{writ.Withheld}, block: block, set: func(row *store.Action) {
		row.State, row.Failure = writ.Withheld, reason
	}}
	if reason != "" && !failureClass(reason) {
		s.invalid = writ.CodeRequestInvalid
	}
	return p.settle(ctx, actionID, s)
}

// Abandon settles an action whose effect was certainly never started: withheld when it had no grant, failed when it
// had one. The caller must be sure: only the holder of the grant can be.
func (p *Port) Abandon(ctx context.Context, actionID, reason string, block Block) Receipt {
	r := p.Cancel(ctx, actionID, reason, block)
	if r.Code == writ.CodeStateConflict {
		return p.Complete(ctx, actionID, Outcome{State: writ.Failed, Failure: reason}, block)
	}
	return r
}

// settlement is one way to settle a row.
type settlement struct {
	from    writ.ActionState
	to      []writ.ActionState
	invalid writ.Code // the answer when what was said of the outcome cannot be recorded
	block   Block
	set     func(*store.Action)
}

func (p *Port) settle(ctx context.Context, actionID string, s settlement) Receipt {
	p.life.RLock()
	defer p.life.RUnlock()
	rec, c := p.ready(ctx, actionID, true)
	if c != "" {
		return Receipt{Code: c}
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	row := rec.row
	s.set(&row)
	switch have := rec.row; {
	case have.State != s.from && !slices.Contains(s.to, have.State):
		return Receipt{Code: writ.CodeStateConflict}
	case s.invalid != "":
		return Receipt{Code: s.invalid}
	case have.State != s.from && have.State == row.State && have.Failure == row.Failure && have.ResultDigest == row.ResultDigest &&
		slices.Equal(have.Evidence, row.Evidence):
		return Receipt{Accepted: true} // the same outcome again
	case have.State != s.from:
		return Receipt{Code: writ.CodeStateConflict}
	}
	row.SettledAt = p.l.cfg.Now()
	if c := p.write(ctx, rec, row, s.from, s.block); c != "" {
		return Receipt{Code: c}
	}
	p.release(rec)
	return Receipt{Accepted: true}
}

// write is the one place where a row changes. Admission and dispatch carry the lease's fence; settlement does not.
func (p *Port) write(ctx context.Context, rec *record, row store.Action, expect writ.ActionState, block Block) writ.Code {
	b := &store.Batch{Actions: []store.ActionWrite{{Action: row, Expect: expect}}}
	if row.State == writ.Admitted || row.State == writ.Dispatched {
		b.Fence = &store.Fence{Conversation: p.inv.Conversation, Token: p.inv.LeaseToken}
	} else {
		ctx = context.WithoutCancel(ctx) // what happened is recorded, whoever cancelled
	}
	b.Blocks = block.of(row)
	err := p.l.commit(ctx, b)
	var conflict *store.Conflict
	switch {
	case err == nil:
		rec.row = row
		return ""
	case errors.As(err, &conflict) && conflict.Part == "fence":
		p.stale.Store(true)
		return writ.CodeGenerationStale
	case errors.As(err, &conflict) && conflict.Part == "action":
		p.lost.Add(1) // somebody else has written the row: see what before the next answer
		return writ.CodeStateConflict
	case errors.Is(err, store.ErrUnknown):
		p.lost.Add(1)
	}
	return writ.CodeLedgerUnavailable
}

func (b Block) of(row store.Action) []store.Block {
	if b == nil {
		return nil
	}
	blocks := b(row)
	for i := range blocks {
		blocks[i].ActionID = row.ID
	}
	return blocks
}

func (p *Port) find(actionID string) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.actions[actionID]
}

// Row returns the port's view of an action, for the invocation that holds it.
func (p *Port) Row(actionID string) (store.Action, bool) {
	rec := p.find(actionID)
	if rec == nil {
		return store.Action{}, false
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.row, true
}

// Lookup returns the port's view of the action that was admitted under a tool call id.
func (p *Port) Lookup(toolCallID string) (store.Action, bool) {
	p.mu.Lock()
	rec := p.calls[toolCallID]
	p.mu.Unlock()
	if rec == nil {
		return store.Action{}, false
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.row, true
}

// Rows returns all rows of the invocation in admission order.
func (p *Port) Rows() []store.Action {
	p.mu.Lock()
	order := slices.Clone(p.order)
	p.mu.Unlock()
	out := make([]store.Action, len(order))
	for i, rec := range order {
		rec.mu.Lock()
		out[i] = rec.row
		rec.mu.Unlock()
	}
	return out
}
