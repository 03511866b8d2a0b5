package admission_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"writ"
	"writ/admission"
	"writ/store"
)

// wrong is one thing wrong with an admission, at its row of the order of checks.
type wrong struct {
	row  string
	code writ.Code
}

// wrongs are all that can be wrong at once, in the order of docs/ledger.md.
var wrongs = []wrong{
	{"0", writ.CodeRequestInvalid},
	{"1", writ.CodeInvocationClosed},
	{"1a", writ.CodeLedgerUnavailable},
	{"2", writ.CodeRequestConflict},
	{"2a", writ.CodeGenerationStale},
	{"5", writ.CodeIdentityMismatch},
	{"6", writ.CodeAffordanceUnbound},
	{"7", writ.CodeBoundaryUnbound},
	{"8", writ.CodeTargetUnbound},
	{"11", writ.CodeActionLimitReached},
	{"11", writ.CodeConcurrencyLimitReached},
	{"12", writ.CodeLedgerUnavailable},
}

// admitWrongly makes an admission with everything wrong that has says.
func admitWrongly(t *testing.T, has func(i int) bool) (before, after string, d admission.Decision) {
	t.Helper()
	limits := admission.Limits{Total: 10, Concurrent: 5}
	if has(10) {
		limits.Concurrent = 1
	}
	if has(9) {
		limits = admission.Limits{Total: 1, Concurrent: 1}
	}
	w := newWorld(limits)
	p := w.open()
	first := admit(p, "first")
	must(t, first.Admitted, first.Refusal)
	if has(4) {
		w.takeOver()
		if _, r := p.Dispatch(ctx, first.ActionID); r.Code != writ.CodeGenerationStale {
			t.Fatalf("dispatch without the lease: %+v", r)
		}
	}
	if !has(10) {
		r := p.Cancel(ctx, first.ActionID, "", resultBlock)
		must(t, r.Accepted, r.Code)
	}
	if has(2) {
		w.st.set(blindNothing)
		r := p.Cancel(ctx, first.ActionID, "", resultBlock)
		if r.Accepted && has(10) {
			t.Fatal("a write that failed was accepted")
		}
		if !has(10) { // the first is settled already: a new action loses its answer
			d := admit(p, "second")
			if d.Admitted {
				t.Fatal("an admission that failed was accepted")
			}
		}
		w.st.deaf.Store(true)
	}
	if has(1) {
		p.Drain()
	}
	req := request(p, "new")
	if has(3) {
		req.ToolCallID = "first"
		req.ArgumentDigest = "another"
	}
	if has(5) {
		req.Generation++
	}
	if has(6) {
		req.Affordance += ".other"
	}
	if has(7) {
		req.Boundary = boundaryB
	}
	if has(8) {
		req.Targets = []string{"tool.b"}
	}
	if has(0) {
		req.Scope = ""
	}
	if has(11) {
		w.st.set(refused)
	}
	before = w.everything()
	d = p.Admit(ctx, req, admission.Slot{}, callBlock)
	return before, w.everything(), d
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
			if slices.Contains(set, 2) && !slices.Contains(set, 10) && (slices.Contains(set, 4) || slices.Contains(set, 9)) {
				return // no write is left whose answer could be lost
			}
			before, after, d := admitWrongly(t, func(i int) bool { return slices.Contains(set, i) })
			if d.Admitted || d.Refusal != wrongs[slices.Min(set)].code || d.ActionID != "" {
				t.Errorf("%+v, want %s", d, wrongs[slices.Min(set)].code)
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
			set := []int{i, j}
			try(fmt.Sprintf("%s %s and %s %s", wrongs[i].row, wrongs[i].code, wrongs[j].row, wrongs[j].code), set)
		}
		try(fmt.Sprintf("everything from %s %s", wrongs[i].row, wrongs[i].code), tail)
	}
}

// The order that is tested is the order that is documented.
func TestOrderOfChecksIsDocumented(t *testing.T) {
	_, rows := readTable(t, "row", "check", "refusal")
	var documented, tested []wrong
	for _, r := range rows {
		for c := range strings.SplitSeq(r[2], ", ") {
			if c = strings.Trim(c, "`"); c != "" {
				documented = append(documented, wrong{r[0], writ.Code(c)})
			}
		}
	}
	tested = slices.Clone(wrongs)
	tested = slices.Insert(tested, 1, wrong{"1", writ.CodeInvocationInactive})                                                  // TestEveryPhaseIsAsDocumented
	tested = slices.Insert(tested, len(tested)-1, wrong{"12", writ.CodeGenerationStale}, wrong{"12", writ.CodeRequestConflict}) // below
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
	if d := admit(q, "x"); d.Refusal != writ.CodeRequestConflict { // it takes ordinal 1 to be free
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
		{"evidence", admission.Outcome{State: writ.Succeeded, Evidence: []string{"conv:fi:a", "conv:fi:b"}}, true},
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
	w := newWorld(admission.Limits{Total: 8, Concurrent: 8})
	inv := w.invocation("turn")
	inv.Bindings = append(inv.Bindings, admission.Binding{Affordance: affordance, Contract: contractB, Boundary: boundaryB, Targets: []string{"tool.c"}})
	w.apply(&store.Batch{Turns: []store.TurnWrite{{Turn: store.Turn{ID: "turn", Conversation: "conv", State: store.TurnRunning}}}})
	p, err := w.ledger.Open(inv)
	if err != nil {
		t.Fatal(err)
	}
	p.Activate()
	if d := p.Admit(ctx, p.Request("b", affordance, contractB, boundaryB, []string{"tool.c"}), admission.Slot{}, nil); d.Refusal != writ.CodeAffordanceUnbound {
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
	w := newWorld(admission.Limits{})
	for name, change := range map[string]func(*admission.Invocation){
		"no id":                  func(i *admission.Invocation) { i.ID = "" },
		"no conversation":        func(i *admission.Invocation) { i.Conversation = "" },
		"no scope":               func(i *admission.Invocation) { i.Scope = "" },
		"no limits":              func(i *admission.Invocation) { i.Limits = admission.Limits{} },
		"negative limits":        func(i *admission.Invocation) { i.Limits = admission.Limits{Total: -1, Concurrent: -1} },
		"concurrent above total": func(i *admission.Invocation) { i.Limits = admission.Limits{Total: 1, Concurrent: 2} },
	} {
		inv := w.invocation("turn")
		inv.Limits = admission.Limits{Total: 2, Concurrent: 1}
		if _, err := w.ledger.Open(inv); err != nil {
			t.Fatal(err)
		}
		change(&inv)
		if _, err := w.ledger.Open(inv); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}
