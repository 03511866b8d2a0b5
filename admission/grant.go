package admission

import (
	"context"
	"sync/atomic"
	"time"

	"writ"
	"writ/store"
)

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
// is state_conflict, also when the first answer got lost. A held action is approval_required until it has been approved;
// then it is admitted, if everything it was approved for still holds, and dispatched.
func (p *Port) Dispatch(ctx context.Context, actionID string) (*Grant, Receipt) {
	p.life.RLock()
	defer p.life.RUnlock()
	rec, c := p.ready(ctx, actionID, false)
	if c != "" {
		return nil, Receipt{Code: c}
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.row.State == writ.Held {
		if r := p.approve(ctx, rec); !r.Accepted {
			return nil, r
		}
	}
	if rec.row.State != writ.Admitted {
		return nil, Receipt{Code: writ.CodeStateConflict}
	}
	row := rec.row
	row.State, row.DispatchedAt = writ.Dispatched, p.l.cfg.Now()
	given := row.DispatchedAt
	if c := p.write(ctx, rec, row, writ.Admitted, nil, nil); c != "" {
		return nil, Receipt{Code: c}
	}
	rec.grant = &Grant{action: actionID, key: row.IdempotencyKey, given: given, within: p.l.cfg.StartWithin, now: p.l.cfg.Now}
	return rec.grant, Receipt{Accepted: true}
}

// approve moves a held action to admitted when its approval allows it. What it was bound to is checked again: the
// arguments, the policy, the time, the quarantine of its targets. The row takes this port's generation and lease. The
// caller holds rec.mu.
func (p *Port) approve(ctx context.Context, rec *record) Receipt {
	a, err := p.l.cfg.Store.Approval(ctx, rec.row.ID)
	if err != nil {
		return Receipt{Code: writ.CodeLedgerUnavailable}
	}
	now := p.l.cfg.Now()
	switch {
	case a.State == store.ApprovalPending && now.Before(a.Expires):
		return Receipt{Code: writ.CodeApprovalRequired}
	case a.State == store.ApprovalPending, a.State == store.ApprovalApproved && !now.Before(a.Expires):
		return p.withdraw(ctx, rec, a, store.ApprovalExpired, FailureApprovalExpired)
	case a.State != store.ApprovalApproved: // declined, expired, void: whoever wrote that has withheld the row too
		p.lost.Add(1)
		return Receipt{Code: writ.CodeStateConflict}
	case a.PolicyDigest != p.inv.PolicyDigest:
		return p.withdraw(ctx, rec, a, store.ApprovalVoid, FailurePolicyChanged)
	case a.ArgumentDigest != rec.row.ArgumentDigest:
		return p.withdraw(ctx, rec, a, store.ApprovalVoid, FailureArgumentsChanged)
	}
	if !p.take(rec) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return Receipt{Code: writ.CodeConcurrencyLimitReached, Freed: p.freed}
	}
	row := rec.row
	row.State, row.AdmittedAt, row.Generation, row.LeaseToken = writ.Admitted, now, p.inv.Generation, p.inv.LeaseToken
	b := &store.Batch{}
	if !p.inv.IgnoreUnknown && row.Strategy != writ.Exploration.String() {
		b.Free = p.keys(row.Targets)
	}
	if c := p.write(ctx, rec, row, writ.Held, nil, b); c != "" {
		p.release(rec)
		return Receipt{Code: c}
	}
	return Receipt{Accepted: true}
}

// Failure classes of held actions that are not released.
const (
	FailureDeclined         = "declined"
	FailureApprovalExpired  = "approval_expired"
	FailurePolicyChanged    = "policy_changed"
	FailureArgumentsChanged = "arguments_changed"
	FailureTimeout          = "timeout"       // no outcome in the time that the offer gives
	FailureLeaseExpired     = "lease_expired" // the invocation's time was over first
)

// withdraw ends an approval and withholds its action, in one write. The answer is state_conflict: it is settled now.
func (p *Port) withdraw(ctx context.Context, rec *record, a store.Approval, state, failure string) Receipt {
	row := rec.row
	row.State, row.Failure, row.SettledAt = writ.Withheld, failure, p.l.cfg.Now()
	before := a.State
	a.State, a.Decided = state, row.SettledAt
	b := &store.Batch{Approvals: []store.ApprovalWrite{{Approval: a, Expect: before}}}
	if c := p.write(ctx, rec, row, writ.Held, p.inv.Settled, b); c != "" {
		return Receipt{Code: c}
	}
	return Receipt{Code: writ.CodeStateConflict}
}
