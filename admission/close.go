package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"writ"
	"writ/store"
)

// Expire ends admission because the invocation's time is over: nothing more starts, and what was never dispatched is
// withheld. Outcomes are still taken; the returned time is when the last of them is overdue, the zero time when none is
// awaited. Then Close.
func (p *Port) Expire(ctx context.Context, block Block) (time.Time, error) {
	p.Drain()
	var last time.Time
	for _, row := range p.Rows() {
		if row.State == writ.Admitted || row.State == writ.Held {
			if r := p.Cancel(ctx, row.ID, FailureLeaseExpired, block); !r.Accepted && r.Code != writ.CodeStateConflict {
				return time.Time{}, fmt.Errorf("admission: expiring invocation %s: action %s: %s", p.inv.ID, row.ID, r.Code)
			}
			row, _ = p.Row(row.ID)
		}
		if d := p.l.Deadline(row); row.State == writ.Dispatched && d.After(last) {
			last = d
		}
	}
	return last, nil
}

// Overdue settles the dispatched actions whose outcome is overdue: nobody knows, or it failed when it has no effect. It
// returns when the next one is due, the zero time when none is awaited. An outcome that comes later is a late report.
func (p *Port) Overdue(ctx context.Context, block Block) (next time.Time) {
	now := p.l.cfg.Now()
	for _, row := range p.Rows() {
		due := p.l.Deadline(row)
		switch {
		case row.State != writ.Dispatched:
		case now.Before(due):
			if next.IsZero() || due.Before(next) {
				next = due
			}
		case row.Effect == writ.EffectNone.String():
			p.Complete(ctx, row.ID, Outcome{State: writ.Failed, Failure: FailureTimeout}, block)
		default:
			p.ReportUnknown(ctx, row.ID, FailureTimeout, block)
		}
	}
	return next
}

// Deadline is when the outcome of a dispatched action is overdue.
func (l *Ledger) Deadline(row store.Action) time.Time {
	timeout := row.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	return row.DispatchedAt.Add(timeout + l.cfg.Grace)
}

// Drain ends admission: from now on the port only takes settlements.
func (p *Port) Drain() {
	p.life.Lock()
	defer p.life.Unlock()
	if p.phase == open {
		p.phase = draining
		p.mu.Lock()
		p.wake()
		p.mu.Unlock()
	}
}

// Close ends the port. What was never dispatched becomes withheld, what was dispatched without an outcome becomes
// indeterminate, and the history of the invocation is written: the triples of its actions in admission order and, when
// the ending is valid, its own. All of it is one batch, which extra starts (the end of the turn); block makes the result
// block of each action that the close settles. Close is idempotent. After it every method answers invocation_closed; after
// an error the port only takes settlements, and Close may be called again: when the earlier write did take place after
// all, it stands. Grants that have not been used are used up. extra itself is not changed.
func (p *Port) Close(ctx context.Context, end Ending, extra *store.Batch, block Block) error {
	return p.finish(ctx, extra, func(b *store.Batch) ([]*record, error) {
		var closed []*record
		var blocks []store.Block
		rows := make([]store.Action, 0, len(p.order))
		for _, rec := range p.order {
			row := rec.row
			if row.State == writ.Held {
				v, err := p.l.voided(ctx, row.ID)
				if err != nil {
					return nil, err
				}
				b.Approvals = append(b.Approvals, v...)
			}
			if !row.State.Settled() {
				w := closing(row, string(writ.CodeInvocationClosed), p.l.cfg.Now())
				b.Actions, blocks = append(b.Actions, w), append(blocks, block.of(w.Action)...)
				closed, row = append(closed, rec), w.Action
			}
			rows = append(rows, row)
		}
		b.Blocks = append(blocks, b.Blocks...)
		b.History = append(b.History, history(p.inv.identity(), p.inv.ID, p.inv.Conversation, rows, end, p.l.cfg.Now())...)
		return closed, nil
	})
}

// Park ends the port and leaves the invocation as it is, for a later one: its held actions go on waiting. extra moves
// the turn to parked. It fails when an action is admitted or dispatched. After it every method answers
// invocation_closed; [Ledger.Resume] opens another port.
func (p *Port) Park(ctx context.Context, extra *store.Batch) error {
	for _, row := range p.Rows() {
		if !row.State.Settled() && row.State != writ.Held {
			return fmt.Errorf("admission: parking invocation %s: action %s is %s", p.inv.ID, row.ID, row.State)
		}
	}
	return p.finish(ctx, extra, func(*store.Batch) ([]*record, error) { return nil, nil })
}

// finish closes the port with one batch; fill adds to it and names the actions that it settles.
func (p *Port) finish(ctx context.Context, extra *store.Batch, fill func(*store.Batch) ([]*record, error)) error {
	p.life.Lock()
	defer p.life.Unlock()
	if p.phase == closed {
		return nil
	}
	p.phase = draining // whatever comes of it: a turn whose end may be durable admits nothing more
	for _, rec := range p.order {
		if rec.grant != nil {
			rec.grant.used.Store(true) // and nothing starts after its row was settled
		}
	}
	if err := p.last(context.WithoutCancel(ctx), extra, fill); err != nil {
		return fmt.Errorf("admission: closing invocation %s: %w", p.inv.ID, err)
	}
	p.phase = closed
	p.mu.Lock()
	p.wake()
	p.mu.Unlock()
	return nil
}

// last writes the port's last batch. The caller holds p.life, so nothing else of the port runs.
func (p *Port) last(ctx context.Context, extra *store.Batch, fill func(*store.Batch) ([]*record, error)) error {
	before := false // an earlier try did take place, though its answer got lost
	if p.lastClose != "" {
		var err error
		if before, err = p.l.cfg.Store.Applied(ctx, p.lastClose); err != nil {
			return err
		}
	}
	if !p.heal(ctx) {
		return store.ErrUnknown
	}
	if err := p.refresh(ctx); err != nil {
		return err
	}
	if before {
		return nil
	}
	p.lastClose = ""
	var b store.Batch
	if extra != nil {
		b = *extra
		b.Actions, b.Blocks, b.History, b.Approvals = slices.Clone(b.Actions), slices.Clone(b.Blocks), slices.Clone(b.History), slices.Clone(b.Approvals)
	}
	settled, err := fill(&b)
	if err != nil {
		return err
	}
	if b.Empty() {
		return nil
	}
	if err := p.l.commit(ctx, &b); err != nil {
		if errors.Is(err, store.ErrUnknown) {
			p.lastClose = b.ID
		}
		p.lost.Add(1)
		return err
	}
	for _, rec := range settled {
		p.release(rec)
	}
	for _, w := range b.Actions {
		if rec := p.find(w.ID); rec != nil {
			rec.mu.Lock()
			rec.row = w.Action
			rec.mu.Unlock()
		}
	}
	return nil
}

// refresh reads the held rows: a decision that was made elsewhere may have settled them.
func (p *Port) refresh(ctx context.Context) error {
	for _, rec := range p.order {
		if rec.row.State != writ.Held {
			continue
		}
		row, err := p.l.cfg.Store.Action(ctx, rec.row.ID)
		if err != nil {
			return err
		}
		rec.mu.Lock()
		rec.row = row
		rec.mu.Unlock()
	}
	return nil
}

// closing is the rule for a row whose invocation is over: without a grant nothing happened, with one nobody knows.
// A tool declared to have no effect cannot have happened in any way that matters: its lost answer is a failure.
func closing(row store.Action, reason string, now time.Time) store.ActionWrite {
	w := store.ActionWrite{Action: row, Expect: row.State}
	w.SettledAt, w.Failure = now, reason
	switch {
	case row.State != writ.Dispatched:
		w.State = writ.Withheld
	case row.Effect == writ.EffectNone.String():
		w.State = writ.Failed
	default:
		w.State = writ.Indeterminate
	}
	return w
}
