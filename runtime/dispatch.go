package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"writ"
	"writ/admission"
	"writ/internal/timeline"
	"writ/participant"
	"writ/store"
)

// flight is one tool call from its admission to its settlement. There is one dispatcher, and this is it: early and
// ordinary calls, of every kind of tool, pass admit and fly and nothing else can cause an effect.
type flight struct {
	act    *action
	id     string // action id
	callID string

	mu      sync.Mutex
	waiting bool             // for an approval
	result  *timeline.Result // once settled
}

// held reports whether the call waits for an approval.
func (f *flight) held() bool { return f.state() == writ.Held }

func (f *flight) state() writ.ActionState {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.result != nil:
		return f.result.State
	case f.waiting:
		return writ.Held
	}
	return writ.Dispatched
}

// done keeps the result of a settled flight.
func (f *flight) done(out timeline.Result) *timeline.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result = &out
	return f.result
}

func (f *flight) preview(most int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.result == nil {
		return ""
	}
	return preview(*f.result, most)
}

// startEarly admits a detached call and starts it while the model streams on. Admissions keep their order; a refused
// one is tried again in its ordinary place.
func (r *round) startEarly(ctx context.Context, a *attempt, act *action) {
	before, done := r.lastAdmission, make(chan struct{})
	r.lastAdmission = done
	r.early.Add(1)
	go func() {
		defer r.early.Done()
		if before != nil {
			<-before
		}
		f := r.admit(ctx, a, act, true)
		close(done)
		if f != nil && !f.held() {
			r.fly(ctx, f)
		}
	}()
}

// admissionsDone waits until every early call has been admitted or refused.
func (r *round) admissionsDone() {
	if r.lastAdmission != nil {
		<-r.lastAdmission
	}
}

// admit records the call before anything happens. DURABLE. Nil means refused; the action then says why, unless it was
// early.
func (r *round) admit(ctx context.Context, a *attempt, act *action, early bool) *flight {
	t := r.t
	tool := act.tool
	f := &flight{act: act, callID: a.callID(act.index)}
	if _, replay := t.port.Lookup(f.callID); replay && early {
		return nil
	}
	req := t.port.Request(f.callID, participant.AffordanceAddress(t.in.Agent.ID, tool.alias), participant.ContractAddress(tool.alias, tool.Spec.Name),
		participant.DerivedBoundary, act.targets)
	req.ArgumentDigest = act.arguments
	slot := admission.Slot{Round: r.n, Attempt: a.n, Index: act.index, Tool: tool.ID, Fingerprint: act.fingerprint, Traits: act.traits, Early: early, Approval: act.approval()}
	for {
		dec := t.port.Admit(ctx, req, slot, func(row store.Action) []store.Block {
			b := t.block(timeline.KindCall, timeline.Call{Tool: tool.ID, ToolCallID: f.callID, Round: r.n, Attempt: a.n, Index: act.index, Early: early, Params: act.params})
			b.Key = "call:" + row.ID
			return []store.Block{b}
		})
		switch {
		case dec.Admitted:
			f.id, f.waiting = dec.ActionID, dec.Held
			act.flight = f
			r.mu.Lock()
			r.flights[f.id] = f
			r.mu.Unlock()
			if dec.Held {
				a.tell(f, EventHeld, nil)
			}
			return f
		case early:
			return nil
		case dec.Refusal == writ.CodeConcurrencyLimitReached:
			select {
			case <-dec.Freed:
				continue
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			act.refuse(writ.CodeInterrupted, "the turn was stopped before it ran")
		} else {
			act.refuse(dec.Refusal, dec.Refusal.Meaning())
		}
		return nil
	}
}

// fly takes the one grant, runs the effect once, and settles what really happened.
func (r *round) fly(ctx context.Context, f *flight) {
	t := r.t
	tool := f.act.tool
	if ctx.Err() != nil {
		r.abandon(ctx, f, "interrupted", "not executed: the turn was stopped")
		return
	}
	grant, receipt := r.dispatch(ctx, f) // DURABLE
	if receipt.Code == writ.CodeApprovalRequired {
		return // it stays held
	}
	if row, ok := t.port.Row(f.id); ok && row.State == writ.Withheld { // a later attempt has replaced it
		f.act.a.tell(f, EventSettled, f.done(timeline.Result{Tool: tool.ID, ToolCallID: f.callID, State: row.State, Failure: row.Failure}))
		return
	}
	if !receipt.Accepted {
		r.abandon(ctx, f, string(receipt.Code), "not executed: the ledger did not grant it")
		return
	}
	f.act.a.tell(f, EventDispatched, nil)
	if !grant.Start() {
		r.abandon(ctx, f, "interrupted", "not executed: its grant was too old to start it")
		return
	}
	result, err := r.callAsking(ctx, f, grant) // WORLD
	r.land(ctx, f, result, err)                // DURABLE
}

// dispatch takes the grant. An approved action that finds no room waits for it.
func (r *round) dispatch(ctx context.Context, f *flight) (*admission.Grant, admission.Receipt) {
	for {
		grant, receipt := r.t.port.Dispatch(ctx, f.id)
		if receipt.Code != writ.CodeConcurrencyLimitReached {
			return grant, receipt
		}
		select {
		case <-receipt.Freed:
		case <-ctx.Done():
			return nil, receipt
		}
	}
}

// call is the one place where an effect happens. It returns when the tool does, or a grace after its time is over.
func (r *round) call(ctx context.Context, f *flight, grant *admission.Grant, input json.RawMessage) (writ.Result, error) {
	tool := f.act.tool
	cctx, cancel := context.WithTimeout(ctx, tool.Limits.Timeout)
	type answer struct {
		res writ.Result
		err error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				r.t.rt.cfg.Log.Error("tool panicked", "tool", tool.ID, "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
				done <- answer{err: fmt.Errorf("the tool panicked: %v", p)}
			}
		}()
		res, err := tool.set.Call(cctx, writ.Call{Tool: tool.Spec.Name, Params: f.act.params, ActionID: f.id, ToolCallID: f.callID,
			IdempotencyKey: grant.Key(), Conversation: r.t.conv.ID, Turn: r.t.id, Input: input, Progress: r.progress(f)})
		done <- answer{res, err}
	}()
	select {
	case a := <-done:
		cancel()
		return a.res, explain(cctx, ctx, a.err, tool.Limits.Timeout)
	case <-cctx.Done():
	}
	grace := time.NewTimer(r.t.rt.cfg.CallGrace)
	defer grace.Stop()
	select {
	case a := <-done:
		cancel()
		return a.res, explain(cctx, ctx, a.err, tool.Limits.Timeout)
	case <-grace.C:
	}
	r.t.rt.late.Add(1)
	go func() {
		defer r.t.rt.late.Done()
		defer cancel()
		a := <-done
		r.lateReport(ctx, f, a.res, a.err)
	}()
	return writ.Result{}, explain(cctx, ctx, cctx.Err(), tool.Limits.Timeout)
}

// errTimeout and errStopped class what ended a call whose outcome is then unknown.
var (
	errTimeout = errors.New("no answer in time")
	errStopped = errors.New("stopped while it ran")
)

func explain(cctx, ctx context.Context, err error, limit time.Duration) error {
	switch {
	case err == nil || errors.Is(err, writ.ErrNotStarted):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %v", errStopped, err)
	case errors.Is(cctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer within %s", errTimeout, limit)
	}
	return err
}

// maxNote bounds what an adapter's error says in a prompt.
const maxNote = 2000

// land settles a call: row and result in one write. A lost answer is indeterminate, never failed, unless the
// administrator declared that the tool has no effect.
func (r *round) land(ctx context.Context, f *flight, res writ.Result, err error) {
	out := timeline.Result{Tool: f.act.tool.ID, ToolCallID: f.callID}
	switch {
	case err == nil && !res.IsError:
		out.State = writ.Succeeded
	case err == nil:
		out.State, out.Failure = writ.Failed, "tool_error"
	case errors.Is(err, writ.ErrNotStarted):
		if errors.Is(err, writ.ErrVanished) {
			r.t.vanished(f.act.tool.ID)
		}
		out.State, out.Failure, out.Note = writ.Failed, "not_started", clip(err.Error(), maxNote)
	default:
		out.State, out.Failure, out.Note = writ.Indeterminate, "connection_lost", clip(err.Error(), maxNote)
		if errors.Is(err, errTimeout) {
			out.Failure = "timeout"
		} else if errors.Is(err, errStopped) {
			out.Failure = "interrupted"
		}
		if f.act.traits.Effect == writ.EffectNone {
			out.State = writ.Failed
		}
	}
	if err == nil {
		r.t.fill(&out, res.Content)
	}
	var records []writ.Record
	if f.act.tool.builtin && out.State == writ.Succeeded {
		records = res.Records
	}
	r.settleFlight(ctx, f, out, records)
}

// abandon settles a call that was admitted and certainly not started.
func (r *round) abandon(ctx context.Context, f *flight, reason, note string) {
	out := timeline.Result{Tool: f.act.tool.ID, ToolCallID: f.callID, State: writ.Withheld, Failure: reason, Note: note}
	r.settled(f, out, nil, func(block admission.Block) admission.Receipt { return r.t.port.Abandon(ctx, f.id, reason, block) })
}

func (r *round) settleFlight(ctx context.Context, f *flight, out timeline.Result, records []writ.Record) {
	t := r.t
	digest := ""
	if len(out.Content) > 0 {
		b, _ := json.Marshal(out.Content) // timeline content always marshals
		digest = t.ledger.ResultDigest(b)
	}
	r.settled(f, out, records, func(block admission.Block) admission.Receipt {
		if out.State == writ.Indeterminate {
			return t.port.ReportUnknown(ctx, f.id, out.Failure, block)
		}
		return t.port.Complete(ctx, f.id, admission.Outcome{State: out.State, Failure: out.Failure, ResultDigest: digest}, block)
	})
}

// settleTries bounds how often a settlement is written again when the ledger does not answer: losing an outcome is
// worse than waiting for it.
const settleTries = 5

// settlePause grows with each try.
const settlePause = 200 * time.Millisecond

// settled writes a settlement and tells of it. When the ledger cannot take it, the turn cannot go on: the row stays
// dispatched and the next start calls it indeterminate.
func (r *round) settled(f *flight, out timeline.Result, records []writ.Record, write func(admission.Block) admission.Receipt) {
	block := func(row store.Action) []store.Block {
		out.State = row.State // abandoning settles as withheld or failed, as the row says
		b := r.t.block(timeline.KindResult, out)
		b.Key = timeline.ResultKey(row.ID)
		blocks := []store.Block{b}
		for _, rec := range records {
			blocks = append(blocks, r.t.block(rec.Kind, rec.Body))
		}
		return blocks
	}
	var receipt admission.Receipt
	for try := 1; ; try++ {
		receipt = write(block)
		if receipt.Accepted || receipt.Code != writ.CodeLedgerUnavailable || try == settleTries {
			break
		}
		_ = r.t.rt.cfg.Wait(context.Background(), time.Duration(try)*settlePause) // an outcome is worth waiting for
	}
	if !receipt.Accepted {
		r.t.keptMu.Lock()
		r.t.kept = append(r.t.kept, func() { write(block) })
		r.t.keptMu.Unlock()
		r.fail(fmt.Errorf("runtime: the outcome of %s could not be recorded: %s", f.id, receipt.Code))
		return
	}
	f.act.a.tell(f, EventSettled, f.done(out))
}

// tell tells of a flight; it may be called from any goroutine.
func (a *attempt) tell(f *flight, typ EventType, res *timeline.Result) {
	row, _ := a.r.t.port.Row(f.id)
	e := Event{Type: typ, Round: a.r.n, Attempt: a.n, Index: &f.act.index, Action: writ.ActionCall, Tool: f.act.tool.ID, ActionID: f.id, ToolCallID: f.callID, Early: row.Early}
	if res != nil {
		e.State, e.Failure, e.Preview = res.State, res.Failure, preview(*res, 200)
	}
	a.r.t.emit(e)
}

// lateReport tells of an answer that came after the outcome had been recorded as unknown. The row stays as it is.
func (r *round) lateReport(ctx context.Context, f *flight, res writ.Result, err error) {
	text := fmt.Sprintf("%s (%s) answered after its outcome had been recorded as unknown: ", f.callID, f.act.tool.ID)
	if err != nil {
		text += "error: " + clip(err.Error(), maxNote)
	} else {
		out := timeline.Result{State: writ.Succeeded, Content: timeline.Store(res.Content)}
		if res.IsError {
			out.State = writ.Failed
		}
		text += string(out.State) + " " + preview(out, 2000)
	}
	b := r.t.block(timeline.KindNotice, timeline.Notice{Code: "late_report", Message: text})
	b.ActionID = f.id
	ctx = context.WithoutCancel(ctx)
	var kept error
	if row, ok := r.t.port.Row(f.id); ok && row.State == writ.Indeterminate && err == nil {
		kept = r.keepLate(ctx, f, res, err, b)
	} else {
		kept = store.Commit(ctx, r.t.rt.cfg.Store, &store.Batch{ID: r.t.rt.cfg.NewID("b_"), Time: r.t.rt.cfg.Now(), Blocks: []store.Block{b}})
	}
	if err := kept; err != nil {
		r.t.rt.cfg.Log.Error("a late report could not be written", "action", f.id, "error", err)
	}
}
