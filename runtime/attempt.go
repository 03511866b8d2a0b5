package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"writ"
	"writ/internal/overseer"
	"writ/internal/stream"
	"writ/internal/timeline"
	"writ/internal/workspace"
)

// attempt is one try at generating a round: what the model wrote, as it was judged while it streamed.
type attempt struct {
	r *round
	n int // durable maximum + 1

	seer     *overseer.Overseer
	actions  map[int]*action // by index in this attempt's stream
	taken    map[int]bool    // priors that an action of this attempt has claimed
	thinking []timeline.Thinking
	summary  strings.Builder
	text     string // native text of the round
	isAnswer bool   // native: text is the answer

	finish     writ.Finish
	err        error  // of the provider
	impossible string // channel dialect: what the message began with instead of a channel
	stopped    bool   // by us, at a refusal
	usage      writ.Usage
	written    int  // characters the model wrote, for an estimate
	answered   bool // the provider sent at least one event
}

// action is one action of an attempt on its way from a verdict to a result.
type action struct {
	a        *attempt
	index    int
	kind     string // call_tool, complete, exit
	name     string // the tool id as the model gave it
	decision *stream.Decision
	opaque   json.RawMessage

	accepted bool
	code     writ.Code // why it does not run
	reason   string
	raw      string

	tool        *Tool
	params      json.RawMessage
	fingerprint string
	arguments   string // digest
	targets     []string
	traits      writ.Traits

	early    bool   // it was handed to startEarly: whether it was admitted is known after admissionsDone
	moot     bool   // its refusal says nothing about the answer of the round
	claim    *prior // the recorded action of an earlier attempt that this one is
	conflict string // the claim was dispatched with other arguments
	flight   *flight
	notices  []string
}

func (act *action) final() bool {
	return act.kind == writ.ActionComplete || act.kind == writ.ActionExit
}

func (act *action) explores() bool {
	return act.traits.Strategy.Only(writ.Exploration)
}

// attempt renders the request for the next try at the round from durable state: the ledger says what earlier tries
// have started.
func (r *round) attempt(ctx context.Context) (*attempt, error) {
	n, err := r.adopt(ctx)
	if err != nil {
		return nil, err
	}
	return &attempt{r: r, n: n, actions: map[int]*action{}, taken: map[int]bool{}}, nil
}

// stream runs the generation: bytes become actions, actions get verdicts, and what is accepted and detached is
// admitted and starts while the rest still streams.
func (a *attempt) stream(ctx context.Context) {
	t := a.r.t
	model, name, err := t.model(ctx)
	if err != nil {
		a.err = err
		return
	}
	call := fmt.Sprintf("%s/%d/%d", t.id, a.r.n, a.n)
	prefix, record := t.render.Prefix(t.agent.kit, t.prefix)
	t.prefix = prefix
	req := t.render.Request(t.agent.kit, name, call, t.announce(a.r, a.n), a.r.answerOnly)

	cfg := t.in.Agent
	parser := stream.New(cfg.Dialect, stream.Options{CodeParam: t.agent.codeParam})
	a.seer = overseer.New(overseer.Config{MaxActions: cfg.MaxActionsPerRound, Lookup: t.agent.lookup, Nearest: t.agent.nearest, NoTools: a.r.answerOnly,
		Priors: a.overseerPriors(), Claim: func(d *stream.Decision) overseer.Claim { return a.match(ctx, d) }, CanonPath: t.canon, Continue: cfg.OnRefusal == "continue"})
	feed := func(e stream.Event) bool {
		return a.seer.Feed(e, func(o overseer.Output) bool { return a.take(ctx, o) })
	}
	began := time.Now()
	gctx, stop := context.WithCancel(ctx)
	defer stop()
	for ev, err := range model.Stream(gctx, req) {
		if err != nil {
			a.err = err
			break
		}
		a.model(ev, parser, feed)
		if a.impossible != "" || a.seer.Stopped() {
			a.stopped = true
			break
		}
	}
	stop()
	a.end(parser, feed)
	a.account(record, time.Since(began), name)
}

// end closes what is open. A stream that ended by itself without its end marker was cut.
func (a *attempt) end(parser stream.Parser, feed func(stream.Event) bool) {
	if a.finish == "" {
		a.finish = writ.FinishCut
		if a.stopped {
			a.finish = writ.FinishStop
		}
	}
	parser.Finish(a.finish, feed)
}

func (a *attempt) model(ev writ.ModelEvent, parser stream.Parser, feed func(stream.Event) bool) {
	a.written += len(ev.Text)
	a.answered = true
	switch ev.Kind {
	case writ.ModelUsage:
		a.usage = ev.Usage
	case writ.ModelFinish:
		a.finish = ev.Finish
	case writ.ModelToolOpen:
		ev.Name = a.r.t.agent.toolID(ev.Name)
		parser.Feed(ev, feed)
	default:
		parser.Feed(ev, feed)
	}
}

// account records what the call cost and how much of its prompt it shared with the one before. The record is written
// with the next write of the turn, before any of the attempt's ordinary actions runs.
func (a *attempt) account(rec timeline.Request, took time.Duration, model string) {
	t := a.r.t
	estimated := a.usage.IsZero() && a.answered // a call that was refused before its first event cost nothing
	if estimated {
		const charsPerToken = 4
		a.usage = writ.Usage{Input: rec.Bytes / charsPerToken, Output: a.written / charsPerToken}
	}
	t.usage = t.usage.Add(a.usage)
	if !a.failed() {
		t.failures = 0
	}
	cost, priced := t.cost(model, a.usage)
	if priced {
		t.spent += cost
		rec.Cost = cost
	}
	rec.Call, rec.Model, rec.Usage, rec.Milliseconds = fmt.Sprintf("%s/%d/%d", t.id, a.r.n, a.n), model, a.usage, took.Milliseconds()
	if rec.Break != "" && !rec.Announced {
		t.rt.cfg.Log.Warn("the cached prefix of the prompt was broken and nothing announced it", "turn", t.id, "round", a.r.n, "section", rec.Break)
	}
	t.emit(Event{Type: EventUsage, Round: a.r.n, Attempt: a.n, Usage: &a.usage, Estimated: estimated, Model: model, Cost: cost})
	t.owed = append(t.owed, t.block(timeline.KindRequest, rec))
}

// take receives the overseer's outputs in order.
func (a *attempt) take(ctx context.Context, o overseer.Output) bool {
	switch o := o.(type) {
	case overseer.Verdict:
		a.verdict(o)
	case overseer.Shown:
		a.shown(o)
	case overseer.Closed:
		a.closed(ctx, o)
	case overseer.Passed:
		a.passed(o.Event)
	case overseer.Ended:
		a.ended(o)
	}
	return a.impossible == ""
}

// ended is the end of the generation: only now it is known what the native dialect's text was.
func (a *attempt) ended(o overseer.Ended) {
	a.text, a.isAnswer = o.Text, o.Answer
	e := Event{Type: EventGenerationEnded, Round: a.r.n, Attempt: a.n, Reason: string(o.Finish)}
	switch {
	case o.Answer:
		e.Prose = "answer"
	case o.Text != "":
		e.Prose = "notes"
	}
	a.r.t.emit(e)
}

func (a *attempt) action(index int) *action {
	act := a.actions[index]
	if act == nil {
		act = &action{a: a, index: index}
		a.actions[index] = act
	}
	return act
}

func (a *attempt) verdict(v overseer.Verdict) {
	act := a.action(v.Index)
	act.kind, act.name, act.traits = v.Action, v.Tool, v.Traits
	a.event(act, EventActionOpened)
	if v.Claimed != nil && v.Claimed.Prior < len(a.r.priors) {
		act.claim = a.r.priors[v.Claimed.Prior]
		a.taken[v.Claimed.Prior] = true
	}
	if v.Accepted {
		act.accepted = true
		a.event(act, EventAccepted)
		return
	}
	if v.Claimed != nil && v.Claimed.Conflict {
		row := act.claim
		act.conflict = fmt.Sprintf("request_conflict: an earlier try of this round had started %s with %s. That is what ran; your new arguments did not",
			row.row.Tool, clip(string(row.call.Params), 500))
		act.accepted = true // the recorded action stands in its place
		a.r.t.emit(Event{Type: EventRefused, Round: a.r.n, Attempt: a.n, Index: &act.index, Action: act.kind, Tool: act.name, Code: writ.CodeRequestConflict})
		return
	}
	act.code, act.reason = v.Code, v.Reason
	a.event(act, EventRefused)
}

func (a *attempt) event(act *action, typ EventType) {
	e := Event{Type: typ, Round: a.r.n, Attempt: a.n, Index: &act.index, Action: act.kind, Tool: act.name, Code: act.code, Claimed: act.claim != nil}
	if act.flight != nil {
		e.ActionID, e.ToolCallID = act.flight.id, act.flight.callID
	}
	a.r.t.emit(e)
}

func (a *attempt) shown(s overseer.Shown) {
	e := Event{Round: a.r.n, Attempt: a.n, Text: s.Text}
	if s.Index >= 0 {
		e.Index = &s.Index
	}
	switch s.Lane {
	case overseer.LaneNotes:
		e.Type = EventNotesDelta
	case overseer.LaneAnswer:
		e.Type = EventAnswerDelta
	case overseer.LaneText:
		e.Type, e.Provisional, e.Index = EventAnswerDelta, true, nil
	default:
		return // arguments are shown by no surface of this version
	}
	a.r.t.emit(e)
}

func (a *attempt) passed(e stream.Event) {
	switch e.Kind {
	case stream.Thinking:
		a.r.t.emit(Event{Type: EventThinkingDelta, Round: a.r.n, Attempt: a.n, Text: e.Text})
	case stream.ThinkingClosed:
		a.thinking = append(a.thinking, timeline.Thinking{Text: e.Text, Opaque: e.Opaque})
	case stream.Summary:
		a.summary.WriteString(e.Text)
	case stream.Impossible:
		a.impossible = e.Text
		if a.impossible == "" {
			a.impossible = "(nothing)"
		}
	case stream.LateBytes:
		a.lateBytes(a.action(e.Index))
	}
}

// lateBytes handles arguments that go on after their block had ended. What has started stands; nothing else runs.
func (a *attempt) lateBytes(act *action) {
	a.r.admissionsDone()
	if act.flight != nil || act.claim != nil || act.early && a.r.start != nil {
		act.notices = append(act.notices, fmt.Sprintf("the provider sent more arguments for action %d after its end; it ran with the arguments it had at its end", act.index))
		return
	}
	if act.code == "" {
		act.refuse(writ.CodeInvalidAction, "more arguments arrived after the call had ended")
		a.seer.Retract(act.index)
	}
}

// closed takes an action whose block has ended: the same validation for early and ordinary execution.
func (a *attempt) closed(ctx context.Context, c overseer.Closed) {
	act := a.action(c.Decision.Index)
	act.decision, act.opaque = c.Decision, c.Opaque
	d := c.Decision
	if d.Problem != nil {
		act.raw = d.Raw
		if act.final() && act.accepted && d.AnswerClosed {
			return // whether its answer is kept is known when the generation has ended: see cut
		}
		if act.code == "" {
			act.refuse(d.Problem.Code, d.Problem.Message+hint(d.Problem.Hint))
		}
		return
	}
	for _, k := range d.Dropped {
		act.notices = append(act.notices, fmt.Sprintf("in action %d the field %q was left out: it has no place there; the rest of the action was taken", d.Index, k))
	}
	if !act.accepted || act.final() || act.claim != nil {
		return
	}
	if why := act.prepare(); why != "" {
		act.refuse(writ.CodeArgumentsInvalid, why)
		a.seer.Retract(d.Index)
		return
	}
	if act.traits.Early() && a.r.t.in.Agent.MaxActionsPerRound > 1 {
		act.early = true
		if a.r.start != nil {
			a.r.start(act)
			return
		}
		a.r.startEarly(ctx, a, act)
	}
}

func hint(h string) string {
	if h == "" {
		return ""
	}
	return "; next: " + h
}

// prepare validates the call and takes its fingerprint; it returns why it cannot run.
func (act *action) prepare() string {
	if act.fingerprint != "" {
		return ""
	}
	t, d := act.a.r.t, act.decision
	act.tool = t.agent.tools[d.Tool]
	if act.tool == nil {
		return "there is no such tool"
	}
	if why := act.tool.schema.Invalid(d.Params); why != "" {
		return "the arguments do not fit the tool's parameters: " + why
	}
	var err error
	if act.fingerprint, err = t.ledger.Fingerprint(d.Tool, d.Params); err != nil {
		return err.Error()
	}
	if act.arguments, err = t.ledger.ArgumentDigest(d.Params); err != nil {
		return err.Error()
	}
	if act.targets, err = act.tool.targetsOf(t.ledger, d.Params); err != nil {
		return "what the call touches cannot be told: " + err.Error()
	}
	act.params = d.Params
	return ""
}

// refuse says that the action does not run. What had been accepted, and so may have been shown, is retracted.
func (act *action) refuse(code writ.Code, reason string) {
	if act.code != "" {
		return
	}
	act.code, act.reason = code, reason
	typ := EventRefused
	if act.accepted {
		typ = EventRetracted
	}
	act.accepted = false
	act.a.event(act, typ)
}

// item is the action's place in the round's block. tell is false when there is nothing to tell of it.
func (act *action) item() (it timeline.Item, tell, ok bool) {
	it = timeline.Item{Index: act.index, Tool: act.name, Conflict: act.conflict}
	if act.decision != nil {
		it.Notes = act.decision.Notes
	}
	switch {
	case act.claim != nil:
		row := act.claim.now(act.a.r)
		it.Tool, it.ToolCallID, it.ActionID = row.Tool, row.ToolCallID, row.ID
		it.Held = row.State == writ.Held
		it.Running = !row.State.Settled() && !it.Held
		return it, true, row.State == writ.Succeeded && act.conflict == ""
	case act.flight != nil:
		it.ToolCallID, it.ActionID = act.flight.callID, act.flight.id
		st := act.flight.state()
		it.Held = st == writ.Held
		it.Running = !st.Settled() && !it.Held
		return it, true, st == writ.Succeeded
	case act.code != "":
		it.Code, it.Reason, it.Raw = act.code, act.reason, act.raw
		it.Notes = "" // what was refused is not told as said
		if act.kind == writ.ActionCall && act.name != "" {
			it.ToolCallID = act.a.callID(act.index)
		}
		return it, true, false
	}
	return it, false, true
}

// stands reports whether the round goes on with this attempt. It is discarded only by a provider error or a missing end
// marker, or because nothing was accepted.
func (a *attempt) stands() bool { return a.whole() && (a.calls() > 0 || a.answer() != nil) }

// whole reports whether the generation came to an end that the provider vouches for.
func (a *attempt) whole() bool {
	return a.err == nil && a.impossible == "" && a.finish != writ.FinishCut
}

// beside counts the calls that the answer was given beside. One that is refused already still counts, because the model
// wrote its answer as if it ran; but not when it came after the answer: that never reopens the turn.
func (a *attempt) beside() int {
	n, after := 0, false
	for _, act := range sortActions(a.actions) {
		switch {
		case act.final() && act.code == "":
			after = true
		case act.code != "" && (after || act.final()):
			act.moot = true
		default:
			n++
		}
	}
	return n
}

// calls counts the tool calls that run or have run.
func (a *attempt) calls() int {
	n := 0
	for _, act := range a.actions {
		if act.claim != nil || act.flight != nil || act.runs() {
			n++
		}
	}
	return n
}

// runs reports whether the action still has to be executed in its ordinary place.
func (act *action) runs() bool {
	return act.accepted && act.code == "" && !act.final() && act.claim == nil && act.flight == nil && act.fingerprint != ""
}

// ordinary lists the accepted calls that have not started, in order.
func (a *attempt) ordinary() []*action {
	var out []*action
	for _, act := range sortActions(a.actions) {
		if act.runs() {
			out = append(out, act)
		}
	}
	return out
}

// answer is the final answer of an attempt that stands, or nil.
func (a *attempt) answer() *timeline.Answer {
	for _, act := range sortActions(a.actions) {
		if act.final() && act.accepted && act.code == "" && act.decision != nil && act.decision.Problem == nil {
			return &timeline.Answer{Text: act.decision.Answer, Followups: act.decision.Followups, Origin: "model", Summary: a.summary.String()}
		}
	}
	if a.isAnswer {
		return &timeline.Answer{Text: a.text, Origin: "model"}
	}
	return nil
}

// notesText is native text that is not the answer.
func (a *attempt) notesText() string {
	if a.isAnswer {
		return ""
	}
	return a.text
}

// keptAnswer is an answer that was shown to the end of its string or block before the attempt failed.
func (a *attempt) keptAnswer() *timeline.Answer {
	if a.seer == nil {
		return nil
	}
	s := a.seer.State()
	for _, ans := range s.Answers {
		if ans.Closed {
			return &timeline.Answer{Text: ans.Text, Origin: "kept"}
		}
	}
	if s.Text != "" && s.TextClosed && len(a.actions) == 0 && a.finish == writ.FinishCut {
		return &timeline.Answer{Text: s.Text, Origin: "kept"}
	}
	return nil
}

// whyKept says what failed after the kept answer had been shown.
func (a *attempt) whyKept() string {
	for _, act := range sortActions(a.actions) {
		if a.whole() && act.final() && act.decision != nil && act.decision.Problem != nil {
			return act.decision.Problem.Message
		}
	}
	return a.discarded().Message
}

// cut refuses a final action that was malformed or cut after its answer had closed, when the round stands without it.
// When nothing else stands, the answer is kept instead.
func (a *attempt) cut() {
	if !a.stands() {
		return
	}
	for _, act := range sortActions(a.actions) {
		if act.final() && act.accepted && act.decision != nil && act.decision.Problem != nil {
			p := act.decision.Problem
			act.refuse(p.Code, p.Message+hint(p.Hint))
		}
	}
}

// shownText is answer text that reached the sink.
func (a *attempt) shownText() string {
	if a.seer == nil {
		return ""
	}
	s := a.seer.State()
	out := s.Text
	for _, ans := range s.Answers {
		out += ans.Text
	}
	return out
}

// discarded says why the attempt does not stand, for the model and the person.
func (a *attempt) discarded() timeline.Attempt {
	d := timeline.Attempt{Round: a.r.n, Attempt: a.n, Answer: clip(a.shownText(), 2000)}
	for _, act := range sortActions(a.actions) {
		if act.code != "" {
			line := fmt.Sprintf("action %d", act.index)
			if act.name != "" {
				line += " (" + act.name + ")"
			}
			line += fmt.Sprintf(": %s: %s", act.code, act.reason)
			if act.raw != "" {
				line += "; you wrote: " + act.raw
			}
			d.Details = append(d.Details, line)
		}
	}
	var me *writ.ModelError
	switch {
	case errors.As(a.err, &me):
		d.Code, d.Message = "provider_error", me.Error()
	case a.err != nil:
		d.Code, d.Message = "provider_error", a.err.Error()
	case a.impossible != "":
		d.Code, d.Message, d.Raw = "no_channel", "the message must begin with a channel, the thinking channel first; nothing of it was run or shown", clip(a.impossible, 200)
	case a.finish == writ.FinishCut:
		d.Code, d.Message = "stream_cut", "the provider's stream ended without its end marker"
	case a.finish == writ.FinishFilter, a.finish == writ.FinishRefused:
		d.Code, d.Message = string(a.finish), "the provider stopped the generation: "+string(a.finish)
	case a.finish == writ.FinishLength:
		d.Code, d.Message = "truncated", "the message was cut by the output limit before anything in it was complete; write less in one round"
	case len(d.Details) > 0:
		d.Code, d.Message = "nothing_accepted", "no action of the message could be accepted"
	default:
		d.Code, d.Message = "no_action", "the message held no action and no answer"
	}
	return d
}

func (a *Agent) codeParam(tool string) string {
	if t := a.tools[tool]; t != nil {
		return t.Spec.CodeParam
	}
	return ""
}

// canon gives the one form of a path that a built-in file tool would use.
func (t *turn) canon(p string) string {
	p = path.Clean(strings.TrimPrefix(p, workspace.RefPrefix))
	if c, err := workspace.Canon(p); err == nil {
		return c
	}
	return p // no path of the workspace: another tool's
}
