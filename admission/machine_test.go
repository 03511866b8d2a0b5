package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"writ"
	"writ/admission"
	"writ/store"
)

// machine runs the model and the real port beside each other.
type machine struct {
	w       *world
	port    *admission.Port
	turn    string
	model   *model
	next    next
	old     map[string]*model // of turns that are over, by turn
	grants  sync.Map          // action id → *tally
	settled map[string]writ.ActionState
}

type tally struct {
	mu              sync.Mutex
	granted, starts int
}

func newMachine(n next, lim limits) *machine {
	m := &machine{w: newWorld(lim), next: n, old: map[string]*model{}, settled: map[string]writ.ActionState{}}
	m.begin()
	return m
}

// begin starts a new turn, as a process does that has just recovered.
func (m *machine) begin() {
	m.port = m.w.open()
	m.turn = m.port.Invocation().ID
	unknown := m.model != nil && m.model.quarantined()
	m.model = &model{next: m.next, phase: "open", limits: m.w.limits, unknown: unknown}
}

// decide is a verdict on one of the turn's held actions, from another process.
func (m *machine) decide(t *rapid.T) {
	call, approve := rapid.SampledFrom(calls).Draw(t, "call"), rapid.Bool().Draw(t, "approve")
	verdict := map[bool]string{true: "approved", false: "declined"}[approve]
	id := ""
	for _, r := range m.w.rows() {
		if r.Turn == m.turn && r.ToolCallID == call {
			id = r.ID
		}
	}
	_, err := m.w.ledger.Decide(ctx, admission.Verdict{Action: id, Approve: approve, By: admission.Actor{ID: fmt.Sprint("somebody ", len(m.w.ids), m.w.ids["op_"]), Operator: true}}, resultBlock)
	if want := m.model.decide(call, verdict); want != (err == nil) {
		t.Fatalf("deciding on %s: %v, want %v", call, err, want)
	}
}

// resolve lifts the quarantine.
func (m *machine) resolve(t *rapid.T) {
	rows, err := m.w.mem.Actions(ctx, store.ActionFilter{Unresolved: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if _, err := m.w.ledger.Resolve(ctx, admission.Resolution{Action: r.ID, Disposition: admission.AcceptUnknown, By: admission.Actor{ID: "o"}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	m.model.unknown = false
	for i := range m.model.rows {
		m.model.rows[i].resolved = m.model.rows[i].state == "indeterminate"
	}
}

// granted uses a grant twice: at most one use may count.
func (m *machine) granted(g *admission.Grant) {
	v, _ := m.grants.LoadOrStore(g.ActionID(), &tally{})
	t := v.(*tally)
	first, second := g.Start(), g.Start()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.granted++
	for _, ok := range []bool{first, second} {
		if ok {
			t.starts++
		}
	}
}

var operations = []method{
	{"admit", ""}, {"admit", ""}, {"dispatch", ""}, {"dispatch", ""}, {"complete", "succeeded"}, {"complete", "failed"}, {"complete", "invalid"},
	{"report_unknown", ""}, {"cancel", ""}, {"abandon", ""}, {"drain", ""}, {"close", ""},
}

var calls = []string{"c1", "c2", "c3", "c4", "c5", "c6"}

func drawOp(t *rapid.T, faults bool) op {
	o := op{method: rapid.SampledFrom(operations).Draw(t, "method"), call: rapid.SampledFrom(calls).Draw(t, "call")}
	if (o.name == "drain" || o.name == "close") && rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		o.method = method{"dispatch", ""} // an invocation that lives longer sees more
	}
	switch o.name {
	case "admit":
		o.variant = rapid.SampledFrom([]string{"", "", "", "", "", "arguments", "malformed", "identity", "affordance", "boundary", "target"}).Draw(t, "variant")
		o.none = rapid.IntRange(0, 3).Draw(t, "effect none") == 3
		o.explore = rapid.IntRange(0, 2).Draw(t, "explores") == 2
		o.hold = rapid.IntRange(0, 3).Draw(t, "needs an approval") == 3
	case "complete":
		switch o.kase {
		case "succeeded":
			o.outcome = rapid.SampledFrom([]string{"", "/d1", "/d2"}).Draw(t, "digest")
		case "failed":
			o.outcome = rapid.SampledFrom([]string{"tool_error", "timeout"}).Draw(t, "failure")
		}
	case "report_unknown", "cancel", "abandon":
		o.outcome = rapid.SampledFrom([]string{"tool_error", "timeout"}).Draw(t, "reason")
	}
	if faults {
		o.fault = rapid.SampledFrom([]faulty{sound, sound, sound, sound, sound, sound, refused, lostAnswer, lostNothing, blindWritten, blindNothing}).Draw(t, "fault")
		o.deaf = rapid.IntRange(0, 7).Draw(t, "deaf") == 7
	}
	return o
}

// one runs an operation alone. A refusal must leave the store as it was, unless its answer was lost on the way.
func (m *machine) one(t *rapid.T) {
	o := drawOp(t, true)
	m.w.st.set(o.fault)
	m.w.st.deaf.Store(o.deaf)
	before, n := m.w.everything(), m.w.st.writes.Load()
	got := run(m.w, m.port, o, m.granted)
	m.w.st.set(sound)
	m.w.st.deaf.Store(false)
	was := m.model.clone()
	if want := m.model.step(o); got != want {
		t.Fatalf("%s: %+v, want %+v", o, got, want)
	}
	wrote := m.w.st.writes.Load() - n
	if !got.ok && o.fault != blindWritten && o.name != "dispatch" && (wrote != 0 || m.w.everything() != before) {
		t.Fatalf("%s was refused (%s) and has written", o, got.code)
	}
	if wrote > 1 && (wrote > 2 || o.name != "dispatch" || was.find(o.call).state != "held") {
		t.Fatalf("%s has written %d times", o, wrote)
	}
	if got.ok && wrote == 0 && o.name != "drain" && !slices.EqualFunc(was.rows, m.model.rows, func(a, b mrow) bool { return a.call == b.call && a.state == b.state }) {
		t.Fatalf("%s was accepted without a write", o)
	}
}

// race runs operations at the same time. Some order of them, one after the other, must explain all answers and what
// the store holds then.
func (m *machine) race(t *rapid.T) {
	k := rapid.IntRange(2, 4).Draw(t, "callers")
	ops := make([]op, k)
	for i := range ops {
		ops[i] = drawOp(t, false)
	}
	if rapid.Bool().Draw(t, "all on one") {
		for i := range ops {
			ops[i].call = ops[0].call
		}
	}
	got := make([]answer, k)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range ops {
		wg.Add(1)
		go func() {
			defer wg.Done()
			<-begin
			got[i] = run(m.w, m.port, ops[i], m.granted)
		}()
	}
	close(begin)
	wg.Wait()
	var fits *model
	permutations(k, func(order []int) bool {
		try := m.model.clone()
		for _, i := range order {
			if try.step(ops[i]) != got[i] {
				return true
			}
		}
		if try.same(m.w, m.turn) != nil {
			return true
		}
		fits = try
		return false
	})
	if fits == nil {
		var b strings.Builder
		for i := range ops {
			fmt.Fprintf(&b, "\n  %s: %+v", ops[i], got[i])
		}
		t.Fatalf("no order explains%s\nafter %+v\nwith the store at %+v", b.String(), m.model.rows, m.w.rows())
	}
	m.model = fits
	m.port.Cancel(ctx, "act_none", "", nil) // whether some order left the port behind, or not: it reads back
	m.model.heal(op{})
}

func permutations(n int, visit func([]int) bool) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var rec func(int) bool
	rec = func(k int) bool {
		if k == n {
			return visit(order)
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			if !rec(k + 1) {
				return false
			}
			order[k], order[i] = order[i], order[k]
		}
		return true
	}
	rec(0)
}

// restart is a process that dies and one that takes its place: the old port is gone, the rules are applied, once, and
// a new turn begins under a new lease.
func (m *machine) restart(t *rapid.T) {
	turn := m.w.theTurn(m.turn)
	if rapid.IntRange(0, 3).Draw(t, "the first try fails") == 0 {
		k := rapid.SampledFrom([]faulty{refused, lostNothing, blindNothing, blindWritten}).Draw(t, "fault")
		m.w.st.set(k)
		if _, err := m.w.recover(turn); err == nil && turn.State == "running" {
			t.Fatalf("recovery under fault %d succeeded", k)
		}
		m.w.st.set(sound)
	}
	if _, err := m.w.recover(turn); err != nil {
		t.Fatalf("recovery: %v", err)
	}
	n := m.w.st.writes.Load()
	if rec, err := m.w.recover(turn); err != nil || len(rec.Actions) != 0 || m.w.st.writes.Load() != n {
		t.Fatalf("a second recovery: %+v %v, %d writes", rec, err, m.w.st.writes.Load()-n)
	}
	m.model.settleAll("restart")()
	m.old[m.turn] = m.model
	m.w.takeOver()
	m.begin()
}

func (m *machine) takeOver(*rapid.T) {
	m.w.takeOver()
	m.model.lost = true
}

// holds are the invariants, after every step.
func (m *machine) holds(t *rapid.T) {
	if err := m.model.same(m.w, m.turn); err != nil {
		t.Fatal(err)
	}
	for turn, old := range m.old {
		if err := old.same(m.w, turn); err != nil {
			t.Fatalf("turn %s, which is over: %v", turn, err)
		}
	}
	for _, r := range m.w.rows() {
		if was, ok := m.settled[r.ID]; ok && was != r.State {
			t.Fatalf("%s was %s and is %s", r.ID, was, r.State)
		}
		if r.State.Settled() {
			m.settled[r.ID] = r.State
		}
	}
	m.grants.Range(func(id, v any) bool {
		if c := v.(*tally); c.granted > 1 || c.starts > 1 {
			t.Fatalf("%s was granted %d times and started %d times", id, c.granted, c.starts)
		}
		return true
	})
}

func TestLedgerAgainstItsModel(t *testing.T) {
	n := arrowsAsFunction(t)
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 6).Draw(t, "total")
		m := newMachine(n, limits{Total: total, Concurrent: rapid.IntRange(1, total).Draw(t, "concurrent")})
		m.holds(t)
		rare := func(what string, fn func(*rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, what) > 0 {
					m.one(t)
					return
				}
				fn(t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"one": m.one, "another": m.one, "race": m.race, "restart": rare("restart", m.restart), "take over": rare("take over", m.takeOver),
			"decide": m.decide, "resolve": rare("resolve", m.resolve), "": m.holds,
		})
	})
}
