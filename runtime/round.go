package runtime

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"

	"writ"
	"writ/internal/timeline"
	"writ/store"
)

// round is one model generation and the execution of its accepted actions. Its number does not change across decision
// attempts; it advances only when the round has settled.
type round struct {
	t          *turn
	n          int
	answerOnly bool
	compacted  bool // after a context limit, once

	priors []*prior // rows of earlier attempts of this round
	gone   []string // action ids of earlier attempts that never started

	tries         int            // attempts so far
	lastAdmission chan struct{}  // closed when the newest early call has been admitted or refused
	start         func(*action)  // set by Explain: takes the place of starting an early call
	early         sync.WaitGroup // early calls of all attempts
	mu            sync.Mutex
	flights       map[string]*flight // by action id, everything this round has admitted
	fatal         error              // the ledger failed where it must not
}

// run is the picture: config and blocks become a request, the request a stream, the stream verdicts, and what was
// accepted is admitted, dispatched, run once and settled, before the next round sees it.
func (r *round) run(ctx context.Context) (ending, error) {
	r.flights = map[string]*flight{}
	defer r.early.Wait() // whatever ends the round: no call outlives it
	r.t.emit(Event{Type: EventRoundStarted, Round: r.n})
	for repairs := 0; ; {
		a, err := r.attempt(ctx) // prompt: durable state → request
		if err != nil {
			return ending{}, err
		}
		a.stream(ctx) // model → stream → overseer; detached calls are admitted and start here
		r.admissionsDone()
		a.cut()
		switch {
		case r.failed() != nil:
			r.early.Wait()
			return ending{}, r.failed()
		case ctx.Err() != nil:
			return r.interrupted(ctx, a)
		case a.stands():
			return r.settle(ctx, a) // admission → dispatch → effect → admission → timeline
		case a.keptAnswer() != nil:
			return r.keep(ctx, a)
		}
		if again, end, err := r.again(ctx, a, &repairs); !again {
			return end, err
		}
	}
}

// again decides what follows an attempt that does not stand: a retry when the provider failed, a repair when the model
// did, each with a budget of its own, or the end of the turn.
func (r *round) again(ctx context.Context, a *attempt, repairs *int) (bool, ending, error) {
	if err := r.discard(ctx, a); err != nil {
		return false, ending{}, err
	}
	next := false
	if a.failed() {
		var err error
		if next, err = r.t.retry(ctx, r, a); err != nil {
			return false, ending{}, err
		}
	} else {
		*repairs++
		next = *repairs <= r.t.in.Agent.MaxRepairs
	}
	d := a.discarded()
	end := ending{state: store.TurnFailed, reason: d.Code + ": " + d.Message}
	if ctx.Err() != nil {
		next, end = false, ending{state: store.TurnInterrupted, reason: interruptReason(ctx)}
	}
	if next {
		return true, ending{}, nil
	}
	end, err := r.giveUp(ctx, a, end)
	return false, end, err
}

// settle runs what was accepted and ends the round. An answer beside neutral calls is persisted as provisional before
// they run; if one of them does not succeed, exactly one more round follows.
func (r *round) settle(ctx context.Context, a *attempt) (ending, error) {
	end := ending{answer: a.answer()}
	if end.answer != nil && a.beside() > 0 {
		end.written = true
		shown := *end.answer
		shown.Provisional = true
		if err := r.t.write(ctx, r.t.block(timeline.KindAnswer, shown)); err != nil {
			return ending{}, err
		}
		r.t.emit(Event{Type: EventAnswer, Round: r.n, Text: shown.Text, Provisional: true, Followups: shown.Followups})
	}
	if end.answer == nil { // what the generation cost is durable before what it asked for runs
		if err := r.t.write(ctx); err != nil {
			return ending{}, err
		}
	}
	r.execute(ctx, a)
	r.early.Wait()
	if err := r.failed(); err != nil {
		return ending{}, err
	}
	body, ok, err := r.record(ctx, a)
	if err != nil {
		return ending{}, err
	}
	if ctx.Err() == nil && r.holds() {
		return r.park(body, end), nil
	}
	return r.conclude(ctx, body, ok, end)
}

// answerAgain is what the model is told when an action beside its answer did not succeed.
const answerAgain = "your answer was shown to the person, but an action beside it did not succeed. One more round follows: " +
	"correct the answer if it must be corrected, else repeat it briefly"

// conclude decides what a round whose actions have all been settled does to its turn.
func (r *round) conclude(ctx context.Context, body timeline.Round, ok bool, end ending) (ending, error) {
	switch {
	case end.answer != nil && end.written && !ok && ctx.Err() == nil:
		end.again = true
		body.Notices = append(body.Notices, answerAgain)
		return r.close(ctx, body, end)
	case end.answer != nil:
		end.state = store.TurnAnswered
		if body.Told() {
			end.blocks = []store.Block{r.t.block(timeline.KindRound, body)}
		}
		return end, nil
	case ctx.Err() != nil:
		end.state, end.reason = store.TurnInterrupted, interruptReason(ctx)
	case r.t.stopsOnUnknown() && r.unknown():
		end.state, end.reason = store.TurnFailed, "unknown_outcome: an action may have happened and nobody knows; the agent is configured to stop then"
	}
	return r.close(ctx, body, end)
}

// close makes the settled round durable and returns the ending.
func (r *round) close(ctx context.Context, body timeline.Round, end ending) (ending, error) {
	if body.Told() {
		if err := r.t.write(ctx, r.t.block(timeline.KindRound, body)); err != nil {
			return ending{}, err
		}
	}
	return end, nil
}

// execute runs the ordinary actions in order. Neighbours that only explore run together; anything else waits for the
// ones before it. One action's failure never cancels or hides another's result.
func (r *round) execute(ctx context.Context, a *attempt) {
	acts := a.ordinary()
	failed := false
	for i := 0; i < len(acts); {
		j := i + 1
		for acts[i].explores() && j < len(acts) && acts[j].explores() {
			j++
		}
		var wg sync.WaitGroup
		slots := make(chan struct{}, max(r.t.in.Agent.MaxConcurrentActions, 1))
		for _, act := range acts[i:j] {
			if ctx.Err() != nil || r.failed() != nil { // nothing starts after an outcome could not be recorded
				act.refuse(writ.CodeInterrupted, "the turn was stopped before it ran")
				continue
			}
			withhold := failed && r.t.in.Agent.StopOnFailure && act.traits.Strategy.Has(writ.Exploitation)
			f := r.admit(ctx, a, act, false)
			if f == nil {
				failed = true
				continue
			}
			if withhold {
				r.abandon(ctx, f, "earlier_action_failed", "not executed: an earlier action of the round did not succeed")
				continue
			}
			if f.held() {
				failed = true
				continue
			}
			slots <- struct{}{}
			wg.Add(1)
			go func() {
				defer wg.Done()
				r.fly(ctx, f)
				<-slots
			}()
		}
		wg.Wait()
		for _, act := range acts[i:j] {
			if act.flight == nil || act.flight.state() != writ.Succeeded {
				failed = true
			}
		}
		i = j
	}
}

// record makes the round's block: its actions in order, each with its one result. ok reports whether every call
// succeeded and nothing was refused.
func (r *round) record(ctx context.Context, a *attempt) (body timeline.Round, ok bool, err error) {
	body = timeline.Round{Round: r.n, Attempt: a.n, Dialect: r.t.in.Agent.Dialect, Finish: a.finish, Thinking: a.thinking, Text: a.notesText()}
	ok = true
	claimed := map[string]bool{}
	for _, act := range sortActions(a.actions) {
		item, tell, good := act.item()
		ok = ok && (good || act.moot)
		claimed[item.ActionID] = true
		if tell {
			body.Items = append(body.Items, item)
		}
		body.Notices = append(body.Notices, act.notices...)
	}
	body.Orphans = append(body.Orphans, r.gone...)
	for _, p := range r.priors {
		if claimed[p.row.ID] {
			continue
		}
		if p.now(r).State == writ.Held { // nobody asks for it any more
			r.withhold(ctx, p.row)
		}
		n := r.orphanNotice(p)
		body.Notices = append(body.Notices, n)
		body.Orphans = append(body.Orphans, p.row.ID)
		r.t.emit(Event{Type: EventNotice, Round: r.n, Code: "started_in_discarded_attempt", Tool: p.row.Tool, ToolCallID: p.row.ToolCallID, ActionID: p.row.ID, Text: n})
	}
	return body, ok, nil
}

// orphanNotice tells, from the ledger, of an action that a discarded attempt started and nothing has claimed.
func (r *round) orphanNotice(p *prior) string {
	row := p.now(r)
	what := string(row.State)
	if row.State == writ.Withheld {
		return fmt.Sprintf("%s %s of try %d of this round, which was discarded, was not started and will not be", row.ToolCallID, row.Tool, row.Attempt)
	}
	if row.Failure != "" {
		what += " (" + row.Failure + ")"
	}
	if f := r.flown(row.ID); f != nil {
		if s := f.preview(500); s != "" {
			what += ": " + s
		}
	}
	return fmt.Sprintf("%s %s was started by try %d of this round, which was discarded, with %s. It is not repeated. What came of it: %s",
		row.ToolCallID, row.Tool, row.Attempt, clip(string(p.call.Params), 500), what)
}

func (r *round) flown(actionID string) *flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flights[actionID]
}

// discard records an attempt that does not stand, for the next one to read.
func (r *round) discard(ctx context.Context, a *attempt) error {
	body := a.discarded()
	r.t.emit(Event{Type: EventNotice, Round: r.n, Attempt: a.n, Code: "attempt_discarded", Reason: body.Code, Text: body.Message})
	if body.Answer != "" || a.shownText() != "" {
		r.t.emit(Event{Type: EventAnswerReset, Round: r.n, Attempt: a.n})
	}
	if err := r.t.write(ctx, r.t.block(timeline.KindAttempt, body)); err != nil {
		return err
	}
	return r.t.sync(ctx)
}

// giveUp ends the turn after a discarded attempt. Early calls that discarded attempts started still get their notice.
func (r *round) giveUp(ctx context.Context, a *attempt, end ending) (ending, error) {
	r.early.Wait()
	if err := r.failed(); err != nil {
		return ending{}, err
	}
	if _, err := r.adopt(ctx); err != nil {
		return ending{}, err
	}
	body, _, err := r.record(ctx, &attempt{r: r, n: a.n, finish: a.finish})
	if err != nil {
		return ending{}, err
	}
	if end.state == store.TurnFailed && r.answerOnly && a.whole() {
		end.state, end.reason = store.TurnNoAnswer, fmt.Sprintf("no answer within %d rounds", r.t.in.Agent.MaxRounds)
	}
	return r.close(ctx, body, end)
}

// keep ends the turn with an answer that had been shown to its end before its attempt failed.
func (r *round) keep(ctx context.Context, a *attempt) (ending, error) {
	r.early.Wait()
	if err := r.failed(); err != nil {
		return ending{}, err
	}
	why := a.whyKept()
	for _, act := range a.ordinary() {
		act.refuse(writ.CodeInterrupted, "the generation failed before it ran: "+why)
	}
	body, _, err := r.record(ctx, a)
	if err != nil {
		return ending{}, err
	}
	r.t.emit(Event{Type: EventNotice, Round: r.n, Attempt: a.n, Code: "answer_kept", Text: "the generation failed after its answer had been shown: " + why})
	end := ending{state: store.TurnAnswered, answer: a.keptAnswer()}
	if body.Told() {
		end.blocks = []store.Block{r.t.block(timeline.KindRound, body)}
	}
	return end, nil
}

// interrupted ends the turn that the person stopped: what runs settles by itself, what had not been admitted is not run.
func (r *round) interrupted(ctx context.Context, a *attempt) (ending, error) {
	r.early.Wait()
	if err := r.failed(); err != nil {
		return ending{}, err
	}
	for _, act := range a.ordinary() {
		act.refuse(writ.CodeInterrupted, "the turn was stopped before it ran")
	}
	body, _, err := r.record(ctx, a)
	if err != nil {
		return ending{}, err
	}
	if a.shownText() != "" {
		r.t.emit(Event{Type: EventAnswerReset, Round: r.n, Attempt: a.n})
	}
	return r.close(ctx, body, ending{state: store.TurnInterrupted, reason: interruptReason(ctx)})
}

func interruptReason(ctx context.Context) string {
	if c := context.Cause(ctx); c != nil && !errors.Is(c, context.Canceled) {
		return c.Error()
	}
	return "stopped by the person"
}

func (r *round) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fatal == nil {
		r.fatal = err
	}
}

func (r *round) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fatal
}

func sortActions(m map[int]*action) []*action {
	out := make([]*action, 0, len(m))
	for _, a := range m {
		out = append(out, a)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].index < out[j].index })
	return out
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xC0 == 0x80 {
		most--
	}
	return strings.TrimSpace(s[:most]) + "…"
}
