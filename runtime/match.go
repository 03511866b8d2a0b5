package runtime

import (
	"context"
	"encoding/json"
	"fmt"

	"writ"
	"writ/admission"
	"writ/internal/overseer"
	"writ/internal/stream"
	"writ/internal/timeline"
	"writ/store"
)

// prior is a row of the ledger that an earlier attempt of this round has left, with its call block.
type prior struct {
	row  store.Action
	call timeline.Call
}

// now is the row as it stands.
func (p *prior) now(r *round) store.Action {
	if row, ok := r.t.port.Row(p.row.ID); ok {
		return row
	}
	return p.row
}

// adopt reads from the ledger what earlier attempts of the round have started, and returns the number of the next
// attempt: the durable maximum + 1. Rows that never started anything do not stand; one that nobody holds is withheld.
func (r *round) adopt(ctx context.Context) (int, error) {
	r.tries++
	next := r.tries
	if next == 1 {
		return next, nil
	}
	rows, err := r.t.rt.cfg.Store.Actions(context.WithoutCancel(ctx), store.ActionFilter{Turn: r.t.id, Round: r.n})
	if err != nil {
		return 0, fmt.Errorf("runtime: reading ledger: %w", err)
	}
	if err := r.t.sync(ctx); err != nil {
		return 0, err
	}
	r.priors, r.gone = nil, nil
	for _, row := range rows {
		next = max(next, row.Attempt+1)
		if row.State == writ.Withheld || row.State == writ.Admitted && r.flown(row.ID) == nil && r.withhold(ctx, row) {
			r.gone = append(r.gone, row.ID)
			continue
		}
		call, ok := r.t.render.Call(row.ID)
		if !ok {
			return 0, fmt.Errorf("runtime: action %s has no call block", row.ID)
		}
		r.priors = append(r.priors, &prior{row: row, call: call})
	}
	r.tries = next
	return next, nil
}

func (a *attempt) callID(index int) string {
	return admission.ToolCallID(a.r.t.id, a.r.n, a.n, index)
}

// overseerPriors are the rows of earlier attempts as the overseer weighs them.
func (a *attempt) overseerPriors() []overseer.Prior {
	var out []overseer.Prior
	for _, p := range a.r.priors {
		o := overseer.Prior{ActionID: p.row.ID, Tool: p.row.Tool, Index: p.row.Index, Strategy: writ.Unknown}
		if f := a.r.flown(p.row.ID); f != nil {
			o.Strategy = f.act.traits.Strategy
			o.Writes = pathValues(p.call.Params, f.act.tool.Paths.Writes)
		}
		out = append(out, o)
	}
	return out
}

func pathValues(params json.RawMessage, names []string) []string {
	var m map[string]json.RawMessage
	if json.Unmarshal(params, &m) != nil {
		return nil
	}
	var out []string
	for _, n := range names {
		var one string
		var many []string
		switch {
		case json.Unmarshal(m[n], &one) == nil:
			out = append(out, one)
		case json.Unmarshal(m[n], &many) == nil:
			out = append(out, many...)
		}
	}
	return out
}

// match compares a closed call with the rows of earlier attempts that nothing of this attempt has claimed:
//
//	(i)   equal fingerprint, same index first, else the lowest: it is the recorded action
//	(ii)  same index and tool, other arguments, and the row was dispatched: the row stands
//	(iii) otherwise it is a new action; an admitted row in its place that has not been dispatched is withheld
func (a *attempt) match(ctx context.Context, d *stream.Decision) overseer.Claim {
	act := a.action(d.Index)
	act.decision = d
	if act.prepare() != "" {
		return overseer.Claim{}
	}
	best := -1
	for i, p := range a.r.priors {
		if a.taken[i] || p.row.Fingerprint != act.fingerprint {
			continue
		}
		if p.row.Index == d.Index {
			best = i
			break
		}
		if best < 0 || p.row.Index < a.r.priors[best].row.Index {
			best = i
		}
	}
	if best >= 0 {
		return overseer.Claim{Claimed: true, Prior: best}
	}
	for i, p := range a.r.priors {
		if !a.taken[i] && p.row.Index == d.Index && p.row.Tool == d.Tool {
			replaced := a.r.withhold(ctx, p.row)
			return overseer.Claim{Replaced: replaced, Conflict: !replaced, Prior: i}
		}
	}
	return overseer.Claim{}
}

// withhold settles a row that has not been dispatched, for good; false when it has been. The ledger decides.
func (r *round) withhold(ctx context.Context, row store.Action) bool {
	const reason = "replaced"
	return r.t.port.Cancel(ctx, row.ID, reason, func(row store.Action) []store.Block {
		b := r.t.block(timeline.KindResult, timeline.Result{Tool: row.Tool, ToolCallID: row.ToolCallID, State: row.State, Failure: reason,
			Note: "not executed: its attempt was discarded before it was started"})
		b.Key = timeline.ResultKey(row.ID)
		return []store.Block{b}
	}).Accepted
}
