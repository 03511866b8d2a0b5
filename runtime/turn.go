package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/internal/prompt"
	"writ/internal/timeline"
	"writ/internal/workspace"
	"writ/store"
)

// turn is one activation of an agent on a conversation: built fresh from durable state, thrown away after.
type turn struct {
	rt      *Runtime
	in      Input
	conv    store.Conversation
	id      string
	kind    string   // store.KindTurn or store.KindAutonomous
	resumed *resumed // the parked turn that this one goes on with
	before  int      // rounds that it had then
	started time.Time

	agent    *Agent
	ws       *workspace.Workspace
	builtins *builtins
	ledger   *admission.Ledger
	port     *admission.Port
	render   *prompt.Renderer
	prefix   *prompt.Prefix
	usage    writ.Usage
	owed     []store.Block // records of model calls that the next write takes along
	rounds   int
	spent    float64 // of the calls whose price is known
	fallback int     // which of in.Fallback answers, from 1; 0 = the agent's model
	failures int     // of the model that answers, in a row
	retries  int     // of model calls, in this turn

	compactTried, compactForced int // the last round in which a compaction was tried

	sinkMu sync.Mutex
	sink   Sink
	over   bool // the last event has been told

	keptMu sync.Mutex
	kept   []func() // settlements that the ledger could not take; offered once more at the end

	goneMu sync.Mutex
	gone   []string // tools that their source has stopped offering during the turn
}

// vanished remembers a tool that is gone; the next round's ANNOUNCE says so.
func (t *turn) vanished(tool string) {
	t.goneMu.Lock()
	defer t.goneMu.Unlock()
	if !slices.Contains(t.gone, tool) {
		t.gone = append(t.gone, tool)
	}
}

// ending is how a turn ends, with the blocks that its last write adds.
type ending struct {
	state   string // empty: another round follows
	reason  string
	answer  *timeline.Answer
	written bool // the answer is on the timeline already
	again   bool // an action beside the answer did not succeed: exactly one more round may correct it
	blocks  []store.Block
	raised  bool // the turn could not go on for a reason of our own
}

func (t *turn) build(ctx context.Context) error {
	cfg := t.in.Agent
	t.builtins = newBuiltins(t)
	conns := append([]Connection{{Config: config.Connection{Alias: workspace.Alias}, Tools: t.builtins, Effects: builtinEffects}}, t.in.Connections...)
	agent, err := build(ctx, cfg, conns, &t.rt.schemas)
	if err != nil {
		return err
	}
	t.agent = agent
	t.ledger = t.rt.ledgerFor(cfg.StartWithin)
	t.render = prompt.NewRenderer(cfg.Dialect, agent.vendorName)
	if t.port, err = t.ledger.Open(t.invocation()); err != nil {
		return err
	}
	return t.sync(ctx)
}

// run goes round after round until there is an answer or nothing more may be done, and makes the end durable.
func (t *turn) run(ctx context.Context) (Outcome, error) {
	t.emit(Event{Type: EventTurnStarted, Conversation: t.conv.ID, Agent: t.in.Agent.ID})
	for _, p := range t.agent.Problems {
		code := writ.Code("tool_unavailable")
		if t.agent.tools[p.Tool] != nil {
			code = "tool_remark"
		}
		t.emit(Event{Type: EventNotice, Code: code, Tool: p.Tool, Text: p.Message})
	}
	end, err := t.loop(ctx)
	if err != nil {
		return Outcome{Conversation: t.conv.ID, Turn: t.id, State: store.TurnFailed, Reason: err.Error(), Usage: t.usage}, t.abort(ctx, err)
	}
	return t.end(ctx, end)
}

func (t *turn) loop(ctx context.Context) (ending, error) {
	var shown *ending // an answer that one more round may correct
	if t.resumed != nil {
		end, err := t.resume(ctx)
		switch {
		case err != nil:
			return ending{}, err
		case end.state != "":
			return end, nil
		case end.again:
			shown = &end
		}
	}
	limit := t.before + t.in.Agent.MaxRounds
	for n := t.before + 1; ; n++ {
		if err := t.sync(ctx); err != nil {
			return ending{}, err
		}
		t.rounds = n - t.before
		if _, err := t.compactIfNeeded(ctx, false); err != nil {
			return ending{}, err
		}
		r := &round{t: t, n: n, answerOnly: n > limit}
		end, err := r.run(ctx)
		switch {
		case err != nil:
			return ending{}, err
		case end.state == store.TurnAnswered, end.state == store.TurnParked, end.state != "" && shown == nil:
			return end, nil
		case shown != nil: // the one more round: its answer, or the shown one, stands
			if end.answer == nil {
				end.answer = shown.answer
			}
			return ending{state: store.TurnAnswered, answer: end.answer, written: true}, nil
		case end.again:
			shown = &end
		}
	}
}

// end settles whatever is open, and writes the turn's end with it in one batch.
func (t *turn) end(ctx context.Context, e ending) (Outcome, error) {
	out := Outcome{Conversation: t.conv.ID, Turn: t.id, State: e.state, Reason: e.reason, Rounds: t.rounds, Usage: t.usage, Cost: t.spent}
	now := t.rt.cfg.Now()
	if e.state == store.TurnParked || e.state == store.TurnAnswered && t.holds() {
		return out, t.park(ctx, e, &out)
	}
	b := &store.Batch{Blocks: append(t.owed, e.blocks...), Turns: []store.TurnWrite{{Expect: store.TurnRunning, Turn: store.Turn{ID: t.id, State: e.state, Reason: e.reason, Ended: now}}}}
	if e.answer != nil {
		out.Answer = e.answer.Text
		if !e.written {
			b.Blocks = append(b.Blocks, t.block(timeline.KindAnswer, *e.answer))
		}
	}
	b.Blocks = append(b.Blocks, t.block(timeline.KindTurnEnd, timeline.TurnEnd{State: e.state, Reason: e.reason}))
	t.port.Drain()
	if err := t.closePort(ctx, e, b); err != nil {
		return out, fmt.Errorf("runtime: ending turn %s: %w", t.id, err)
	}
	if e.answer != nil {
		t.emit(Event{Type: EventAnswer, Text: e.answer.Text, Followups: e.answer.Followups})
	}
	t.emit(Event{Type: EventTurnEnded, TurnState: e.state, Reason: e.reason, Usage: &t.usage, Cost: t.spent})
	return out, nil
}

// closePort closes the port with the batch that ends the turn. A schedule or an approval that was changed at the same
// time is read again.
func (t *turn) closePort(ctx context.Context, e ending, b *store.Batch) error {
	for try := 0; ; try++ {
		if err := t.scheduled(ctx, e, b); err != nil {
			return err
		}
		err := t.port.Close(ctx, outer(e), b, t.closingBlock)
		var conflict *store.Conflict
		if !errors.As(err, &conflict) || try == settleTries {
			return err
		}
	}
}

// outer is what the history says of the turn itself.
func outer(e ending) admission.Ending {
	switch e.state {
	case store.TurnAnswered:
		return admission.Ending{Status: admission.StatusSucceeded}
	case store.TurnNoAnswer:
		return admission.Ending{Status: admission.StatusFailed, Failure: "resource_exhausted"}
	case store.TurnInterrupted:
		return admission.Ending{Status: admission.StatusFailed, Failure: "interrupted"}
	case store.TurnFailed:
		if !e.raised {
			return admission.Ending{Status: admission.StatusFailed, Failure: "backend_error"}
		}
	}
	return admission.Ending{} // it raised: its actions are told, itself is not
}

// abort ends a turn whose store did not do what it must. When even the end cannot be written the turn stays open, and
// the next start recovers it by the restart rules.
func (t *turn) abort(ctx context.Context, cause error) error {
	t.keptMu.Lock()
	for _, again := range t.kept {
		again()
	}
	t.keptMu.Unlock()
	_, err := t.end(ctx, ending{state: store.TurnFailed, reason: "internal error", raised: true})
	t.rt.cfg.Log.Error("turn failed", "turn", t.id, "error", cause)
	if err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// sync reads what is new on the timeline: the prompt is rendered from durable state only.
func (t *turn) sync(ctx context.Context) error {
	blocks, err := t.rt.cfg.Store.Blocks(context.WithoutCancel(ctx), t.conv.ID, t.render.Seq(), 0)
	if err != nil {
		return fmt.Errorf("runtime: reading timeline: %w", err)
	}
	for _, b := range blocks {
		if err := t.render.Add(b); err != nil {
			return fmt.Errorf("runtime: %w", err)
		}
	}
	return nil
}

// write appends blocks under the turn's fence, after the records that are owed.
func (t *turn) write(ctx context.Context, blocks ...store.Block) error {
	blocks = append(t.owed, blocks...)
	t.owed = nil
	if len(blocks) == 0 {
		return nil
	}
	return t.append(ctx, blocks...)
}

// append writes blocks in the middle of a round, from any goroutine; what is owed waits for the turn's own writes.
func (t *turn) append(ctx context.Context, blocks ...store.Block) error {
	b := &store.Batch{ID: t.rt.cfg.NewID("b_"), Time: t.rt.cfg.Now(), Blocks: blocks,
		Fence: &store.Fence{Conversation: t.conv.ID, Token: t.conv.LeaseToken, Generation: t.conv.Generation}}
	if err := store.Commit(context.WithoutCancel(ctx), t.rt.cfg.Store, b); err != nil {
		return fmt.Errorf("runtime: writing timeline: %w", err)
	}
	return nil
}

func (t *turn) block(kind string, body any) store.Block {
	return timeline.New(t.conv.ID, t.id, kind, t.rt.cfg.Now(), body)
}

func (t *turn) emit(e Event) {
	t.sinkMu.Lock()
	defer t.sinkMu.Unlock()
	if t.over {
		return // a tool that goes on talking after its turn
	}
	t.over = e.Type == EventTurnEnded
	e.Turn, e.Time = t.id, t.rt.cfg.Now()
	t.sink(e)
}

// announce says what is true now.
func (t *turn) announce(r *round, attempt int) string {
	cfg := t.in.Agent
	a := prompt.Announce{Round: min(r.n-t.before, cfg.MaxRounds), MaxRounds: cfg.MaxRounds, Attempt: attempt, Last: r.n-t.before >= cfg.MaxRounds,
		AnswerOnly: r.answerOnly, Elapsed: t.rt.cfg.Now().Sub(t.started), InputTokens: t.usage.Input + t.usage.CacheRead + t.usage.CacheWrite,
		OutputTokens: t.usage.Output, Now: t.rt.cfg.Now(), Plans: t.render.Plans(), Unknown: t.render.Unknown(), Resolved: t.render.Resolved()}
	for _, row := range t.port.Rows() {
		if row.State == writ.Held {
			a.Held = append(a.Held, row.ToolCallID+" "+row.Tool)
		}
	}
	const most = 40
	for _, e := range t.ws.Map(most) {
		a.Workspace = append(a.Workspace, fmt.Sprintf("%s (%d bytes)", e.Ref, e.Size))
	}
	for _, p := range r.priors {
		a.Started = append(a.Started, fmt.Sprintf("%s %s %s: %s", p.row.ToolCallID, p.row.Tool, clip(string(p.call.Params), 500), p.now(r).State))
	}
	for _, p := range t.agent.Problems {
		if t.agent.tools[p.Tool] == nil { // else a remark about a tool that works
			a.Quarantined = append(a.Quarantined, p.Tool+": "+p.Message)
		}
	}
	t.goneMu.Lock()
	defer t.goneMu.Unlock()
	a.Vanished = slices.Sorted(slices.Values(t.gone))
	return a.Text()
}

// observation is the observation point of a turn's outcomes.
const observation = "conversation"

// invocation is the identity and the bounds of the turn's port.
func (t *turn) invocation() admission.Invocation {
	cfg := t.in.Agent
	bounds := t.agent.Compiled()
	if a := cfg.Autonomous; t.kind == store.KindAutonomous && a != nil && a.Actions > 0 {
		bounds.Total = min(bounds.Total, a.Actions)
		bounds.Concurrent = min(bounds.Concurrent, bounds.Total)
	}
	return admission.Invocation{ID: t.id, Kind: t.kind, Tenant: t.rt.cfg.Tenant, Owner: t.conv.Owner, Conversation: t.conv.ID, Agent: cfg.ID,
		Generation: t.conv.Generation, LeaseToken: t.conv.LeaseToken, Observation: observation, PolicyDigest: cfg.Digest,
		IgnoreUnknown: cfg.OnUnknown == config.UnknownContinue, Settled: t.closingBlock, Compiled: bounds}
}
