package admission

import (
	"context"
	"errors"
	"fmt"

	"writ"
	"writ/store"
)

// Recovered is what a restart or a takeover did to one turn.
type Recovered struct {
	Turn    store.Turn     // as it stands now
	Actions []store.Action // that were settled by it, in admission order
	Waiting []store.Action // that are still held or dispatched
}

// Finish adds what else ends a cut-off turn, such as its blocks, to the batch that settles it. It gets the turn as it will
// stand, all its rows as they will stand, and the ones that are settled by this.
type Finish func(b *store.Batch, turn store.Turn, all, settled []store.Action) error

// Recover applies the restart rules of a sole owner to one open turn, in one write: rows without a grant become
// withheld, rows with one and no outcome become indeterminate (failed, when the tool was declared to have no effect),
// the history of its actions is written, and the turn ends as interrupted. Held rows go on waiting: then the turn is
// parked, and a parked turn is left alone. Nothing is run. The call is idempotent: a turn that has ended is left alone.
//
// Only the owner of the data may call it, before anything new is admitted.
func (l *Ledger) Recover(ctx context.Context, turn store.Turn, finish Finish) (Recovered, error) {
	return l.settleTurn(ctx, turn.ID, "restart", finish, func(row *store.Action, kind string) bool {
		return row.State != writ.Held || kind == store.KindHTTP // its harness is gone; others can be resumed
	})
}

// TakeOver makes another worker the owner of a conversation whose holder is gone or stalled. First the lease moves, so that
// the old holder can admit and dispatch nothing more; then rows without a grant become withheld, and dispatched rows stay
// as they are, their targets in quarantine, until their holder reports or their deadline is over ([Ledger.Sweep]).
// While there are such rows the turn is draining.
func (l *Ledger) TakeOver(ctx context.Context, conv store.Conversation, holder string, finish Finish) ([]Recovered, error) {
	next := conv
	next.LeaseToken, next.Holder = conv.LeaseToken+1, holder
	b := &store.Batch{Conversations: []store.ConversationWrite{{Conversation: next, ExpectToken: conv.LeaseToken}}}
	if err := l.commit(ctx, b); err != nil {
		return nil, fmt.Errorf("admission: taking over %s: %w", conv.ID, err)
	}
	turns, err := l.cfg.Store.OpenTurns(ctx)
	if err != nil {
		return nil, fmt.Errorf("admission: taking over %s: %w", conv.ID, err)
	}
	var out []Recovered
	for _, t := range turns {
		if t.Conversation != conv.ID || t.State != store.TurnRunning {
			continue
		}
		rec, err := l.settleTurn(ctx, t.ID, "takeover", finish, func(row *store.Action, _ string) bool { return row.State == writ.Admitted })
		if err != nil {
			return out, err
		}
		out = append(out, rec)
	}
	return out, nil
}

// Sweep gives up the dispatched actions of draining turns whose deadline is over: they become indeterminate. A turn
// without any more ends. It is idempotent and may be called at any time.
func (l *Ledger) Sweep(ctx context.Context, finish Finish) ([]Recovered, error) {
	turns, err := l.cfg.Store.OpenTurns(ctx)
	if err != nil {
		return nil, fmt.Errorf("admission: sweeping: %w", err)
	}
	var out []Recovered
	for _, t := range turns {
		if t.State != store.TurnDraining {
			continue
		}
		rec, err := l.settleTurn(ctx, t.ID, "timeout", finish, func(row *store.Action, _ string) bool {
			return row.State == writ.Admitted || row.State == writ.Dispatched && l.cfg.Now().After(l.Deadline(*row))
		})
		if errors.Is(err, store.ErrConflict) {
			continue // its holder has reported meanwhile; the next sweep sees it
		}
		if err != nil {
			return out, err
		}
		if rec.Turn.State != store.TurnDraining || len(rec.Actions) > 0 {
			out = append(out, rec)
		}
	}
	return out, nil
}

// settleTurn closes the rows of a cut-off turn that give says to give up, and moves the turn to where the others leave
// it: draining while something is dispatched, parked while something is held, else interrupted, with its history.
func (l *Ledger) settleTurn(ctx context.Context, id, reason string, finish Finish, give func(row *store.Action, kind string) bool) (Recovered, error) {
	fail := func(err error) (Recovered, error) {
		return Recovered{}, fmt.Errorf("admission: recovering turn %s: %w", id, err)
	}
	turn, err := l.cfg.Store.Turn(ctx, id) // as it is now, whatever the caller has read before
	if err != nil {
		return fail(err)
	}
	if turn.State != store.TurnRunning && turn.State != store.TurnDraining {
		return Recovered{Turn: turn}, nil
	}
	rows, err := l.cfg.Store.Actions(ctx, store.ActionFilter{Turn: id})
	if err != nil {
		return fail(err)
	}
	before, now := turn.State, l.cfg.Now()
	b := &store.Batch{}
	out := Recovered{}
	turn.State, turn.Reason = store.TurnInterrupted, reason
	for i, row := range rows {
		switch {
		case row.State.Settled():
		case give(&row, turn.Kind):
			if row.State == writ.Held {
				v, err := l.voided(ctx, row.ID)
				if err != nil {
					return fail(err)
				}
				b.Approvals = append(b.Approvals, v...)
			}
			w := closing(row, reason, now)
			b.Actions = append(b.Actions, w)
			rows[i] = w.Action
			out.Actions = append(out.Actions, w.Action)
		case row.State == writ.Held:
			out.Waiting = append(out.Waiting, row)
			if turn.State != store.TurnDraining {
				turn.State = store.TurnParked
			}
		default:
			out.Waiting = append(out.Waiting, row)
			turn.State = store.TurnDraining
			for _, t := range row.Targets {
				b.Quarantine = append(b.Quarantine, store.Quarantine{Tenant: row.Tenant, Owner: row.Owner, Target: t, Action: row.ID})
			}
		}
	}
	if turn.State == store.TurnInterrupted {
		turn.Ended = now
		b.History = history(identityOf(turn), id, turn.Conversation, rows, Ending{}, now)
	}
	out.Turn = turn
	if turn.State == before && len(b.Actions) == 0 {
		return out, nil
	}
	b.Turns = []store.TurnWrite{{Turn: turn, Expect: before}}
	if finish != nil {
		if err := finish(b, turn, rows, out.Actions); err != nil {
			return fail(err)
		}
	}
	if err := l.commit(ctx, b); err != nil {
		return fail(err)
	}
	return out, nil
}
