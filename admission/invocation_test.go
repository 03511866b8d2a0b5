package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"writ"
	"writ/admission"
	"writ/participant"
	"writ/store"
)

// start begins an invocation of an outside harness.
func (w *world) begins(change func(*admission.Start)) (*admission.Port, error) {
	inv := w.invocation("unused")
	s := admission.Start{Kind: store.KindHTTP, Tenant: "t", Owner: "o", Agent: "shopper", Holder: "h", Compiled: inv.Compiled, PolicyDigest: "p"}
	s.Compiled.Scope = ""
	if change != nil {
		change(&s)
	}
	return w.ledger.Begin(ctx, s)
}

func TestBegin(t *testing.T) {
	w := newWorld(limits{Total: 8, Concurrent: 8})
	p, err := w.begins(func(s *admission.Start) {
		s.Claim = &store.Claim{Scope: "open", Key: "k", Digest: "d"}
		s.Tokens = []store.TokenWrite{{Token: store.Token{ID: "tok", Kind: store.TokenInvocation, Hash: "h1"}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	inv := p.Invocation()
	turn := w.theTurn(inv.ID)
	tok, err := w.mem.Token(ctx, "h1")
	claim, cerr := w.mem.Claim(ctx, "open", "k")
	if turn.State != store.TurnRunning || turn.Owner != "o" || turn.Kind != store.KindHTTP || err != nil || tok.Subject != inv.ID || cerr != nil || claim.Subject != inv.ID {
		t.Errorf("%+v %+v %v %+v %v", turn, tok, err, claim, cerr)
	}
	if inv.Scope != inv.Conversation || inv.Observation != inv.ID {
		t.Errorf("%+v", inv)
	}
	if d := admit(p, "x"); !d.Admitted {
		t.Errorf("%+v", d)
	}
	for name, c := range map[string]struct {
		change func(*admission.Start)
		want   error
	}{
		"the episode is busy":    {func(s *admission.Start) { s.Episode = inv.Conversation }, admission.ErrBusy},
		"of another owner":       {func(s *admission.Start) { s.Episode, s.Owner = inv.Conversation, "x" }, admission.ErrOther},
		"of another participant": {func(s *admission.Start) { s.Episode, s.Agent = inv.Conversation, "x" }, admission.ErrOther},
		"the key was used":       {func(s *admission.Start) { s.Claim = &store.Claim{Scope: "open", Key: "k", Digest: "d"} }, store.ErrConflict},
	} {
		n := w.st.writes.Load()
		if _, err := w.begins(c.change); !errors.Is(err, c.want) || w.st.writes.Load() != n {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.End(ctx, admission.Ending{Status: admission.StatusSucceeded}, resultBlock); err != nil {
		t.Fatal(err)
	}
	q, err := w.begins(func(s *admission.Start) { s.Episode = inv.Conversation })
	if err != nil || q.Invocation().LeaseToken != inv.LeaseToken+1 {
		t.Errorf("the episode goes on: %v", err)
	}
	if d := admit(q, "x"); !d.Admitted { // T39: the same call id in another invocation is another action
		t.Errorf("%+v", d)
	}
	if row, _ := q.Lookup("x"); row.Ordinal != 0 {
		t.Errorf("ordinal %d", row.Ordinal)
	}
}

func TestEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end    admission.Ending
		state  string
		events int // of the invocation itself
	}{
		"succeeded": {admission.Ending{Status: admission.StatusSucceeded}, store.TurnAnswered, 3},
		"failed":    {admission.Ending{Status: admission.StatusFailed, Failure: "timeout"}, store.TurnFailed, 3},
		"raised":    {admission.Ending{}, store.TurnFailed, 0},
		"no status": {admission.Ending{Status: "accepted"}, store.TurnFailed, 0}, // T73
		"no class":  {admission.Ending{Status: admission.StatusFailed}, store.TurnFailed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(limits{Total: 8, Concurrent: 8})
			p, err := w.begins(nil)
			if err != nil {
				t.Fatal(err)
			}
			a, b := admit(p, "a"), admit(p, "b")
			if _, r := p.Dispatch(ctx, b.ActionID); !r.Accepted {
				t.Fatal(r)
			}
			if err := p.End(ctx, c.end, resultBlock); err != nil {
				t.Fatal(err)
			}
			if w.state(a.ActionID) != writ.Withheld || w.state(b.ActionID) != writ.Indeterminate { // T71
				t.Errorf("%s %s", w.state(a.ActionID), w.state(b.ActionID))
			}
			inv := p.Invocation()
			if got := w.theTurn(inv.ID); got.State != c.state || got.Ended.IsZero() {
				t.Errorf("%+v", got)
			}
			h, err := w.mem.History(ctx, inv.Conversation, 0, 0)
			if err != nil || len(h) != 6+c.events {
				t.Fatalf("%d events, %v", len(h), err)
			}
			if d := admit(p, "late"); d.Refusal != writ.CodeInvocationClosed {
				t.Errorf("%+v", d)
			}
		})
	}
}

// A gateway's session that ends with held actions is parked; others withhold them.
func TestEndWithHeld(t *testing.T) {
	for kind, want := range map[string]string{store.KindGateway: store.TurnParked, store.KindHTTP: store.TurnAnswered} {
		w := newWorld(limits{Total: 8, Concurrent: 8})
		p, err := w.begins(func(s *admission.Start) { s.Kind = kind })
		if err != nil {
			t.Fatal(err)
		}
		d := p.Admit(ctx, request(p, "h"), admission.Slot{Approval: &admission.Approval{Approver: admission.ByOwner}}, callBlock)
		x := admit(p, "x")
		if err := p.End(ctx, admission.Ending{Status: admission.StatusSucceeded}, resultBlock); err != nil {
			t.Fatal(err)
		}
		a, err := w.mem.Approval(ctx, d.ActionID)
		if err != nil || w.theTurn(p.Invocation().ID).State != want || w.state(x.ActionID) != writ.Withheld {
			t.Errorf("%s: %+v %v", kind, w.theTurn(p.Invocation().ID), err)
		}
		if parked := want == store.TurnParked; parked != (w.state(d.ActionID) == writ.Held) || parked != (a.State == store.ApprovalPending) {
			t.Errorf("%s: %s %s", kind, w.state(d.ActionID), a.State)
		}
	}
}

func TestParkAndResume(t *testing.T) {
	w, p, id := held(t)
	x := admit(p, "y")
	end := &store.Batch{Turns: []store.TurnWrite{{Expect: store.TurnRunning, Turn: store.Turn{ID: "turn1", State: store.TurnParked}}}}
	if err := p.Park(ctx, end); err == nil {
		t.Error("parked with an admitted action")
	}
	if _, err := w.ledger.Resume(ctx, w.invocation("turn1"), "b", nil); !errors.Is(err, store.ErrConflict) {
		t.Errorf("resumed while it runs: %v", err)
	}
	p.Cancel(ctx, x.ActionID, "", resultBlock)
	if err := p.Park(ctx, end); err != nil {
		t.Fatal(err)
	}
	if _, r := p.Dispatch(ctx, id); r.Code != writ.CodeInvocationClosed {
		t.Errorf("the old port: %+v", r)
	}
	for name, change := range map[string]func(*admission.Invocation){
		"another owner":        func(i *admission.Invocation) { i.Owner = "x" },
		"another tenant":       func(i *admission.Invocation) { i.Tenant = "x" },
		"another conversation": func(i *admission.Invocation) { i.Conversation = "x" },
	} {
		inv := w.invocation("turn1")
		change(&inv)
		if _, err := w.ledger.Resume(ctx, inv, "b", nil); !errors.Is(err, admission.ErrOther) {
			t.Errorf("%s: %v", name, err)
		}
	}
	q, err := w.ledger.Resume(ctx, w.invocation("turn1"), "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	if q.Invocation().LeaseToken != 2 || w.theTurn("turn1").State != store.TurnRunning {
		t.Errorf("%+v", w.theTurn("turn1"))
	}
	if _, err := w.ledger.Resume(ctx, w.invocation("turn1"), "c", nil); !errors.Is(err, store.ErrConflict) {
		t.Errorf("resumed twice: %v", err)
	}
	decide(w, id, true)
	if _, r := q.Dispatch(ctx, id); !r.Accepted {
		t.Errorf("%+v", r)
	}
	if row, _ := q.Row(id); row.LeaseToken != 2 {
		t.Errorf("the row is not under the lease of who released it: %d", row.LeaseToken)
	}
	d := admit(q, "z")
	if row, _ := q.Row(d.ActionID); !d.Admitted || row.Ordinal != 2 {
		t.Errorf("%+v, ordinal %d", d, row.Ordinal)
	}
}

// T87, T92 with held rows: they go on waiting, unless their harness is gone with them.
func TestRecoverHeld(t *testing.T) {
	for kind, want := range map[string]string{store.KindTurn: store.TurnParked, store.KindGateway: store.TurnParked, store.KindHTTP: store.TurnInterrupted} {
		w := newWorld(limits{Total: 8, Concurrent: 8})
		p, err := w.begins(func(s *admission.Start) { s.Kind = kind })
		if err != nil {
			t.Fatal(err)
		}
		d := p.Admit(ctx, request(p, "h"), admission.Slot{Approval: &admission.Approval{Approver: admission.ByOwner}}, callBlock)
		x := admit(p, "x")
		rec, err := w.recover(w.theTurn(p.Invocation().ID))
		if err != nil || rec.Turn.State != want || w.state(x.ActionID) != writ.Withheld {
			t.Errorf("%q: %+v %v", kind, rec.Turn, err)
		}
		if (want == store.TurnParked) != (w.state(d.ActionID) == writ.Held) {
			t.Errorf("%q: the held one is %s", kind, w.state(d.ActionID))
		}
		n := w.st.writes.Load()
		if _, err := w.recover(w.theTurn(p.Invocation().ID)); err != nil || w.st.writes.Load() != n {
			t.Errorf("%q: a second recovery writes: %v", kind, err)
		}
	}
}

// A worker that is taken over admits and dispatches nothing more; what it had dispatched is still settled by it, or given
// up when its time is over.
func TestTakeOver(t *testing.T) {
	w, p := newPort()
	a, b, c := admit(p, "a"), admit(p, "b"), admit(p, "c")
	for _, id := range []string{b.ActionID, c.ActionID} {
		if _, r := p.Dispatch(ctx, id); !r.Accepted {
			t.Fatal(r)
		}
	}
	conv, err := w.mem.Conversation(ctx, "conv")
	if err != nil {
		t.Fatal(err)
	}
	rec, err := w.ledger.TakeOver(ctx, conv, "new", nil)
	if err != nil || len(rec) != 1 || len(rec[0].Actions) != 1 || len(rec[0].Waiting) != 2 || rec[0].Turn.State != store.TurnDraining {
		t.Fatalf("%+v %v", rec, err)
	}
	if w.state(a.ActionID) != writ.Withheld || w.state(b.ActionID) != writ.Dispatched {
		t.Errorf("%s %s", w.state(a.ActionID), w.state(b.ActionID))
	}
	explore := admission.Slot{Traits: writ.Traits{Strategy: writ.Exploration}}
	if d := p.Admit(ctx, request(p, "d"), explore, callBlock); d.Refusal != writ.CodeGenerationStale {
		t.Errorf("the old holder admits: %+v", d)
	}
	w.token = 2
	q := w.open()
	if d := admit(q, "e"); d.Refusal != writ.CodeTargetQuarantined {
		t.Errorf("the target is in flight: %+v", d)
	}
	if r := p.Complete(ctx, b.ActionID, admission.Outcome{State: writ.Succeeded}, resultBlock); !r.Accepted {
		t.Errorf("the old holder's outcome: %+v", r)
	}
	if rec, err := w.ledger.Sweep(ctx, nil); err != nil || len(rec) != 0 {
		t.Errorf("too early: %+v %v", rec, err)
	}
	w.pass(admission.DefaultTimeout + admission.DefaultGrace + time.Second)
	swept, err := w.ledger.Sweep(ctx, nil)
	if err != nil || len(swept) != 1 || w.state(c.ActionID) != writ.Indeterminate || w.theTurn("turn1").State != store.TurnInterrupted {
		t.Errorf("%+v %v %s", swept, err, w.state(c.ActionID))
	}
	n := w.st.writes.Load()
	if again, err := w.ledger.Sweep(ctx, nil); err != nil || len(again) != 0 || w.st.writes.Load() != n {
		t.Errorf("again: %+v %v", again, err)
	}
	if r := p.Complete(ctx, c.ActionID, admission.Outcome{State: writ.Succeeded}, resultBlock); r.Code != writ.CodeStateConflict {
		t.Errorf("too late: %+v", r)
	}
	if _, err := resolve(w, c.ActionID, owner, nil); err != nil {
		t.Fatal(err)
	}
	if d := admit(q, "e"); !d.Admitted {
		t.Errorf("resolved: %+v", d)
	}
}

// T80: a reset moves the generation. What had been dispatched is settled under its own.
func TestGenerationFence(t *testing.T) {
	w, p := newPort()
	a, b := admit(p, "a"), admit(p, "b")
	if _, r := p.Dispatch(ctx, a.ActionID); !r.Accepted {
		t.Fatal(r)
	}
	w.apply(&store.Batch{Conversations: []store.ConversationWrite{{ExpectToken: 1, Conversation: store.Conversation{ID: "conv", LeaseToken: 1, Generation: 4}}}})
	if d := admit(p, "c"); d.Refusal != writ.CodeGenerationStale {
		t.Errorf("%+v", d)
	}
	if _, r := p.Dispatch(ctx, b.ActionID); r.Code != writ.CodeGenerationStale {
		t.Errorf("%+v", r)
	}
	if r := p.Complete(ctx, a.ActionID, admission.Outcome{State: writ.Succeeded}, resultBlock); !r.Accepted {
		t.Errorf("%+v", r)
	}
	if row, _ := w.mem.Action(ctx, a.ActionID); row.Generation != 3 {
		t.Errorf("generation %d", row.Generation)
	}
}

func TestExpireAndOverdue(t *testing.T) {
	w, p := newPort()
	a, b := admit(p, "a"), admit(p, "b")
	p.Dispatch(ctx, b.ActionID)
	last, err := p.Expire(ctx, resultBlock)
	if err != nil || !last.Equal(w.clock().Add(admission.DefaultTimeout+admission.DefaultGrace)) {
		t.Errorf("%v %v", last, err)
	}
	if w.state(a.ActionID) != writ.Withheld || admit(p, "c").Refusal != writ.CodeInvocationClosed {
		t.Errorf("%s", w.state(a.ActionID))
	}
	if next := p.Overdue(ctx, resultBlock); !next.Equal(last) || w.state(b.ActionID) != writ.Dispatched {
		t.Errorf("%v %s", next, w.state(b.ActionID))
	}
	w.pass(last.Sub(w.clock()))
	if next := p.Overdue(ctx, resultBlock); !next.IsZero() || w.state(b.ActionID) != writ.Indeterminate {
		t.Errorf("%v %s", next, w.state(b.ActionID))
	}
}

// acting is a harness that does what it is told.
type acting struct {
	port   *admission.Port
	attach func(*admission.Port)
	act    func(context.Context, *admission.Port) (admission.Ending, error)
}

func (a *acting) AttachInvocationToolActions(p *admission.Port) {
	a.port = p
	if a.attach != nil {
		a.attach(p)
	}
}

func (a *acting) Act(ctx context.Context, p *admission.Port) (admission.Ending, error) {
	return a.act(ctx, p)
}

// T01, T02, T03, T05, T08, T74: the port of a harness is inactive while it is attached and closed when it has acted,
// whatever comes of it.
func TestInvoke(t *testing.T) {
	w := newWorld(limits{Total: 8, Concurrent: 8})
	s := admission.Start{Kind: store.KindHTTP, Tenant: "t", Owner: "o", Agent: "shopper", Compiled: w.invocation("x").Compiled}
	s.Compiled.Scope = ""
	ran := 0
	h := &acting{attach: func(p *admission.Port) {
		if d := admit(p, "x"); d.Refusal != writ.CodeInvocationInactive {
			t.Errorf("while attached: %+v", d)
		}
		if _, r := p.Dispatch(ctx, "act"); r.Code != writ.CodeInvocationInactive {
			t.Errorf("while attached: %+v", r)
		}
		if r := p.Cancel(ctx, "act", "", nil); r.Code != writ.CodeInvocationInactive {
			t.Errorf("while attached: %+v", r)
		}
	}, act: func(ctx context.Context, p *admission.Port) (admission.Ending, error) {
		d := admit(p, "x")
		if row, _ := p.Row(d.ActionID); !d.Admitted || row.Ordinal != 0 {
			t.Errorf("%+v", d)
		}
		p.Dispatch(ctx, d.ActionID)
		ran++
		p.Complete(ctx, d.ActionID, admission.Outcome{State: writ.Succeeded}, resultBlock)
		return admission.Ending{Status: admission.StatusSucceeded}, nil
	}}
	if _, err := w.ledger.Invoke(ctx, s, h, resultBlock); err != nil || ran != 1 {
		t.Fatalf("%v, ran %d", err, ran)
	}
	if d := admit(h.port, "y"); d.Refusal != writ.CodeInvocationClosed {
		t.Errorf("after it returned: %+v", d)
	}
	for name, act := range map[string]func(context.Context, *admission.Port) (admission.Ending, error){
		"panics": func(_ context.Context, p *admission.Port) (admission.Ending, error) {
			admit(p, "x")
			panic("secret")
		},
		"raises": func(_ context.Context, p *admission.Port) (admission.Ending, error) {
			admit(p, "x")
			return admission.Ending{Status: admission.StatusSucceeded}, errors.New("secret")
		},
	} {
		h := &acting{act: act}
		if end, err := w.ledger.Invoke(ctx, s, h, resultBlock); err == nil || end.Status != "" {
			t.Errorf("%s: %+v %v", name, end, err)
		}
		inv := h.port.Invocation()
		events, _ := w.mem.History(ctx, inv.Conversation, 0, 0)
		if len(events) != 3 || w.theTurn(inv.ID).State != store.TurnFailed {
			t.Errorf("%s: %d events, %+v", name, len(events), w.theTurn(inv.ID))
		}
		for _, e := range events {
			if strings.Contains(string(e.Body), "secret") {
				t.Errorf("%s: the history has the panic's text", name)
			}
		}
	}
	n := w.st.writes.Load()
	bad := &acting{attach: func(*admission.Port) { panic("no") }}
	if _, err := w.ledger.Invoke(ctx, s, bad, resultBlock); err == nil || w.st.writes.Load() != n {
		t.Errorf("a failing attach: %v", err)
	}
}

func TestRegister(t *testing.T) {
	m := participant.Manifest{Implementation: "harness@1.0.0", Autonomous: true, Features: map[string]participant.Level{participant.FeatureToolAffordances: participant.Exact, participant.FeatureAutonomous: participant.Exact},
		Claim: &participant.Claim{Versions: []string{participant.SemanticVersion}, Total: 4, Concurrent: 2}}
	if err := admission.Register(&acting{}, m); err != nil {
		t.Errorf("%v", err)
	}
	if err := admission.Register(struct{}{}, m); err == nil {
		t.Error("a runtime without the attach method is registered")
	}
}

// T76: every tool event carries the context, equal on all three; the invocation's own carry none. T72: order of admission.
func TestHistoryOfAnInvocation(t *testing.T) {
	w := newWorld(limits{Total: 8, Concurrent: 8})
	p, err := w.begins(nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, call := range []string{"a", "b", "c"} {
		ids = append(ids, admit(p, call).ActionID)
	}
	for _, i := range []int{2, 0} {
		p.Dispatch(ctx, ids[i])
		p.Complete(ctx, ids[i], admission.Outcome{State: writ.Succeeded, Evidence: []string{"ref:1"}}, resultBlock)
	}
	p.Dispatch(ctx, ids[1])
	p.ReportUnknown(ctx, ids[1], "timeout", resultBlock)
	inv := p.Invocation()
	if h, _ := w.mem.History(ctx, inv.Conversation, 0, 0); len(h) != 0 {
		t.Errorf("history before the invocation has ended: %d events", len(h))
	}
	if err := p.End(ctx, admission.Ending{Status: admission.StatusSucceeded}, resultBlock); err != nil {
		t.Fatal(err)
	}
	h, err := w.mem.History(ctx, inv.Conversation, 0, 0)
	if err != nil || len(h) != 12 {
		t.Fatalf("%d events, %v", len(h), err)
	}
	for i, e := range h {
		var body admission.Event
		if err := json.Unmarshal(e.Body, &body); err != nil {
			t.Fatal(err)
		}
		if want := []string{admission.EventAttempted, admission.EventTransition, admission.EventObserved}[i%3]; body.EventType != want || e.Type != want {
			t.Errorf("event %d is %s", i, body.EventType)
		}
		if i >= 9 {
			if body.Tool != nil || body.ActionID != inv.ID {
				t.Errorf("the invocation's own event %d: %+v", i, body)
			}
			continue
		}
		tool := body.Tool
		if tool == nil || body.ActionID != ids[i/3] || tool.Ordinal != i/3 || tool.Invocation != inv.ID || tool.Scope != inv.Scope || tool.ToolCallID != string("abc"[i/3]) {
			t.Errorf("event %d: %+v", i, body)
			continue
		}
		settlement := admission.SettlementCompleted
		if i/3 == 1 {
			settlement = admission.SettlementIndeterminate
		}
		if tool.Settlement != settlement {
			t.Errorf("event %d: %s", i, tool.Settlement)
		}
		if i%3 == 2 && i/3 == 1 && (body.ObservedAs != admission.ObservationOrphaned || body.ActionResult.Status != admission.StatusUnknown || body.ActionResult.Failure != "timeout") {
			t.Errorf("the unknown one: %+v", body)
		}
		if i%3 == 2 && i/3 == 0 && (body.ActionResult.Status != "succeeded" || len(body.ActionResult.Evidence) != 1) {
			t.Errorf("the first one: %+v", body.ActionResult)
		}
		if i%3 != 0 && body.StateDigest == "" || i%3 == 0 && (body.ActionResult != nil || body.StateDigest != "") {
			t.Errorf("event %d: %+v", i, body)
		}
	}
}
