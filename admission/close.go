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
// indeterminate, in the batch that extra starts (the invocation's own end); block makes the result block of each. It
// is idempotent. After it every method answers invocation_closed; after an error the port only takes settlements, and
// Close may be called again: when the earlier write did take place after all, it stands. Grants that have not been used
// are used up. extra itself is not changed.
func (p *Port) Close(ctx context.Context, extra *store.Batch, block Block) error {
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
	if err := p.close(context.WithoutCancel(ctx), extra, block); err != nil {
		return fmt.Errorf("admission: closing invocation %s: %w", p.inv.ID, err)
	}
	p.phase = closed
	p.mu.Lock()
	p.wake()
	p.mu.Unlock()
	return nil
}

func (p *Port) close(ctx context.Context, extra *store.Batch, block Block) error {
	before := false // an earlier Close did take place, though its answer got lost
	if p.lastClose != "" {
		var err error
		if before, err = p.l.cfg.Store.Applied(ctx, p.lastClose); err != nil {
			return err
		}
	}
	if !p.heal(ctx) {
		return store.ErrUnknown
	}
	if before {
		return nil
	}
	p.lastClose = ""
	var b store.Batch
	if extra != nil {
		b = *extra
	}
	var writes []store.ActionWrite
	var blocks []store.Block
	for _, rec := range p.order {
		if !rec.row.State.Settled() {
			w := closing(rec.row, string(writ.CodeInvocationClosed), p.l.cfg.Now())
			writes, blocks = append(writes, w), append(blocks, block.of(w.Action)...)
		}
	}
	b.Actions, b.Blocks = slices.Concat(b.Actions, writes), slices.Concat(blocks, b.Blocks)
	if len(b.Actions)+len(b.Blocks)+len(b.Turns)+len(b.Conversations)+len(b.Documents) > 0 {
		if err := p.l.commit(ctx, &b); err != nil {
			if errors.Is(err, store.ErrUnknown) {
				p.lastClose = b.ID
			}
			p.lost.Add(1)
			return err
		}
	}
	for _, w := range writes {
		rec := p.find(w.ID)
		rec.mu.Lock()
		rec.row = w.Action
		rec.mu.Unlock()
		p.release(rec)
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
