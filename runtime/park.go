package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/internal/timeline"
	"writ/store"
)

// resumed is what a parked turn had when it was parked.
type resumed struct {
	parked *timeline.Parked // the round that waits; nil when its block has been written because the person wrote meanwhile
	held   []store.Action   // at the beginning
	rows   map[string]store.Action
}

// approval says whether the call needs a person's approval, by the administrator's word and what the tool means.
func (act *action) approval() *admission.Approval {
	if act.tool.builtin {
		return nil
	}
	cfg := act.a.r.t.in.Agent
	if !act.tool.Approval.Needs(act.traits) {
		return nil
	}
	return &admission.Approval{Approver: cfg.Approver, Within: cfg.ApprovalTime}
}

// holds reports whether something of the round waits for an approval.
func (r *round) holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.flights {
		if row, _ := r.t.port.Row(f.id); row.State == writ.Held {
			return true
		}
	}
	return false
}

// unknown reports whether something of the round may have happened and nobody knows.
func (r *round) unknown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.flights {
		if f.state() == writ.Indeterminate {
			return true
		}
	}
	return false
}

func (t *turn) stopsOnUnknown() bool {
	return t.kind == store.KindAutonomous || t.in.Agent.OnUnknown == config.UnknownStop
}

// holds reports whether anything of the turn waits for an approval.
func (t *turn) holds() bool {
	return slices.ContainsFunc(t.port.Rows(), func(row store.Action) bool { return row.State == writ.Held })
}

// park ends the turn for now: everything else of the round has settled, and nothing waits in memory.
func (r *round) park(body timeline.Round, end ending) ending {
	p := timeline.Parked{Round: body, Answer: end.answer}
	return ending{state: store.TurnParked, reason: "waits for approvals", answer: end.answer, written: end.written,
		blocks: []store.Block{r.t.block(timeline.KindParked, p)}}
}

// park makes the parked turn durable and gives the port up. What it waits for is in the store; no goroutine is.
func (t *turn) park(ctx context.Context, e ending, out *Outcome) error {
	b := &store.Batch{Blocks: append(t.owed, e.blocks...)}
	if e.answer != nil {
		out.Answer = e.answer.Text
		if !e.written {
			b.Blocks = append(b.Blocks, t.block(timeline.KindAnswer, *e.answer))
		}
	}
	out.State, out.Reason = store.TurnParked, "waits for approvals"
	b.Turns = []store.TurnWrite{{Expect: store.TurnRunning, Turn: store.Turn{ID: t.id, State: store.TurnParked, Reason: out.Reason, Holder: t.rt.cfg.Holder}}}
	for _, row := range t.port.Rows() {
		if row.State == writ.Held {
			out.Held = append(out.Held, row.ID)
		}
	}
	t.port.Drain()
	if err := t.port.Park(ctx, b); err != nil {
		return fmt.Errorf("runtime: parking turn %s: %w", t.id, err)
	}
	if e.answer != nil && !e.written {
		t.emit(Event{Type: EventAnswer, Text: e.answer.Text, Followups: e.answer.Followups})
	}
	t.emit(Event{Type: EventTurnEnded, TurnState: store.TurnParked, Reason: out.Reason, Usage: &t.usage, Cost: t.spent})
	return nil
}

// parkedTurn returns the turn of the conversation that is parked, if there is one.
func (rt *Runtime) parkedTurn(ctx context.Context, conversation string) (*store.Turn, error) {
	turns, err := rt.cfg.Store.OpenTurns(ctx)
	if err != nil {
		return nil, fmt.Errorf("runtime: listing open turns: %w", err)
	}
	for i := range turns {
		if turns[i].Conversation == conversation && turns[i].State == store.TurnParked {
			return &turns[i], nil
		}
	}
	return nil, nil
}

// ErrNotParked means that nothing of the conversation waits.
var ErrNotParked = errors.New("runtime: nothing of the conversation waits for an approval")

// Resume goes on with the conversation's parked turn: what was approved runs, what was declined or has expired is told,
// and when nothing of the round waits any more the turn goes on to its end. While something still waits, the turn is
// parked again. in.Message is not read.
func (rt *Runtime) Resume(ctx context.Context, in Input) (Outcome, error) {
	in.resume, in.Message = true, "resume"
	return rt.Run(ctx, in)
}

// reopen opens the parked turn again, under a new lease of its conversation. A message is durable with that: the round
// that waited is closed before it, with the result held for what still is.
func (t *turn) reopen(ctx context.Context, parked store.Turn) error {
	if _, err := t.ledger.Expire(ctx, store.ApprovalFilter{Turn: parked.ID}, t.closingBlock); err != nil {
		return fmt.Errorf("runtime: resuming: %w", err)
	}
	if err := t.readParked(ctx); err != nil {
		return err
	}
	extra := &store.Batch{Documents: []store.Document{{Digest: t.in.Agent.Digest, Body: t.in.Agent.Effective()}, t.agent.kit.Document()}}
	if message := t.in.message(); message != "" {
		if p := t.resumed.parked; p != nil {
			body, _ := standing(p.Round, t.resumed.rows)
			extra.Blocks = append(extra.Blocks, t.block(timeline.KindRound, body))
			t.resumed.parked = nil
		}
		extra.Blocks = append(extra.Blocks, t.block(timeline.KindUser, timeline.User{Text: message}))
	}
	port, err := t.ledger.Resume(ctx, t.invocation(), t.rt.cfg.Holder, extra)
	if err != nil {
		return fmt.Errorf("runtime: resuming: %w", err)
	}
	inv := port.Invocation()
	t.port, t.conv.LeaseToken, t.conv.Generation = port, inv.LeaseToken, inv.Generation
	return t.sync(ctx)
}

// readParked reads what the turn had when it was parked: its rows, and the round that waits, which is the newest parked
// block unless that round has been closed since.
func (t *turn) readParked(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	t.resumed = &resumed{rows: map[string]store.Action{}}
	rows, err := t.rt.cfg.Store.Actions(ctx, store.ActionFilter{Turn: t.id})
	if err != nil {
		return fmt.Errorf("runtime: reading ledger: %w", err)
	}
	for _, row := range rows {
		t.resumed.rows[row.ID] = row
		t.before = max(t.before, row.Round)
		if row.State == writ.Held {
			t.resumed.held = append(t.resumed.held, row)
		}
	}
	blocks, err := t.rt.cfg.Store.Blocks(ctx, t.conv.ID, 0, 0)
	if err != nil {
		return fmt.Errorf("runtime: reading timeline: %w", err)
	}
	for _, b := range blocks {
		switch {
		case b.Turn != t.id:
		case b.Kind == timeline.KindParked:
			p, err := timeline.Decode[timeline.Parked](b)
			if err != nil {
				return err
			}
			t.resumed.parked = &p
			t.before = max(t.before, p.Round.Round)
		case b.Kind == timeline.KindRound:
			v, err := timeline.Decode[timeline.Round](b)
			if err != nil {
				return err
			}
			t.before = max(t.before, v.Round)
			if p := t.resumed.parked; p != nil && p.Round.Round == v.Round {
				t.resumed.parked = nil
			}
		}
	}
	return nil
}

// resume runs what was approved and closes the round that waited. The ending is empty when another round follows.
func (t *turn) resume(ctx context.Context) (ending, error) {
	r := &round{t: t, n: t.before, flights: map[string]*flight{}}
	if err := r.release(ctx, t.resumed.held); err != nil {
		return ending{}, err
	}
	p := t.resumed.parked
	switch {
	case ctx.Err() != nil:
		if p != nil {
			body, _ := standing(p.Round, t.rows())
			if _, err := r.close(ctx, body, ending{}); err != nil {
				return ending{}, err
			}
		}
		return ending{state: store.TurnInterrupted, reason: interruptReason(ctx)}, nil
	case t.in.resume && t.holds():
		return ending{state: store.TurnParked, reason: "waits for approvals"}, nil
	case p == nil:
		return ending{}, t.sync(ctx)
	}
	body, ok := standing(p.Round, t.rows())
	r.n = body.Round
	end, err := r.conclude(ctx, body, ok, ending{answer: p.Answer, written: p.Answer != nil})
	if err != nil {
		return ending{}, err
	}
	return end, t.sync(ctx)
}

// rows are the turn's rows as its port sees them.
func (t *turn) rows() map[string]store.Action {
	out := map[string]store.Action{}
	for _, row := range t.port.Rows() {
		out[row.ID] = row
	}
	return out
}

// release flies the held actions whose approval allows it, in order: the dispatcher finds out, and checks everything
// again.
func (r *round) release(ctx context.Context, held []store.Action) error {
	var wg sync.WaitGroup
	for _, row := range held {
		f, why := r.revive(row)
		if why != "" {
			r.t.port.Cancel(ctx, row.ID, "tool_unavailable", r.t.closingBlock)
			continue
		}
		if f.act.explores() {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r.fly(ctx, f)
			}()
			continue
		}
		wg.Wait()
		r.fly(ctx, f)
	}
	wg.Wait()
	return r.failed()
}

// revive makes the flight of a held action from what is durable of it.
func (r *round) revive(row store.Action) (*flight, string) {
	call, ok := r.t.render.Call(row.ID)
	if !ok {
		return nil, "its call block is missing"
	}
	tool := r.t.agent.tools[row.Tool]
	if tool == nil {
		return nil, "the agent has no such tool any more"
	}
	a := &attempt{r: r, n: row.Attempt, actions: map[int]*action{}}
	act := &action{a: a, index: row.Index, kind: writ.ActionCall, name: row.Tool, accepted: true, tool: tool, params: call.Params,
		fingerprint: row.Fingerprint, arguments: row.ArgumentDigest, traits: tool.Traits}
	f := &flight{act: act, id: row.ID, callID: row.ToolCallID, waiting: true}
	act.flight = f
	r.mu.Lock()
	r.flights[f.id] = f
	r.mu.Unlock()
	return f, ""
}

// standing is the round's block as its actions stand in the rows; ok reports whether every one succeeded.
func standing(body timeline.Round, rows map[string]store.Action) (_ timeline.Round, ok bool) {
	ok = true
	for i := range body.Items {
		it := &body.Items[i]
		if it.ActionID == "" {
			ok = ok && it.Code == ""
			continue
		}
		row, known := rows[it.ActionID]
		it.Held = known && row.State == writ.Held
		it.Running = known && !row.State.Settled() && !it.Held
		ok = ok && known && row.State == writ.Succeeded
	}
	return body, ok
}
