package admission

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"writ"
	"writ/participant"
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
	counts bool   // guarded by Port.mu: it has a place of the concurrency limit
}

// Port admits and settles the tool actions of one invocation. It is safe from any goroutine, never calls the runtime
// and never waits for a tool.
type Port struct {
	l          *Ledger
	inv        Invocation
	bindings   map[bindingKey][]*participant.Binding
	boundaries map[string]*participant.Boundary

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
	unsettled int            // admitted and dispatched; held ones do not count
	busy      map[string]int // of those, by offer
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
	if !req.wellFormed() || !slot.wellFormed() {
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
	if d, known := p.known(ctx, req, slot, digest); known {
		return d
	}
	if p.stale.Load() {
		return Decision{Refusal: writ.CodeGenerationStale}
	}
	if c := p.bound(req); c != "" {
		return Decision{Refusal: c}
	}
	d := p.place(ctx, req, slot, digest, block)
	if !d.Admitted && d.Refusal != writ.CodeLedgerUnavailable && p.quarantined(ctx, req, slot) {
		return Decision{Refusal: writ.CodeTargetQuarantined} // row 8a comes before what has refused
	}
	return d
}

// place checks rows 9 to 11 of the order in docs/ledger.md and writes the row.
func (p *Port) place(ctx context.Context, req Request, slot Slot, digest string, block Block) Decision {
	offer, d := p.room(ctx, req, slot)
	if d.Refusal != "" {
		return d
	}
	rec := &record{row: p.row(req, slot, len(p.order), digest, offer), digest: digest}
	switch c := p.insert(ctx, rec, slot, block); c {
	case "":
	case writ.CodeStateConflict: // the slot or the call id is another action's
		return Decision{Refusal: writ.CodeRequestConflict}
	case codeClaimed: // by an admission at the same time, of another port
		d, _ := p.claimed(ctx, slot)
		return d
	default:
		return Decision{Refusal: c}
	}
	d = Decision{Admitted: true, ActionID: rec.row.ID, Key: rec.row.IdempotencyKey, Held: rec.row.State == writ.Held}
	p.keep(rec) // from here on others may change the row
	return d
}

// known answers a request that has been decided before: under its call id, or under the key it claims.
func (p *Port) known(ctx context.Context, req Request, slot Slot, digest string) (Decision, bool) {
	p.mu.Lock()
	rec := p.calls[req.ToolCallID]
	p.mu.Unlock()
	if rec == nil {
		return p.claimed(ctx, slot)
	}
	if rec.digest != digest {
		return Decision{Refusal: writ.CodeRequestConflict}, true
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return Decision{Admitted: true, ActionID: rec.row.ID, Key: rec.row.IdempotencyKey, Held: rec.row.State == writ.Held, Replay: true}, true
}

// claimed looks up the key that the slot claims.
func (p *Port) claimed(ctx context.Context, slot Slot) (Decision, bool) {
	if slot.Claim == nil {
		return Decision{}, false
	}
	c, err := p.l.cfg.Store.Claim(ctx, slot.Claim.Scope, slot.Claim.Key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Decision{}, false
	case err != nil:
		return Decision{Refusal: writ.CodeLedgerUnavailable}, true
	case c.Digest != slot.Claim.Digest:
		return Decision{Refusal: writ.CodeRequestConflict}, true
	}
	row, err := p.l.cfg.Store.Action(ctx, c.Subject)
	if err != nil {
		return Decision{Refusal: writ.CodeLedgerUnavailable}, true
	}
	return Decision{Admitted: true, ActionID: row.ID, Key: row.IdempotencyKey, Held: row.State == writ.Held, Replay: true}, true
}

// room checks rows 9 to 11 of the order in docs/ledger.md, and returns the offer that covers the action.
func (p *Port) room(ctx context.Context, req Request, slot Slot) (*participant.Offer, Decision) {
	if p.bindings[bindingKey{req.Affordance, req.Contract}][0].Temporal {
		return nil, Decision{Refusal: writ.CodeTemporalBindingUnsupported}
	}
	offer, c := p.offer(req)
	if c != "" {
		return nil, Decision{Refusal: c}
	}
	if slot.Check != nil {
		if c := slot.Check(ctx); c != "" {
			return nil, Decision{Refusal: c}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.order) >= p.inv.Total:
		return nil, Decision{Refusal: writ.CodeActionLimitReached}
	case slot.Approval == nil && p.full(offer):
		return nil, Decision{Refusal: writ.CodeConcurrencyLimitReached, Freed: p.freed}
	}
	return offer, Decision{}
}

// full reports whether one more running action would exceed the invocation's or the offer's limit. The caller holds p.mu.
func (p *Port) full(o *participant.Offer) bool {
	return p.unsettled >= p.inv.Concurrent || o != nil && o.MaxInFlight > 0 && p.busy[o.ID] >= o.MaxInFlight
}

// offer finds the one offer that covers the request.
func (p *Port) offer(req Request) (*participant.Offer, writ.Code) {
	var found *participant.Offer
	for i := range p.inv.Offers {
		o := &p.inv.Offers[i]
		if !o.Covers(req.Contract, p.inv.Implementation, req.Targets) {
			continue
		}
		if found != nil {
			return nil, writ.CodeExecutionBindingAmbiguous
		}
		found = o
	}
	if found == nil {
		return nil, writ.CodeExecutionBindingUnavailable
	}
	return found, ""
}

// guarded reports whether an unknown outcome on one of its targets stops the action: only pure exploration may go on.
func (p *Port) guarded(slot Slot) bool {
	return !p.inv.IgnoreUnknown && !slot.Traits.Strategy.Only(writ.Exploration)
}

// quarantined looks for an unknown outcome on one of the targets. The write that admits asks the same in its transaction:
// this is only for the order of the codes.
func (p *Port) quarantined(ctx context.Context, req Request, slot Slot) bool {
	if !p.guarded(slot) {
		return false
	}
	q, err := p.l.cfg.Store.Quarantined(ctx, p.keys(req.Targets)...)
	return err == nil && len(q) > 0
}

func (p *Port) keys(targets []string) []store.Key {
	out := make([]store.Key, len(targets))
	for i, t := range targets {
		out[i] = store.Key{Tenant: p.inv.Tenant, Owner: p.inv.Owner, Target: t}
	}
	return out
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

// bound checks profile, identity and binding, rows 3 to 8 of the order in docs/ledger.md.
func (p *Port) bound(req Request) writ.Code {
	in := &p.inv
	switch {
	case in.Profile == participant.ProfileV3:
		return writ.CodePolicyProfileUnsupported
	case in.Crossing:
		return writ.CodeCrossingPolicyUnsupported
	case req.Invocation != in.ID || req.Participant != in.Participant || req.Episode != in.Conversation ||
		req.Implementation != in.Implementation || req.Scope != in.Scope || req.Generation != in.Generation:
		return writ.CodeIdentityMismatch
	}
	found := p.bindings[bindingKey{req.Affordance, req.Contract}]
	switch {
	case len(found) == 0:
		return writ.CodeAffordanceUnbound
	case len(found) > 1:
		return writ.CodeAffordanceAmbiguous
	case !slices.Contains(found[0].Boundaries, req.Boundary):
		return writ.CodeBoundaryUnbound
	}
	for _, t := range req.Targets {
		if !found[0].AllowsTarget(t) {
			return writ.CodeTargetUnbound
		}
	}
	return ""
}

func (p *Port) row(req Request, s Slot, ordinal int, digest string, offer *participant.Offer) store.Action {
	id := p.l.cfg.NewID("act_")
	if s.Attempt == 0 { // an outside harness: each action is its own round
		s.Round, s.Attempt, s.Index = ordinal+1, 1, 0
	}
	state := writ.Admitted
	if s.Approval != nil {
		state = writ.Held
	}
	return store.Action{ID: id, Tenant: p.inv.Tenant, Owner: p.inv.Owner, Offer: offer.ID, Timeout: offer.Timeout, Conversation: p.inv.Conversation, Turn: p.inv.ID, Ordinal: ordinal,
		Round: s.Round, Attempt: s.Attempt, Index: s.Index, Tool: s.Tool, ToolCallID: req.ToolCallID, Fingerprint: s.Fingerprint,
		RequestDigest: digest, ArgumentDigest: req.ArgumentDigest, Participant: req.Participant, Implementation: req.Implementation,
		Affordance: req.Affordance, Contract: req.Contract, Boundary: req.Boundary, Targets: slices.Clone(req.Targets), Scope: req.Scope,
		Generation: req.Generation, LeaseToken: p.inv.LeaseToken, Strategy: s.Traits.Strategy.String(),
		Execution: s.Traits.Execution.String(), Effect: s.Traits.Effect.String(), PolicyDigest: p.inv.PolicyDigest,
		IdempotencyKey: p.l.digest("idempotency", []byte(id))[:32], Observation: p.inv.Observation, Early: s.Early,
		AdmittedAt: p.l.cfg.Now(), State: state}
}

// codeClaimed says that the key of a slot's claim has been used at the same time. It is never answered.
const codeClaimed writ.Code = "claimed"

// insert writes the row of a new action with everything that belongs to its admission.
func (p *Port) insert(ctx context.Context, rec *record, slot Slot, block Block) writ.Code {
	b := &store.Batch{}
	if p.guarded(slot) {
		b.Free = p.keys(rec.row.Targets)
	}
	if slot.Claim != nil {
		c := *slot.Claim
		c.Subject, c.Time = rec.row.ID, rec.row.AdmittedAt
		b.Claims = []store.Claim{c}
	}
	if a := slot.Approval; a != nil {
		within := a.Within
		if within == 0 {
			within = DefaultApprovalTime
		}
		b.Approvals = []store.ApprovalWrite{{Approval: store.Approval{Action: rec.row.ID, Tenant: p.inv.Tenant, Owner: p.inv.Owner,
			Conversation: p.inv.Conversation, Turn: p.inv.ID, Agent: p.inv.Agent, Tool: slot.Tool, Approver: a.Approver,
			ArgumentDigest: rec.row.ArgumentDigest, PolicyDigest: rec.row.PolicyDigest, State: store.ApprovalPending,
			Created: rec.row.AdmittedAt, Expires: rec.row.AdmittedAt.Add(within)}}}
	}
	return p.write(ctx, rec, rec.row, "", block, b)
}

// write is the one place where a row changes. Admission and dispatch carry the lease's fence; settlement does not.
func (p *Port) write(ctx context.Context, rec *record, row store.Action, expect writ.ActionState, block Block, b *store.Batch) writ.Code {
	if b == nil {
		b = &store.Batch{}
	}
	b.Actions = append(b.Actions, store.ActionWrite{Action: row, Expect: expect})
	if !row.State.Settled() {
		b.Fence = &store.Fence{Conversation: p.inv.Conversation, Token: p.inv.LeaseToken, Generation: p.inv.Generation}
	} else {
		ctx = context.WithoutCancel(ctx) // what happened is recorded, whoever cancelled
	}
	b.Blocks = append(b.Blocks, block.of(row)...)
	err := p.l.commit(ctx, b)
	var conflict *store.Conflict
	switch {
	case err == nil:
		rec.row = row
		return ""
	case errors.As(err, &conflict):
		return p.conflicted(conflict)
	case errors.Is(err, store.ErrUnknown):
		p.lost.Add(1)
	}
	return writ.CodeLedgerUnavailable
}

func (p *Port) conflicted(c *store.Conflict) writ.Code {
	switch c.Part {
	case "fence":
		p.stale.Store(true)
		return writ.CodeGenerationStale
	case "action", "approval":
		p.lost.Add(1) // somebody else has written the row: see what before the next answer
		return writ.CodeStateConflict
	case "quarantine":
		return writ.CodeTargetQuarantined
	case "claim":
		return codeClaimed
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
