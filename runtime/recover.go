package runtime

import (
	"context"
	"fmt"
	"slices"

	"writ"
	"writ/admission"
	"writ/internal/timeline"
	"writ/store"
)

// Recover applies the restart rules to every turn that an earlier process left open, and frees its schedules. Only the owner of the data may
// call it, before anything is run. It returns what it settled; a second call settles nothing.
func (rt *Runtime) Recover(ctx context.Context) ([]admission.Recovered, error) {
	turns, err := rt.cfg.Store.OpenTurns(ctx)
	if err != nil {
		return nil, fmt.Errorf("runtime: listing open turns: %w", err)
	}
	var out []admission.Recovered
	for _, turn := range turns {
		blocks, err := rt.cfg.Store.Blocks(ctx, turn.Conversation, 0, 0)
		if err != nil {
			return out, fmt.Errorf("runtime: reading timeline: %w", err)
		}
		blocks = slices.DeleteFunc(blocks, func(b store.Block) bool { return b.Turn != turn.ID })
		rec, err := rt.ledgerFor(admission.DefaultStartWithin).Recover(ctx, turn, func(b *store.Batch, turn store.Turn, all, settled []store.Action) error {
			var err error
			if b.Blocks, err = rt.recovered(turn, blocks, all, settled); err != nil {
				return err
			}
			return rt.unscheduled(ctx, b, turn, all)
		})
		if err != nil {
			return out, err
		}
		if rec.Turn.State == store.TurnParked && len(rec.Actions) == 0 {
			continue // it was parked before, or nothing else of it was open
		}
		rt.cfg.Log.Info("a turn was interrupted by a restart", "turn", turn.ID, "conversation", turn.Conversation, "settled", len(rec.Actions))
		out = append(out, rec)
	}
	return out, rt.freeSchedules(ctx)
}

// freeSchedules ends the leases that earlier processes had on schedules: they are gone.
func (rt *Runtime) freeSchedules(ctx context.Context) error {
	list, err := rt.cfg.Store.Schedules(ctx)
	if err != nil {
		return fmt.Errorf("runtime: listing schedules: %w", err)
	}
	now := rt.cfg.Now()
	for _, s := range list {
		if !now.Before(s.LeaseUntil) {
			continue
		}
		w := store.ScheduleWrite{Schedule: s, Expect: s.Revision}
		w.Revision, w.LeaseUntil, w.Changed = s.Revision+1, now, now
		b := &store.Batch{ID: rt.cfg.NewID("b_"), Time: now, Schedules: []store.ScheduleWrite{w}}
		if err := store.Commit(ctx, rt.cfg.Store, b); err != nil {
			return fmt.Errorf("runtime: freeing schedule %s: %w", s.ID, err)
		}
	}
	return nil
}

// recovered makes the blocks that a crash kept from being written: the results of what was settled just now, the
// block of the round that was under way, naming each of its calls with its one result, and the turn's end.
func (rt *Runtime) recovered(turn store.Turn, have []store.Block, all, settled []store.Action) ([]store.Block, error) {
	now := rt.cfg.Now()
	mk := func(kind string, body any) store.Block {
		return timeline.New(turn.Conversation, turn.ID, kind, now, body)
	}
	var out []store.Block
	for _, row := range settled {
		b := mk(timeline.KindResult, closingResult(row))
		b.Key, b.ActionID = timeline.ResultKey(row.ID), row.ID
		out = append(out, b)
	}
	told := map[string]bool{} // actions that a round block names
	for _, b := range have {
		if b.Kind != timeline.KindRound {
			continue
		}
		round, err := timeline.Decode[timeline.Round](b)
		if err != nil {
			return nil, err
		}
		for _, it := range round.Items {
			told[it.ActionID] = true
		}
		for _, id := range round.Orphans {
			told[id] = true
		}
	}
	rounds := map[int]*timeline.Round{}
	var order []int
	for _, row := range all {
		if told[row.ID] {
			continue
		}
		r := rounds[row.Round]
		if r == nil {
			r = &timeline.Round{Round: row.Round, Attempt: row.Attempt, Finish: "cut",
				Notices: []string{"this round was cut off by a restart; what the ledger says of its calls is what happened"}}
			rounds[row.Round] = r
			order = append(order, row.Round)
		}
		r.Items = append(r.Items, timeline.Item{Index: row.Index, Tool: row.Tool, ToolCallID: row.ToolCallID, ActionID: row.ID})
	}
	slices.Sort(order)
	for _, n := range order {
		slices.SortStableFunc(rounds[n].Items, func(a, b timeline.Item) int { return a.Index - b.Index })
		if turn.State == store.TurnParked && n == order[len(order)-1] {
			return append(out, mk(timeline.KindParked, timeline.Parked{Round: *rounds[n]})), nil
		}
		out = append(out, mk(timeline.KindRound, *rounds[n]))
	}
	if turn.State == store.TurnParked {
		return out, nil
	}
	return append(out, mk(timeline.KindTurnEnd, timeline.TurnEnd{State: store.TurnInterrupted, Reason: "the process was restarted"})), nil
}

// unscheduled counts the run of a schedule that a restart has cut off.
func (rt *Runtime) unscheduled(ctx context.Context, b *store.Batch, turn store.Turn, all []store.Action) error {
	if turn.Kind != store.KindAutonomous || turn.State != store.TurnInterrupted {
		return nil
	}
	var unknown []string
	for _, row := range all {
		if row.State == writ.Indeterminate {
			unknown = append(unknown, row.ID)
		}
	}
	w, err := rt.settleRun(ctx, ScheduleID(turn.Agent), -1, false, false, unknown)
	if w != nil {
		b.Schedules = []store.ScheduleWrite{*w}
	}
	return err
}
