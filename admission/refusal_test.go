package admission_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"writ"
	"writ/admission"
	"writ/participant"
	"writ/store"
)

// wrong is one thing wrong with an admission, at its row of the order of checks.
type wrong struct {
	what string
	row  string
	code writ.Code
}

// wrongs are all that can be wrong at once, in the order of docs/ledger.md.
var wrongs = []wrong{
	{"shape", "0", writ.CodeRequestInvalid},
	{"drained", "1", writ.CodeInvocationClosed},
	{"behind", "1a", writ.CodeLedgerUnavailable},
	{"conflict", "2", writ.CodeRequestConflict},
	{"stale", "2a", writ.CodeGenerationStale},
	{"profile", "3", writ.CodePolicyProfileUnsupported},
	{"crossing", "4", writ.CodeCrossingPolicyUnsupported},
	{"identity", "5", writ.CodeIdentityMismatch},
	{"affordance", "6", writ.CodeAffordanceUnbound},
	{"two bindings", "6", writ.CodeAffordanceAmbiguous},
	{"boundary", "7", writ.CodeBoundaryUnbound},
	{"target", "8", writ.CodeTargetUnbound},
	{"quarantine", "8a", writ.CodeTargetQuarantined},
	{"temporal", "9", writ.CodeTemporalBindingUnsupported},
	{"no offer", "10", writ.CodeExecutionBindingUnavailable},
	{"two offers", "10", writ.CodeExecutionBindingAmbiguous},
	{"role", "10a", writ.CodeRoleDenied},
	{"total", "11", writ.CodeActionLimitReached},
	{"concurrent", "11", writ.CodeConcurrencyLimitReached},
	{"write", "12", writ.CodeLedgerUnavailable},
}

// badly opens a port on an invocation whose bounds are wrong as has says, with one action admitted before that.
func badly(t *testing.T, has func(string) bool) (*world, *admission.Port, admission.Decision) {
	t.Helper()
	lim := limits{Total: 10, Concurrent: 5}
	if has("concurrent") {
		lim.Concurrent = 1
	}
	if has("total") {
		lim = limits{Total: 1, Concurrent: 1}
	}
	w := newWorld(lim)
	if has("quarantine") {
		w.apply(&store.Batch{Quarantine: []store.Quarantine{{Tenant: "t", Owner: "o", Target: "tool.a", Action: "another"}}})
	}
	p := w.turn()
	inv := p.Invocation()
	if has("profile") {
		inv.Profile = participant.ProfileV3
	}
	inv.Crossing = has("crossing")
	a := inv.Bindings[0]
	if has("temporal") {
		inv.Bindings[0].Temporal = true
	}
	if has("two bindings") {
		inv.Bindings = append(inv.Bindings, a)
	}
	if has("two offers") {
		inv.Offers = append(inv.Offers, participant.Offer{ID: "a2", Contract: contractA, Implementation: inv.Implementation, Targets: []string{"tool.a"}})
	}
	if has("no offer") {
		inv.Offers = inv.Offers[1:2]
	}
	// The first action is admitted by a sound port, which the other one resumes from.
	q, err := w.ledger.Open(w.invocation(inv.ID))
	if err != nil {
		t.Fatal(err)
	}
	q.Activate()
	explore := admission.Slot{Traits: writ.Traits{Strategy: writ.Exploration}}
	first := q.Admit(ctx, request(q, "first"), explore, callBlock)
	must(t, first.Admitted, first.Refusal)
	if p, err = w.ledger.Open(inv); err != nil {
		t.Fatal(err)
	}
	p.Activate()
	w.st.set(blindNothing) // a write whose outcome is not known makes the port read back what the other one has written
	p.Admit(ctx, p.Request("lost", affordance, contractB, boundaryB, []string{"tool.b"}), explore, callBlock)
	w.st.set(sound)
	p.Cancel(ctx, "act_none", "", nil)
	if _, known := p.Row(first.ActionID); !known && !has("profile") && !has("crossing") && !has("two bindings") {
		t.Fatal("the port does not know the first action")
	}
	return w, p, first
}

// admitWrongly makes an admission with everything wrong that has says.
func admitWrongly(t *testing.T, has func(string) bool) (before, after string, d admission.Decision) {
	t.Helper()
	w, p, first := badly(t, has)
	if unbounded(has) {
		first.ActionID = ""
	} else if has("stale") {
		w.takeOver()
		if _, r := p.Dispatch(ctx, first.ActionID); r.Code != writ.CodeGenerationStale {
			t.Fatalf("dispatch without the lease: %+v", r)
		}
	}
	switch {
	case first.ActionID == "":
	case has("behind"):
		w.st.set(blindNothing)
		if r := p.Cancel(ctx, first.ActionID, "", resultBlock); r.Accepted {
			t.Fatal("a write that failed was accepted")
		}
		w.st.set(sound)
		w.st.deaf.Store(true)
	case !has("concurrent") && !has("stale"):
		r := p.Cancel(ctx, first.ActionID, "", resultBlock)
		must(t, r.Accepted, r.Code)
	}
	if has("drained") {
		p.Drain()
	}
	req := request(p, "new")
	slot := admission.Slot{}
	if has("conflict") {
		req.ToolCallID = "first"
		req.ArgumentDigest = "another"
	}
	if has("identity") {
		req.Generation++
	}
	if has("affordance") {
		req.Affordance += ".other"
	}
	if has("boundary") {
		req.Boundary = boundaryB
	}
	if has("target") {
		req.Targets = []string{"tool.b"}
	}
	if has("shape") {
		req.Scope = ""
	}
	if has("role") {
		slot.Check = func(context.Context) writ.Code { return writ.CodeRoleDenied }
	}
	if has("write") {
		w.st.set(refused)
	}
	before = w.everything()
	d = p.Admit(ctx, req, slot, callBlock)
	return before, w.everything(), d
}

// unbounded reports whether the port's own bounds refuse everything.
func unbounded(has func(string) bool) bool {
	return has("profile") || has("crossing") || has("two bindings")
}

func must(t *testing.T, ok bool, code writ.Code) {
	t.Helper()
	if !ok {
		t.Fatalf("refused: %s", code)
	}
}

// A request with several things wrong gets the code of the first row, for every pair and for every tail of the order.
func TestFirstRefusalWins(t *testing.T) {
	try := func(name string, set []int) {
		t.Run(name, func(t *testing.T) {
			has := func(what string) bool {
				return slices.ContainsFunc(set, func(i int) bool { return wrongs[i].what == what })
			}
			want := wrongs[slices.Min(set)]
			if want.what == "quarantine" && has("write") {
				return // while the store does not take writes, what it says of quarantine comes too late
			}
			if unbounded(has) && (want.what == "behind" || want.what == "conflict" || want.what == "stale") {
				return // such a port has never admitted anything: it knows of no action and has lost no write
			}
			before, after, d := admitWrongly(t, has)
			if d.Admitted || d.Refusal != want.code || d.ActionID != "" {
				t.Errorf("%+v, want %s", d, want.code)
			}
			if (d.Freed != nil) != (d.Refusal == writ.CodeConcurrencyLimitReached) {
				t.Errorf("%s with Freed %v", d.Refusal, d.Freed)
			}
			if before != after {
				t.Error("the refusal has written")
			}
		})
	}
	for i := range wrongs {
		var tail []int
		for j := i; j < len(wrongs); j++ {
			tail = append(tail, j)
			try(fmt.Sprintf("%s and %s", wrongs[i].what, wrongs[j].what), []int{i, j})
		}
		try(fmt.Sprintf("everything from %s", wrongs[i].what), tail)
	}
}

// The order that is tested is the order that is documented.
func TestOrderOfChecksIsDocumented(t *testing.T) {
	_, rows := readTable(t, "row", "check", "refusal")
	var documented, tested []wrong
	for _, r := range rows {
		for c := range strings.SplitSeq(r[2], ", ") {
			if c = strings.Trim(c, "`"); c != "" {
				documented = append(documented, wrong{"", r[0], writ.Code(c)})
			}
		}
	}
	for _, w := range wrongs {
		w.what = ""
		if w.row == "1" {
			tested = append(tested, wrong{"", "1", writ.CodeInvocationInactive}) // TestEveryPhaseIsAsDocumented
		}
		if w.row == "12" {
			tested = append(tested, wrong{"", "12", writ.CodeGenerationStale}, wrong{"", "12", writ.CodeRequestConflict}) // below
		}
		tested = append(tested, w)
		if w.row == "10a" {
			tested = append(tested, wrong{"", "10a", writ.CodeConsentRequired}, wrong{"", "10a", writ.CodeBudgetExhausted}) // they come the same way
		}
	}
	if !slices.Equal(documented, tested) {
		t.Errorf("documented %v\ntested %v", documented, tested)
	}
	for _, w := range documented {
		if w.code.Meaning() == "" {
			t.Errorf("%s is no code of this version", w.code)
		}
	}
}

// A lease that is lost is found out by the write itself; from then on the port knows.
func TestLostLeaseIsFoundByTheWrite(t *testing.T) {
	w, p := newPort()
	w.takeOver()
	before := w.everything()
	for range 2 {
		if d := admit(p, "x"); d.Refusal != writ.CodeGenerationStale {
			t.Errorf("%+v", d)
		}
	}
	if w.everything() != before {
		t.Error("the refusal has written")
	}
}

// Another port of the same invocation has taken the slot: the row that stands is the other's.
func TestTakenSlotIsAConflict(t *testing.T) {
	w, p := newPort()
	slot := admission.Slot{Round: 1, Attempt: 1, Index: 0}
	if d := p.Admit(ctx, request(p, "x"), slot, callBlock); !d.Admitted {
		t.Fatal(d.Refusal)
	}
	before := w.everything()
	if d := p.Admit(ctx, request(p, "y"), slot, callBlock); d.Refusal != writ.CodeRequestConflict {
		t.Errorf("%+v", d)
	}
	if w.everything() != before {
		t.Error("the refusal has written")
	}
	q, err := w.ledger.Open(p.Invocation())
	if err != nil {
		t.Fatal(err)
	}
	q.Activate()
	if d := admit(q, "x"); d.Refusal != writ.CodeRequestConflict { // it takes ordinal 0 to be free
		t.Errorf("a second port: %+v", d)
	}
	if d := admit(q, "x"); !d.Admitted { // and has read what stands meanwhile
		t.Errorf("a second port, again: %+v", d)
	}
}

// What is not a request is refused whatever else holds, and what is at the bounds is not.
func TestRequestShape(t *testing.T) {
	long := func(prefix string, n int) string { return prefix + strings.Repeat("x", n-len(prefix)) }
	list := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint("tool.", i))
		}
		return out
	}
	for _, c := range []struct {
		name string
		set  func(*admission.Request)
		ok   bool
	}{
		{"as it is", func(*admission.Request) {}, true},
		{"zero", func(r *admission.Request) { *r = admission.Request{} }, false},
		{"no call id", func(r *admission.Request) { r.ToolCallID = "" }, false},
		{"call id of 256 bytes", func(r *admission.Request) { r.ToolCallID = long("", 256) }, true},
		{"call id of 257 bytes", func(r *admission.Request) { r.ToolCallID = long("", 257) }, false},
		{"call id of 129 two-byte letters", func(r *admission.Request) { r.ToolCallID = strings.Repeat("é", 129) }, false},
		{"call id is not UTF-8", func(r *admission.Request) { r.ToolCallID = "a\xff" }, false},
		{"call id with NUL and lines", func(r *admission.Request) { r.ToolCallID = "a\x00b\nc" }, true},
		{"no invocation", func(r *admission.Request) { r.Invocation = "" }, false},
		{"no participant", func(r *admission.Request) { r.Participant = "" }, false},
		{"no episode", func(r *admission.Request) { r.Episode = "" }, false},
		{"no implementation", func(r *admission.Request) { r.Implementation = "" }, false},
		{"no affordance", func(r *admission.Request) { r.Affordance = "" }, false},
		{"no scope", func(r *admission.Request) { r.Scope = "" }, false},
		{"scope is not UTF-8", func(r *admission.Request) { r.Scope = "\xed\xa0\x80" }, false},
		{"affordance of 2049 bytes", func(r *admission.Request) { r.Affordance = long("", 2049) }, false},
		{"huge participant", func(r *admission.Request) { r.Participant = long("", 1<<22) }, false},
		{"contract of another kind", func(r *admission.Request) { r.Contract = "participant.observation-boundary.x" }, false},
		{"contract is only a prefix", func(r *admission.Request) { r.Contract = "participant.action-contract." }, false},
		{"boundary of another kind", func(r *admission.Request) { r.Boundary = contractA }, false},
		{"boundary is only a prefix", func(r *admission.Request) { r.Boundary = "participant.observation-boundary." }, false},
		{"no targets", func(r *admission.Request) { r.Targets = []string{} }, false},
		{"nil targets", func(r *admission.Request) { r.Targets = nil }, false},
		{"an empty target", func(r *admission.Request) { r.Targets = []string{"tool.a", ""} }, false},
		{"a target twice", func(r *admission.Request) { r.Targets = []string{"tool.a", "tool.a2", "tool.a"} }, false},
		{"a target that is not UTF-8", func(r *admission.Request) { r.Targets = []string{"tool.\xc3"} }, false},
		{"a target of 2049 bytes", func(r *admission.Request) { r.Targets = []string{long("tool.", 2049)} }, false},
		{"257 targets", func(r *admission.Request) { r.Targets = list(257) }, false},
		{"negative generation", func(r *admission.Request) { r.Generation = -1 }, false},
		{"least generation", func(r *admission.Request) { r.Generation = math.MinInt64 }, false},
		{"argument digest of 257 bytes", func(r *admission.Request) { r.ArgumentDigest = long("", 257) }, false},
		{"argument digest is not UTF-8", func(r *admission.Request) { r.ArgumentDigest = "\xfe" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, p := newPort()
			r := request(p, "x")
			c.set(&r)
			before := w.everything()
			d := p.Admit(ctx, r, admission.Slot{}, callBlock)
			if d.Admitted != c.ok {
				t.Fatalf("%+v", d)
			}
			if !c.ok && (d.Refusal != writ.CodeRequestInvalid || w.everything() != before) {
				t.Errorf("%+v; changed: %v", d, w.everything() != before)
			}
			if q := w.turn(); !c.ok && q.Admit(ctx, r, admission.Slot{}, nil).Refusal != writ.CodeRequestInvalid {
				t.Error("the shape is not looked at first")
			}
		})
	}
	// 256 targets are well formed, though none of them is bound.
	_, p := newPort()
	r := request(p, "x")
	r.Targets = list(256)
	if d := p.Admit(ctx, r, admission.Slot{}, nil); d.Refusal != writ.CodeTargetUnbound {
		t.Errorf("256 targets: %+v", d)
	}
}

// Equality covers every field, targets in order; a refused request is not remembered.
func TestRequestEquality(t *testing.T) {
	fields := map[string]func(*admission.Request){
		"invocation":     func(r *admission.Request) { r.Invocation = "another" },
		"participant":    func(r *admission.Request) { r.Participant = "another" },
		"episode":        func(r *admission.Request) { r.Episode = "another" },
		"implementation": func(r *admission.Request) { r.Implementation = "another" },
		"affordance":     func(r *admission.Request) { r.Affordance = "another" },
		"contract":       func(r *admission.Request) { r.Contract = contractB },
		"boundary":       func(r *admission.Request) { r.Boundary = boundaryB },
		"target order":   func(r *admission.Request) { slices.Reverse(r.Targets) },
		"fewer targets":  func(r *admission.Request) { r.Targets = r.Targets[:1] },
		"scope":          func(r *admission.Request) { r.Scope = "another" },
		"generation":     func(r *admission.Request) { r.Generation++ },
		"arguments":      func(r *admission.Request) { r.ArgumentDigest = "another" },
	}
	for name, change := range fields {
		t.Run(name, func(t *testing.T) {
			_, p := newPort()
			base := func() admission.Request {
				r := request(p, "x")
				r.Targets = []string{"tool.a", "tool.a2"}
				return r
			}
			first := p.Admit(ctx, base(), admission.Slot{}, callBlock)
			must(t, first.Admitted, first.Refusal)
			r := base()
			change(&r)
			if d := p.Admit(ctx, r, admission.Slot{}, callBlock); d.Refusal != writ.CodeRequestConflict {
				t.Errorf("%+v", d)
			}
			if d := p.Admit(ctx, base(), admission.Slot{Round: 9, Attempt: 9}, callBlock); d.ActionID != first.ActionID || d.Key != first.Key {
				t.Errorf("the equal request got %+v, not %+v", d, first)
			}
			if n := len(p.Rows()); n != 1 {
				t.Errorf("%d rows", n)
			}
		})
	}
	w, p := newPort()
	w.st.set(refused)
	if d := admit(p, "x"); d.Refusal != writ.CodeLedgerUnavailable {
		t.Fatalf("%+v", d)
	}
	w.st.set(sound)
	r := request(p, "x")
	r.ArgumentDigest = "another"
	if d := p.Admit(ctx, r, admission.Slot{}, callBlock); !d.Admitted {
		t.Errorf("a refused request is remembered: %+v", d)
	}
}

// What an outcome or a reason may be.
func TestOutcomeShape(t *testing.T) {
	for _, c := range []struct {
		name string
		o    admission.Outcome
		ok   bool
	}{
		{"zero", admission.Outcome{}, false},
		{"dispatched", admission.Outcome{State: writ.Dispatched}, false},
		{"indeterminate", admission.Outcome{State: writ.Indeterminate, Failure: "timeout"}, false},
		{"withheld", admission.Outcome{State: writ.Withheld}, false},
		{"a state nobody knows", admission.Outcome{State: "done"}, false},
		{"succeeded", admission.Outcome{State: writ.Succeeded}, true},
		{"succeeded with a failure", admission.Outcome{State: writ.Succeeded, Failure: "timeout"}, false},
		{"failed", admission.Outcome{State: writ.Failed, Failure: "tool_error"}, true},
		{"failed without a class", admission.Outcome{State: writ.Failed}, false},
		{"failed with a tool's text", admission.Outcome{State: writ.Failed, Failure: "no such user: alice@example.com"}, false},
		{"failed in 65 letters", admission.Outcome{State: writ.Failed, Failure: strings.Repeat("x", 65)}, false},
		{"evidence", admission.Outcome{State: writ.Succeeded, Evidence: []string{"ref:a", "ref:b"}}, true},
		{"evidence that the boundary does not declare", admission.Outcome{State: writ.Succeeded, Evidence: []string{"ref:a", "conv:x"}}, false},
		{"rejected", admission.Outcome{State: writ.Failed, Status: "rejected", Failure: "authority_denied"}, true},
		{"partial", admission.Outcome{State: writ.Failed, Status: "partial_success", Failure: "partial_success"}, true},
		{"a success that was rejected", admission.Outcome{State: writ.Succeeded, Status: "rejected"}, false},
		{"another status", admission.Outcome{State: writ.Failed, Status: "withheld", Failure: "timeout"}, false},
		{"another participant", admission.Outcome{State: writ.Succeeded, Participant: "p2"}, false},
		{"another episode", admission.Outcome{State: writ.Succeeded, Episode: "e2"}, false},
		{"another action", admission.Outcome{State: writ.Succeeded, ActionID: "a2"}, false},
		{"another contract", admission.Outcome{State: writ.Succeeded, Contract: contractB}, false},
		{"a foreign observation point", admission.Outcome{State: writ.Succeeded, Observation: "elsewhere"}, false},
		{"what it is", admission.Outcome{State: writ.Succeeded, Participant: "participant.main", Episode: "conv", Contract: contractA, Observation: "conversation"}, true},
		{"evidence twice", admission.Outcome{State: writ.Succeeded, Evidence: []string{"a", "a"}}, false},
		{"evidence is not UTF-8", admission.Outcome{State: writ.Succeeded, Evidence: []string{"\xff"}}, false},
		{"a huge digest", admission.Outcome{State: writ.Succeeded, ResultDigest: strings.Repeat("x", 257)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, p := newPort()
			id := reach(w, p, "dispatched", false)
			before := w.everything()
			r := p.Complete(ctx, id, c.o, resultBlock)
			if r.Accepted != c.ok || !c.ok && (r.Code != writ.CodeOutcomeInvalid || w.everything() != before) {
				t.Fatalf("%+v", r)
			}
			// A corrected outcome is taken, and so is a report.
			if fixed := p.Complete(ctx, id, admission.Outcome{State: writ.Failed, Failure: "timeout"}, resultBlock); fixed.Accepted == c.ok {
				t.Errorf("another outcome: %+v", fixed)
			}
		})
	}
	for _, reason := range []string{"", "Timeout", "a text", "1st", "ä", strings.Repeat("x", 65)} {
		w, p := newPort()
		id := reach(w, p, "dispatched", false)
		if r := p.ReportUnknown(ctx, id, reason, resultBlock); r.Code != writ.CodeRequestInvalid || w.state(id) != writ.Dispatched {
			t.Errorf("report_unknown %q: %+v", reason, r)
		}
		w, p = newPort()
		id = reach(w, p, "admitted", false)
		if r := p.Cancel(ctx, id, reason, resultBlock); (r.Code != writ.CodeRequestInvalid) != (reason == "") {
			t.Errorf("cancel %q: %+v", reason, r)
		}
	}
}

// A binding that is there twice is bound to neither, and nobody widens a port through what it hands out.
func TestBindings(t *testing.T) {
	w := newWorld(limits{Total: 8, Concurrent: 8})
	inv := w.invocation("turn")
	inv.Bindings = append(inv.Bindings, participant.Binding{Affordance: affordance, Contract: contractB, Boundaries: []string{boundaryB}, Targets: []string{"tool.c"}})
	w.apply(&store.Batch{Turns: []store.TurnWrite{{Turn: store.Turn{ID: "turn", Conversation: "conv", State: store.TurnRunning}}}})
	p, err := w.ledger.Open(inv)
	if err != nil {
		t.Fatal(err)
	}
	p.Activate()
	if d := p.Admit(ctx, p.Request("b", affordance, contractB, boundaryB, []string{"tool.c"}), admission.Slot{}, nil); d.Refusal != writ.CodeAffordanceAmbiguous {
		t.Errorf("an ambiguous binding: %+v", d)
	}
	inv.Bindings[0].Targets[0] = "tool.mine"
	p.Invocation().Bindings[0].Targets[0] = "tool.mine"
	if d := p.Admit(ctx, p.Request("a", affordance, contractA, boundaryA, []string{"tool.mine"}), admission.Slot{}, nil); d.Refusal != writ.CodeTargetUnbound {
		t.Errorf("a widened binding: %+v", d)
	}
	targets := []string{"tool.a"}
	d := p.Admit(ctx, p.Request("a", affordance, contractA, boundaryA, targets), admission.Slot{}, callBlock)
	must(t, d.Admitted, d.Refusal)
	targets[0] = "tool.mine"
	if row, _ := p.Row(d.ActionID); row.Targets[0] != "tool.a" {
		t.Errorf("the row's targets changed with the caller's: %v", row.Targets)
	}
}

func TestOpenRefuses(t *testing.T) {
	w := newWorld(limits{})
	for name, change := range map[string]func(*admission.Invocation){
		"no id":                  func(i *admission.Invocation) { i.ID = "" },
		"no conversation":        func(i *admission.Invocation) { i.Conversation = "" },
		"no limits":              func(i *admission.Invocation) { i.Total, i.Concurrent = 0, 0 },
		"negative limits":        func(i *admission.Invocation) { i.Total, i.Concurrent = -1, -1 },
		"concurrent above total": func(i *admission.Invocation) { i.Total, i.Concurrent = 1, 2 },
	} {
		inv := w.invocation("turn")
		inv.Total, inv.Concurrent = 2, 1
		if _, err := w.ledger.Open(inv); err != nil {
			t.Fatal(err)
		}
		change(&inv)
		if _, err := w.ledger.Open(inv); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}
