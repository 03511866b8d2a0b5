package runtime

import (
	"context"
	"fmt"
	"slices"

	"writ/admission"
	"writ/internal/timeline"
	"writ/store"
)

// Recover applies the restart rules to every turn that an earlier process left open. Only the owner of the data may
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
		rec, err := rt.ledgerFor(admission.DefaultStartWithin).Recover(ctx, turn, func(all, settled []store.Action) ([]store.Block, error) {
			return rt.recovered(turn, blocks, all, settled)
		})
		if err != nil {
			return out, err
		}
		rt.cfg.Log.Info("a turn was interrupted by a restart", "turn", turn.ID, "conversation", turn.Conversation, "settled", len(rec.Actions))
		out = append(out, rec)
	}
	return out, nil
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
		out = append(out, mk(timeline.KindRound, *rounds[n]))
	}
	return append(out, mk(timeline.KindTurnEnd, timeline.TurnEnd{State: store.TurnInterrupted, Reason: "the process was restarted"})), nil
}
