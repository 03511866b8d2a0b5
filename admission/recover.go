package admission

import (
	"context"
	"fmt"

	"writ"
	"writ/store"
)

// Recovered is what a restart settled.
type Recovered struct {
	Turn    store.Turn
	Actions []store.Action // as they stand now, in admission order
}

// Recover applies the restart rules of a sole owner to one open turn, in one write: rows without a grant become
// withheld, rows with one and no outcome become indeterminate (failed, when the tool was declared to have no effect),
// and the turn ends as interrupted. Nothing is run. The call is idempotent: a turn that has ended is left alone.
// finish may add to the batch (blocks, the end of a round); it gets all rows of the turn as they will stand, and the
// ones that this recovery settles.
//
// Only the owner of the data may call it, before anything new is admitted.
func (l *Ledger) Recover(ctx context.Context, turn store.Turn, finish func(all, settled []store.Action) ([]store.Block, error)) (Recovered, error) {
	turn, err := l.cfg.Store.Turn(ctx, turn.ID) // as it is now, whatever the caller has read before
	if err != nil {
		return Recovered{}, fmt.Errorf("admission: recovering turn: %w", err)
	}
	if turn.State != store.TurnRunning {
		return Recovered{Turn: turn}, nil
	}
	rows, err := l.cfg.Store.Actions(ctx, store.ActionFilter{Turn: turn.ID})
	if err != nil {
		return Recovered{}, fmt.Errorf("admission: recovering turn %s: %w", turn.ID, err)
	}
	b := &store.Batch{}
	var settled []store.Action
	for i, row := range rows {
		if row.State.Settled() || row.State == writ.Held {
			continue
		}
		w := closing(row, "restart", l.cfg.Now())
		b.Actions = append(b.Actions, w)
		rows[i] = w.Action
		settled = append(settled, w.Action)
	}
	turn.State, turn.Reason, turn.Ended = store.TurnInterrupted, "restart", l.cfg.Now()
	b.Turns = []store.TurnWrite{{Turn: turn, Expect: store.TurnRunning}}
	if finish != nil {
		blocks, err := finish(rows, settled)
		if err != nil {
			return Recovered{}, fmt.Errorf("admission: recovering turn %s: %w", turn.ID, err)
		}
		b.Blocks = blocks
	}
	if err := l.commit(ctx, b); err != nil {
		return Recovered{}, fmt.Errorf("admission: recovering turn %s: %w", turn.ID, err)
	}
	return Recovered{Turn: turn, Actions: settled}, nil
}
