package runtime

import (
	"context"
	"encoding/json"
	"fmt"

	"writ"
	"writ/admission"
	"writ/internal/timeline"
	"writ/store"
)

// Resolve records what somebody found out of an unknown outcome, in the ledger and on the conversation's timeline, from
// which the next round learns it. See admission.Ledger.Resolve for who may and which errors there are.
func (rt *Runtime) Resolve(ctx context.Context, r admission.Resolution) (store.Operation, error) {
	return rt.ledgerFor(admission.DefaultStartWithin).Resolve(ctx, r, func(row store.Action, _ store.Operation) []store.Block {
		b := timeline.New(row.Conversation, row.Turn, timeline.KindResolved, rt.cfg.Now(),
			timeline.Resolved{Tool: row.Tool, ToolCallID: row.ToolCallID, Disposition: r.Disposition, Note: r.Note})
		b.ActionID = row.ID
		return []store.Block{b}
	})
}

// Decide decides the approval of a held action, once. A declined action has its result at once; an approved one runs when
// its turn is resumed.
func (rt *Runtime) Decide(ctx context.Context, v admission.Verdict) (store.Approval, error) {
	return rt.ledgerFor(admission.DefaultStartWithin).Decide(ctx, v, rt.closingBlock)
}

// ExpireApprovals withholds the held actions whose approvals were not decided in time.
func (rt *Runtime) ExpireApprovals(ctx context.Context) ([]store.Action, error) {
	return rt.ledgerFor(admission.DefaultStartWithin).Expire(ctx, store.ApprovalFilter{}, rt.closingBlock)
}

// Seal writes a head over the histories that have grown.
func (rt *Runtime) Seal(ctx context.Context) (store.Head, bool, error) {
	return rt.ledgerFor(admission.DefaultStartWithin).Seal(ctx)
}

// Ledger is the ledger that the runtime's turns are recorded in.
func (rt *Runtime) Ledger() *admission.Ledger { return rt.ledgerFor(admission.DefaultStartWithin) }

func (rt *Runtime) closingBlock(row store.Action) []store.Block {
	b := timeline.New(row.Conversation, row.Turn, timeline.KindResult, rt.cfg.Now(), closingResult(row))
	b.Key = timeline.ResultKey(row.ID)
	return []store.Block{b}
}

// Held is an action that waits for an approval, with the arguments as they will be sent.
type Held struct {
	store.Approval
	Row    store.Action
	Params json.RawMessage
}

// Pending lists the actions that wait for a decision, the oldest first.
func Pending(ctx context.Context, st store.Store, f store.ApprovalFilter) ([]Held, error) {
	if f.States == nil {
		f.States = []string{store.ApprovalPending}
	}
	list, err := st.Approvals(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("runtime: listing approvals: %w", err)
	}
	out := make([]Held, 0, len(list))
	blocks := map[string]map[string]json.RawMessage{} // conversation → action → arguments
	for _, a := range list {
		row, err := st.Action(ctx, a.Action)
		if err != nil {
			return nil, fmt.Errorf("runtime: reading action %s: %w", a.Action, err)
		}
		if blocks[a.Conversation] == nil {
			if blocks[a.Conversation], err = arguments(ctx, st, a.Conversation); err != nil {
				return nil, err
			}
		}
		out = append(out, Held{Approval: a, Row: row, Params: blocks[a.Conversation][a.Action]})
	}
	return out, nil
}

func arguments(ctx context.Context, st store.Store, conversation string) (map[string]json.RawMessage, error) {
	blocks, err := st.Blocks(ctx, conversation, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("runtime: reading timeline: %w", err)
	}
	out := map[string]json.RawMessage{}
	for _, b := range blocks {
		if b.Kind != timeline.KindCall {
			continue
		}
		c, err := timeline.Decode[timeline.Call](b)
		if err != nil {
			return nil, err
		}
		out[b.ActionID] = c.Params
	}
	return out, nil
}

// keepLate keeps an outcome that came after its action had been settled as indeterminate.
func (r *round) keepLate(ctx context.Context, f *flight, res writ.Result, err error, block store.Block) error {
	o := admission.Outcome{State: writ.Succeeded}
	switch {
	case err != nil:
		return nil // still nobody knows
	case res.IsError:
		o.State, o.Failure = writ.Failed, "tool_error"
	}
	_, rerr := r.t.ledger.Report(ctx, f.id, r.t.rt.cfg.Holder, o, func(store.Action, store.Operation) []store.Block { return []store.Block{block} })
	return rerr
}
