package admission

import (
	"context"
	"slices"

	"writ"
	"writ/store"
)

// Complete settles a dispatched action with what the tool answered. Row and block are one durable write. The same
// outcome again is accepted; another one is state_conflict. After outcome_invalid the action stays dispatched: complete
// it with an outcome that can be recorded, or report it as unknown. It needs no lease.
func (p *Port) Complete(ctx context.Context, actionID string, o Outcome, block Block) Receipt {
	s := settlement{from: writ.Dispatched, to: []writ.ActionState{writ.Succeeded, writ.Failed}, block: block, set: func(row *store.Action) {
		row.State, row.Status, row.Failure, row.ResultDigest, row.Evidence = o.State, o.Status, o.Failure, o.ResultDigest, slices.Clone(o.Evidence)
	}}
	if !o.recordable() || !p.fits(actionID, o) {
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

// fits reports whether the outcome may be said of the action: its evidence is declared by the action's boundary and
// none of it is withheld, and what it repeats of the action is the action's.
func (p *Port) fits(actionID string, o Outcome) bool {
	rec := p.find(actionID)
	if rec == nil {
		return true // action_unknown says more
	}
	same := func(said, is string) bool { return said == "" || said == is }
	if !same(o.Participant, p.inv.Participant) || !same(o.Episode, p.inv.Conversation) || !same(o.ActionID, actionID) ||
		!same(o.Observation, p.inv.Observation) {
		return false
	}
	rec.mu.Lock()
	contract, boundary := rec.row.Contract, p.boundaries[rec.row.Boundary]
	rec.mu.Unlock()
	if !same(o.Contract, contract) {
		return false
	}
	return !slices.ContainsFunc(o.Evidence, func(ref string) bool {
		return boundary == nil || !boundary.Declares(ref) || slices.Contains(p.inv.Withheld, ref)
	})
}

// Cancel withholds an admitted or held action. After dispatch it is state_conflict. reason is a failure class, or empty.
func (p *Port) Cancel(ctx context.Context, actionID, reason string, block Block) Receipt {
	s := settlement{from: writ.Admitted, held: true, to: []writ.ActionState{writ.Withheld}, block: block, set: func(row *store.Action) {
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
	held    bool // a held action may be settled so too
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
	if s.held && rec.row.State == writ.Held {
		s.from = writ.Held
	}
	switch have := rec.row; {
	case have.State != s.from && !slices.Contains(s.to, have.State):
		return Receipt{Code: writ.CodeStateConflict}
	case s.invalid != "":
		return Receipt{Code: s.invalid}
	case have.State != s.from && have.State == row.State && have.Status == row.Status && have.Failure == row.Failure && have.ResultDigest == row.ResultDigest &&
		slices.Equal(have.Evidence, row.Evidence):
		return Receipt{Accepted: true} // the same outcome again
	case have.State != s.from:
		return Receipt{Code: writ.CodeStateConflict}
	}
	row.SettledAt = p.l.cfg.Now()
	b := &store.Batch{}
	if s.from == writ.Held {
		var err error
		if b.Approvals, err = p.l.voided(ctx, actionID); err != nil {
			return Receipt{Code: writ.CodeLedgerUnavailable}
		}
	}
	if c := p.write(ctx, rec, row, s.from, s.block, b); c != "" {
		return Receipt{Code: c}
	}
	p.release(rec)
	return Receipt{Accepted: true}
}

// voided makes the write that ends the approval of a held action which is withheld otherwise.
func (l *Ledger) voided(ctx context.Context, actionID string) ([]store.ApprovalWrite, error) {
	a, err := l.cfg.Store.Approval(ctx, actionID)
	if err != nil {
		return nil, err // a held row has one
	}
	if a.State != store.ApprovalPending && a.State != store.ApprovalApproved {
		return nil, nil
	}
	expect := a.State
	a.State, a.Decided = store.ApprovalVoid, l.cfg.Now()
	return []store.ApprovalWrite{{Approval: a, Expect: expect}}, nil
}
