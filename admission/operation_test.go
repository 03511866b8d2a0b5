package admission_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"writ"
	"writ/admission"
	"writ/store"
)

var (
	owner    = admission.Actor{ID: "o"}
	operator = admission.Actor{ID: "boss", Operator: true}
	stranger = admission.Actor{ID: "stranger"}
)

func resolve(w *world, id string, by admission.Actor, change func(*admission.Resolution)) (store.Operation, error) {
	r := admission.Resolution{Action: id, Disposition: admission.EffectAbsent, By: by, Note: "looked"}
	if change != nil {
		change(&r)
	}
	return w.ledger.Resolve(ctx, r, func(row store.Action, op store.Operation) []store.Block {
		return []store.Block{{Conversation: row.Conversation, Turn: row.Turn, Kind: "resolved", Key: "resolved:" + op.ID, ActionID: row.ID, Body: []byte("{}"), Time: w.clock()}}
	})
}

// Who may resolve what, and what it must be.
func TestResolveRefuses(t *testing.T) {
	for _, c := range []struct {
		name, state string
		by          admission.Actor
		change      func(*admission.Resolution)
		want        error
	}{
		{"a stranger", "indeterminate", stranger, nil, admission.ErrForbidden},
		{"nobody", "indeterminate", admission.Actor{}, nil, admission.ErrForbidden},
		{"an admitted one", "admitted", operator, nil, admission.ErrState},
		{"a dispatched one", "dispatched", operator, nil, admission.ErrState},
		{"a succeeded one", "succeeded", operator, nil, admission.ErrState},
		{"a withheld one", "withheld", operator, nil, admission.ErrState},
		{"a held one", "held", operator, nil, admission.ErrState},
		{"another disposition", "indeterminate", operator, func(r *admission.Resolution) { r.Disposition = "maybe" }, admission.ErrInvalid},
		{"a note too long", "indeterminate", operator, func(r *admission.Resolution) { r.Note = strings.Repeat("x", 4001) }, admission.ErrInvalid},
		{"a note that is no text", "indeterminate", operator, func(r *admission.Resolution) { r.Note = "\xff" }, admission.ErrInvalid},
		{"evidence twice", "indeterminate", operator, func(r *admission.Resolution) { r.Evidence = []string{"a", "a"} }, admission.ErrInvalid},
		{"a key too long", "indeterminate", operator, func(r *admission.Resolution) { r.Key = strings.Repeat("k", 257) }, admission.ErrInvalid},
		{"no action", "", operator, func(r *admission.Resolution) { r.Action = "act_none" }, store.ErrNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, p := newPort()
			id := reach(w, p, map[bool]string{true: none, false: c.state}[c.state == ""], false)
			before, n := w.everything(), w.st.writes.Load()
			if _, err := resolve(w, id, c.by, c.change); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if w.everything() != before || w.st.writes.Load() != n {
				t.Error("the refusal has written")
			}
		})
	}
	w, p := newPort()
	id := reach(w, p, "indeterminate", false)
	row, _ := p.Row(id)
	if _, err := resolve(w, id, operator, func(r *admission.Resolution) { r.Key = row.IdempotencyKey }); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("under the action's own key: %v", err)
	}
}

// T90, T91: a resolution is a linked operation, made once; the row never changes.
func TestResolution(t *testing.T) {
	w, p := newPort()
	id := reach(w, p, "indeterminate", false)
	row, _ := p.Row(id)
	op, err := resolve(w, id, owner, func(r *admission.Resolution) { r.Key, r.Evidence = "k", []string{"mailbox:1"} })
	if err != nil {
		t.Fatal(err)
	}
	b := w.st.last
	if len(b.Operations) != 1 || len(b.Claims) != 1 || len(b.History) != 1 || len(b.Blocks) != 1 || len(b.Actions) != 0 {
		t.Errorf("it wrote %+v", b)
	}
	now, err := w.mem.Action(ctx, id)
	if err != nil || now.State != writ.Indeterminate || now.SettledAt != row.SettledAt {
		t.Errorf("the row has changed: %+v, %v", now, err)
	}
	again, err := resolve(w, id, owner, func(r *admission.Resolution) { r.Key, r.Evidence = "k", []string{"mailbox:1"} })
	if err != nil || again.ID != op.ID {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	for name, change := range map[string]func(*admission.Resolution){
		"another disposition under the key": func(r *admission.Resolution) { r.Key, r.Disposition = "k", admission.EffectApplied },
		"under another key":                 func(r *admission.Resolution) { r.Key = "k2" },
		"without a key":                     nil,
	} {
		if _, err := resolve(w, id, owner, change); !errors.Is(err, admission.ErrDone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := w.ledger.Get(ctx, id)
	if err != nil || got.State != admission.OperationIndeterminate || len(got.Children) != 1 || got.Children[0].Kind != store.OperationResolution {
		t.Errorf("%+v, %v", got, err)
	}
	child, err := w.ledger.Get(ctx, op.ID)
	if err != nil || child.Parent != id || child.State != admission.OperationSucceeded || !strings.Contains(string(child.Detail), "effect_absent") {
		t.Errorf("%+v, %v", child, err)
	}
}

// T88: while an unknown outcome is not resolved its target is held back for its owner, in every conversation.
func TestQuarantine(t *testing.T) {
	w, p := newPort()
	id := reach(w, p, "indeterminate", false)
	explore := admission.Slot{Traits: writ.Traits{Strategy: writ.Exploration}}
	q := w.open()
	if d := q.Admit(ctx, request(q, "y"), admission.Slot{}, callBlock); d.Refusal != writ.CodeTargetQuarantined {
		t.Errorf("another invocation: %+v", d)
	}
	if d := q.Admit(ctx, q.Request("z", affordance, contractA, boundaryA, []string{"tool.a2", "tool.a"}), admission.Slot{}, callBlock); d.Refusal != writ.CodeTargetQuarantined {
		t.Errorf("one of two targets: %+v", d)
	}
	for name, d := range map[string]admission.Decision{
		"exploration":    q.Admit(ctx, request(q, "e"), explore, callBlock),
		"another target": q.Admit(ctx, q.Request("t", affordance, contractA, boundaryA, []string{"tool.a2"}), admission.Slot{}, callBlock),
	} {
		if !d.Admitted {
			t.Errorf("%s: %+v", name, d)
		}
	}
	inv := w.invocation("turn2")
	inv.Owner = "somebody else"
	other, err := w.ledger.Open(inv)
	if err != nil {
		t.Fatal(err)
	}
	other.Activate()
	if d := other.Admit(ctx, request(other, "o"), admission.Slot{Round: 9, Attempt: 1}, callBlock); d.Refusal == writ.CodeTargetQuarantined {
		t.Errorf("another owner: %+v", d)
	}
	if _, err := resolve(w, id, owner, nil); err != nil {
		t.Fatal(err)
	}
	if d := q.Admit(ctx, request(q, "y"), admission.Slot{}, callBlock); !d.Admitted {
		t.Errorf("resolved: %+v", d)
	}
}

func TestIgnoreUnknown(t *testing.T) {
	w, p := newPort()
	reach(w, p, "indeterminate", false)
	inv := w.invocation("turn1")
	inv.IgnoreUnknown = true
	q, err := w.ledger.Open(inv)
	if err != nil {
		t.Fatal(err)
	}
	q.Activate()
	if d := q.Admit(ctx, request(q, "y"), admission.Slot{Round: 7, Attempt: 1}, callBlock); d.Refusal == writ.CodeTargetQuarantined {
		t.Errorf("%+v", d)
	}
}

// A late report is kept beside the row, once, whoever has the lease.
func TestLateReport(t *testing.T) {
	w, p := newPort()
	id := reach(w, p, "indeterminate", false)
	if err := p.Close(ctx, admission.Ending{}, w.end("turn1"), resultBlock); err != nil {
		t.Fatal(err)
	}
	w.takeOver()
	good := admission.Outcome{State: writ.Succeeded, ResultDigest: "d"}
	if _, err := w.ledger.Report(ctx, id, "worker", admission.Outcome{State: writ.Withheld}, nil); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("no outcome: %v", err)
	}
	if _, err := w.ledger.Report(ctx, id, "worker", good, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ledger.Report(ctx, id, "worker", good, nil); !errors.Is(err, admission.ErrDone) {
		t.Errorf("a second one: %v", err)
	}
	if w.state(id) != writ.Indeterminate {
		t.Errorf("the row is %s", w.state(id))
	}
	if q, err := w.mem.Quarantined(ctx); err != nil || len(q) != 1 {
		t.Errorf("a report lifts no quarantine: %v %v", q, err)
	}
	w2, p2 := newPort()
	done := reach(w2, p2, "succeeded", false)
	if _, err := w2.ledger.Report(ctx, done, "worker", good, nil); !errors.Is(err, admission.ErrState) {
		t.Errorf("of a known outcome: %v", err)
	}
}

func held(t *testing.T) (*world, *admission.Port, string) {
	t.Helper()
	w, p := newPort()
	return w, p, reach(w, p, "held", false)
}

func verdict(w *world, id string, approve bool, by admission.Actor) (store.Approval, error) {
	return w.ledger.Decide(ctx, admission.Verdict{Action: id, Approve: approve, By: by, Note: "n"}, resultBlock)
}

func TestDecide(t *testing.T) {
	w, p, id := held(t)
	if _, err := verdict(w, id, true, stranger); !errors.Is(err, admission.ErrForbidden) {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := verdict(w, "act_none", true, owner); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no action: %v", err)
	}
	if a, err := verdict(w, id, true, owner); err != nil || a.State != store.ApprovalApproved {
		t.Fatalf("%+v, %v", a, err)
	}
	if w.state(id) != writ.Held {
		t.Errorf("a decision releases nothing by itself: %s", w.state(id))
	}
	if _, err := verdict(w, id, true, owner); err != nil {
		t.Errorf("the same decision again: %v", err)
	}
	if _, err := verdict(w, id, false, owner); !errors.Is(err, admission.ErrDone) {
		t.Errorf("another decision: %v", err)
	}
	g, r := p.Dispatch(ctx, id)
	if !r.Accepted || !g.Start() || w.state(id) != writ.Dispatched {
		t.Errorf("%+v, %s", r, w.state(id))
	}
	if _, r := p.Dispatch(ctx, id); r.Code != writ.CodeStateConflict {
		t.Errorf("a second dispatch: %+v", r)
	}

	w, p, id = held(t)
	if _, err := verdict(w, id, false, owner); err != nil || w.state(id) != writ.Withheld {
		t.Errorf("%v, %s", err, w.state(id))
	}
	if len(w.st.last.Blocks) != 1 || len(w.st.last.Operations) != 1 || len(w.st.last.Approvals) != 1 {
		t.Errorf("declining is one write: %+v", w.st.last)
	}
	if g, r := p.Dispatch(ctx, id); g != nil || r.Code != writ.CodeStateConflict {
		t.Errorf("a declined one: %+v", r)
	}
	if row, _ := w.mem.Action(ctx, id); row.Failure != admission.FailureDeclined {
		t.Errorf("%+v", row)
	}
}

func TestApproverIsTheOperator(t *testing.T) {
	w, p := newPort()
	d := p.Admit(ctx, request(p, "x"), admission.Slot{Approval: &admission.Approval{Approver: admission.ByOperator}}, callBlock)
	if _, err := verdict(w, d.ActionID, true, owner); !errors.Is(err, admission.ErrForbidden) {
		t.Errorf("the owner: %v", err)
	}
	if _, err := verdict(w, d.ActionID, true, operator); err != nil {
		t.Errorf("an operator: %v", err)
	}
}

// What an approval was given for is checked again when it is used.
func TestApprovalIsCheckedAtUse(t *testing.T) {
	reopen := func(t *testing.T, w *world, change func(*admission.Invocation)) *admission.Port {
		t.Helper()
		inv := w.invocation("turn1")
		inv.Settled = resultBlock
		change(&inv)
		w.apply(&store.Batch{Turns: []store.TurnWrite{{Expect: store.TurnRunning, Turn: store.Turn{ID: "turn1", State: store.TurnParked}}}})
		q, err := w.ledger.Resume(ctx, inv, "b", nil)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	for name, c := range map[string]struct {
		before  func(*world)
		change  func(*admission.Invocation)
		failure string
		code    writ.Code
	}{
		"the policy has changed": {nil, func(i *admission.Invocation) { i.PolicyDigest = "another" }, admission.FailurePolicyChanged, writ.CodeStateConflict},
		"its time is over":       {func(w *world) { w.pass(admission.DefaultApprovalTime) }, nil, admission.FailureApprovalExpired, writ.CodeStateConflict},
		"its target is in quarantine": {func(w *world) {
			w.apply(&store.Batch{Quarantine: []store.Quarantine{{Tenant: "t", Owner: "o", Target: "tool.a", Action: "other"}}})
		}, nil, "", writ.CodeTargetQuarantined},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, id := held(t)
			if _, err := verdict(w, id, true, owner); err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				c.before(w)
			}
			if c.change == nil {
				c.change = func(*admission.Invocation) {}
			}
			q := reopen(t, w, c.change)
			g, r := q.Dispatch(ctx, id)
			if g != nil || r.Code != c.code {
				t.Errorf("%+v", r)
			}
			row, _ := w.mem.Action(ctx, id)
			if c.failure != "" && (row.State != writ.Withheld || row.Failure != c.failure) || c.failure == "" && row.State != writ.Held {
				t.Errorf("%s %s", row.State, row.Failure)
			}
		})
	}
}

func TestExpire(t *testing.T) {
	w, p, id := held(t)
	if rows, err := w.ledger.Expire(ctx, store.ApprovalFilter{}, resultBlock); err != nil || len(rows) != 0 {
		t.Errorf("too early: %v %v", rows, err)
	}
	w.pass(admission.DefaultApprovalTime)
	if _, err := verdict(w, id, true, owner); !errors.Is(err, admission.ErrExpired) {
		t.Errorf("deciding too late: %v", err)
	}
	rows, err := w.ledger.Expire(ctx, store.ApprovalFilter{}, resultBlock)
	if err != nil || len(rows) != 1 || w.state(id) != writ.Withheld {
		t.Errorf("%v %v %s", rows, err, w.state(id))
	}
	n := w.st.writes.Load()
	if rows, err := w.ledger.Expire(ctx, store.ApprovalFilter{}, resultBlock); err != nil || len(rows) != 0 || w.st.writes.Load() != n {
		t.Errorf("again: %v %v", rows, err)
	}
	if _, r := p.Dispatch(ctx, id); r.Code != writ.CodeStateConflict {
		t.Errorf("%+v", r)
	}
}

// Of verdicts at the same time one counts.
func TestDecisionsRace(t *testing.T) {
	for range 50 {
		w, _, id := held(t)
		var ok [2]error
		together(2, func(i int) {
			_, ok[i] = w.ledger.Decide(ctx, admission.Verdict{Action: id, Approve: i == 0, By: admission.Actor{ID: "o"}}, resultBlock)
		})
		if (ok[0] == nil) == (ok[1] == nil) {
			t.Fatalf("%v and %v", ok[0], ok[1])
		}
	}
}

// Held actions count to the total and take no place of the concurrency.
func TestHeldAndLimits(t *testing.T) {
	w := newWorld(limits{Total: 3, Concurrent: 1})
	p := w.open()
	hold := admission.Slot{Approval: &admission.Approval{Approver: admission.ByOwner}}
	first := p.Admit(ctx, request(p, "h1"), hold, callBlock)
	running := admit(p, "x")
	if !first.Held || !running.Admitted {
		t.Fatalf("%+v %+v", first, running)
	}
	decide(w, first.ActionID, true)
	_, r := p.Dispatch(ctx, first.ActionID)
	if r.Code != writ.CodeConcurrencyLimitReached || r.Freed == nil {
		t.Errorf("approved, and no room: %+v", r)
	}
	if r := p.Cancel(ctx, running.ActionID, "", resultBlock); !r.Accepted {
		t.Fatal(r.Code)
	}
	select {
	case <-r.Freed:
	default:
		t.Error("nobody is told that there is room")
	}
	if _, r := p.Dispatch(ctx, first.ActionID); !r.Accepted {
		t.Errorf("%+v", r)
	}
	if d := p.Admit(ctx, request(p, "h2"), hold, callBlock); !d.Held {
		t.Errorf("%+v", d)
	}
	if d := p.Admit(ctx, request(p, "h3"), hold, callBlock); d.Refusal != writ.CodeActionLimitReached {
		t.Errorf("%+v", d)
	}
}

func TestOfferInFlight(t *testing.T) {
	w := newWorld(limits{Total: 10, Concurrent: 10})
	inv := w.invocation("turn1")
	w.turn()
	inv.Offers = slices.Clone(inv.Offers)
	inv.Offers[0].MaxInFlight = 1
	p, err := w.ledger.Open(inv)
	if err != nil {
		t.Fatal(err)
	}
	p.Activate()
	a := admit(p, "a")
	if d := admit(p, "b"); !a.Admitted || d.Refusal != writ.CodeConcurrencyLimitReached || d.Freed == nil {
		t.Errorf("%+v %+v", a, d)
	}
	if d := p.Admit(ctx, p.Request("c", affordance, contractB, boundaryB, []string{"tool.b"}), admission.Slot{}, callBlock); !d.Admitted {
		t.Errorf("another offer: %+v", d)
	}
	p.Cancel(ctx, a.ActionID, "", resultBlock)
	if d := admit(p, "b"); !d.Admitted {
		t.Errorf("freed: %+v", d)
	}
}

// A key makes an equal call of another invocation get the stored decision.
func TestClaims(t *testing.T) {
	w, p := newPort()
	slot := func(digest string) admission.Slot {
		return admission.Slot{Claim: &store.Claim{Scope: "s", Key: "k", Digest: digest}}
	}
	d := p.Admit(ctx, request(p, "x"), slot("f"), callBlock)
	q := w.open()
	again := q.Admit(ctx, request(q, "y"), slot("f"), callBlock)
	if !d.Admitted || !again.Admitted || !again.Replay || again.ActionID != d.ActionID || len(w.rows()) != 1 {
		t.Errorf("%+v then %+v", d, again)
	}
	if other := q.Admit(ctx, request(q, "y"), slot("g"), callBlock); other.Refusal != writ.CodeRequestConflict {
		t.Errorf("another call under the key: %+v", other)
	}
	if bad := q.Admit(ctx, request(q, "y"), admission.Slot{Claim: &store.Claim{Scope: "s", Digest: "f"}}, callBlock); bad.Refusal != writ.CodeRequestInvalid {
		t.Errorf("an empty key: %+v", bad)
	}
	// At the same time, on two ports: one row.
	w, p = newPort()
	q = w.open()
	var ds [2]admission.Decision
	together(2, func(i int) {
		port := []*admission.Port{p, q}[i]
		ds[i] = port.Admit(ctx, request(port, "x"), slot("f"), callBlock)
	})
	if !ds[0].Admitted || !ds[1].Admitted || ds[0].ActionID != ds[1].ActionID || len(w.rows()) != 1 {
		t.Errorf("%+v and %+v", ds[0], ds[1])
	}
}

func TestList(t *testing.T) {
	w, p := newPort()
	for _, call := range []string{"a", "b", "c", "d", "e"} {
		admit(p, call)
	}
	var seen []string
	for after := int64(0); ; {
		page, err := w.ledger.List(ctx, store.ActionFilter{Page: &store.ActionCursor{After: after, Limit: 2}})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, op := range page {
			seen = append(seen, op.State)
			if op.Kind != "tool_action" || op.Parent != "turn1" || *op.Ordinal != len(seen)-1 {
				t.Errorf("%+v", op)
			}
			after = op.Cursor
		}
	}
	if len(seen) != 5 {
		t.Errorf("%v", seen)
	}
	op, err := w.ledger.Get(ctx, "turn1")
	if err != nil || op.Kind != "invocation" || op.State != admission.OperationRunning {
		t.Errorf("%+v %v", op, err)
	}
	if _, err := w.ledger.Get(ctx, "op_none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
