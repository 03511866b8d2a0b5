package admission_test

import (
	"fmt"
	"slices"
	"strings"

	"writ"
	"writ/admission"
)

// model is the reference: what a ledger of one invocation is, in a page. Its transitions are the table of
// docs/ledger.md; everything else is the order of checks and what a fault leaves behind.
type model struct {
	next
	phase   string // open, draining, closed
	rows    []mrow // in order of admission
	limits  limits
	lost    bool   // the lease is somebody else's
	stale   bool   // and the port has found out
	behind  bool   // a write's outcome is not known to the port
	closing string // a close whose answer got lost: "done" or "not done"
	unknown bool   // an earlier turn has left an unknown outcome on the target
}

// mrow is a row.
type mrow struct {
	call       string
	variant    string // of the request
	state      string
	outcome    string // failure class and digest
	effectNone bool
	resolved   bool
	unseen     bool   // declined elsewhere, and the port still takes it for held
	approval   string // of a row that was held: pending, approved, declined
}

// op is one call of a method. It names an action by its tool call id, so that the model needs no ids of the ledger.
type op struct {
	method
	call    string
	variant string // admit: what is special about the request
	outcome string // the rest: what tells two outcomes of one kind apart
	none    bool   // admit: the tool has no effect
	explore bool   // admit: the tool only explores
	hold    bool   // admit: the action needs an approval
	fault   faulty
	deaf    bool // rows cannot be read meanwhile
}

func (o op) String() string {
	return fmt.Sprintf("%s(%s %s%s) fault=%d deaf=%v", o.method, o.call, o.variant, o.outcome, o.fault, o.deaf)
}

type answer struct {
	ok   bool
	code writ.Code
}

var accepted = answer{ok: true}

func refusal(c writ.Code) answer { return answer{code: c} }

func (m *model) clone() *model {
	c := *m
	c.rows = slices.Clone(m.rows)
	return &c
}

func (m *model) find(call string) *mrow {
	for i := range m.rows {
		if m.rows[i].call == call {
			return &m.rows[i]
		}
	}
	return nil
}

func (m *model) running() int {
	n := 0
	for _, r := range m.rows {
		if r.state == "admitted" || r.state == "dispatched" {
			n++
		}
	}
	return n
}

// quarantined reports whether the target of every request has an unknown outcome.
func (m *model) quarantined() bool {
	return m.unknown || slices.ContainsFunc(m.rows, func(r mrow) bool { return r.state == "indeterminate" && !r.resolved })
}

// decide is an approver's verdict, which needs no port. It is decided once.
func (m *model) decide(call, verdict string) bool {
	row := m.find(call)
	if row == nil || row.state != "held" || row.approval != "pending" {
		return false
	}
	row.approval = verdict
	if verdict == "declined" {
		row.state, row.outcome, row.unseen = "withheld", "declined", true
	}
	return true
}

// step answers an operation and moves on.
func (m *model) step(o op) answer {
	switch o.name {
	case "admit":
		return m.admit(o)
	case "close":
		return m.close(o)
	case "drain":
		if m.phase == "open" {
			m.phase = "draining"
		}
		return accepted
	}
	if m.phase == "closed" || m.phase == "draining" && o.name == "dispatch" {
		return refusal(writ.CodeInvocationClosed)
	}
	if !m.heal(o) {
		return refusal(writ.CodeLedgerUnavailable)
	}
	row := m.find(o.call)
	if row == nil {
		return refusal(writ.CodeActionUnknown)
	}
	if o.name == "dispatch" && row.state == "held" {
		if a := m.release(o, row); !a.ok {
			return a
		}
	}
	return m.move(o, row)
}

// meet is how the port finds out that an action it takes for held has been declined: its write, or its look at the
// approval, tells.
func (m *model) meet(o op) answer {
	if o.name != "dispatch" {
		switch o.fault {
		case refused, lostNothing, blindNothing:
			m.behind = m.behind || o.fault == blindNothing
			return refusal(writ.CodeLedgerUnavailable)
		}
	}
	m.behind = true
	if o.name == "abandon" && !m.heal(o) { // it goes on to complete, which reads back first
		return refusal(writ.CodeLedgerUnavailable)
	}
	return refusal(writ.CodeStateConflict)
}

// release is held → admitted, at the dispatch of an approved action.
func (m *model) release(o op, row *mrow) answer {
	if row.approval != "approved" {
		return refusal(writ.CodeApprovalRequired)
	}
	if m.running() >= m.limits.Concurrent {
		return refusal(writ.CodeConcurrencyLimitReached)
	}
	if o.fault != refused && o.fault != lostNothing && o.fault != blindNothing && !m.lost && m.quarantined() {
		return refusal(writ.CodeTargetQuarantined)
	}
	return m.commit(o, true, func() { row.state = m.to("held", method{"approve", ""}, false) })
}

// move follows an arrow of the table, or says why there is none.
func (m *model) move(o op, row *mrow) answer {
	if row.unseen && (o.name == "cancel" || o.name == "abandon" || o.name == "dispatch") {
		return m.meet(o)
	}
	to := m.to(row.state, o.method, false)
	reached := o.name // what the method's own outcome is, for a repeat
	switch {
	case o.kase == "invalid":
		if row.state == "dispatched" || row.state == "succeeded" || row.state == "failed" {
			return refusal(writ.CodeOutcomeInvalid)
		}
		return refusal(writ.CodeStateConflict)
	case to == "":
		same := map[string][]string{"complete": {"succeeded", "failed"}, "report_unknown": {"indeterminate"}, "cancel": {"withheld"},
			"abandon": {"withheld", "failed"}}[reached]
		if slices.Contains(same, row.state) && (o.kase == "" || o.kase == row.state) && row.outcome == o.outcome {
			return accepted
		}
		return refusal(writ.CodeStateConflict)
	}
	return m.commit(o, o.name == "dispatch", func() { row.state, row.outcome = to, o.outcome })
}

func (m *model) admit(o op) answer {
	if o.variant == "malformed" {
		return refusal(writ.CodeRequestInvalid)
	}
	if m.phase != "open" {
		return refusal(writ.CodeInvocationClosed)
	}
	if !m.heal(o) {
		return refusal(writ.CodeLedgerUnavailable)
	}
	if row := m.find(o.call); row != nil {
		if row.variant != o.variant {
			return refusal(writ.CodeRequestConflict)
		}
		return accepted
	}
	if m.stale {
		return refusal(writ.CodeGenerationStale)
	}
	switch o.variant {
	case "identity":
		return refusal(writ.CodeIdentityMismatch)
	case "affordance":
		return refusal(writ.CodeAffordanceUnbound)
	case "boundary":
		return refusal(writ.CodeBoundaryUnbound)
	case "target":
		return refusal(writ.CodeTargetUnbound)
	}
	quarantined := m.quarantined() && !o.explore
	first := func(c writ.Code) answer { // 8a comes before what else refuses
		if quarantined {
			c = writ.CodeTargetQuarantined
		}
		return refusal(c)
	}
	if len(m.rows) >= m.limits.Total {
		return first(writ.CodeActionLimitReached)
	}
	if m.running() >= m.limits.Concurrent && !o.hold {
		return first(writ.CodeConcurrencyLimitReached)
	}
	nothing := o.fault == refused || o.fault == lostNothing || o.fault == blindNothing
	if quarantined && !nothing {
		m.stale = m.stale || m.lost
		return refusal(writ.CodeTargetQuarantined)
	}
	row := mrow{call: o.call, variant: o.variant, state: m.to(none, o.method, false), effectNone: o.none}
	if o.hold {
		row.state, row.approval = m.to(none, method{"admit", "approval"}, false), "pending"
	}
	return m.commit(o, true, func() { m.rows = append(m.rows, row) })
}

// commit is one write with the fault of the operation.
func (m *model) commit(o op, fenced bool, write func()) answer {
	switch o.fault {
	case refused, lostNothing:
		return refusal(writ.CodeLedgerUnavailable)
	case blindNothing:
		m.behind = true
		return refusal(writ.CodeLedgerUnavailable)
	}
	if fenced && m.lost {
		m.stale = true
		return refusal(writ.CodeGenerationStale)
	}
	write()
	if o.fault == blindWritten {
		m.behind = true
		return refusal(writ.CodeLedgerUnavailable)
	}
	return accepted
}

func (m *model) heal(o op) bool {
	if m.behind && o.deaf {
		return false
	}
	if m.behind {
		for i := range m.rows {
			m.rows[i].unseen = false
		}
	}
	m.behind = false
	return true
}

// close settles what is open and ends the turn. Its refusals are errors, without a code.
func (m *model) close(o op) answer {
	if m.phase == "closed" {
		return accepted
	}
	m.phase = "draining"
	if m.closing != "" && (o.fault == blindWritten || o.fault == blindNothing) {
		return refusal("")
	}
	if !m.heal(o) {
		return refusal("")
	}
	if m.closing == "done" {
		m.phase = "closed"
		return accepted
	}
	m.closing = ""
	a := m.commit(o, false, m.settleAll("close"))
	if !a.ok {
		m.behind = true
		m.closing = map[faulty]string{blindWritten: "done", blindNothing: "not done"}[o.fault]
		return refusal("")
	}
	m.phase = "closed"
	return accepted
}

func (m *model) settleAll(by string) func() {
	return func() {
		for i := range m.rows {
			if to := m.to(m.rows[i].state, method{by, ""}, m.rows[i].effectNone); to != "" {
				m.rows[i].state, m.rows[i].outcome = to, map[string]string{"close": "invocation_closed", "restart": "restart"}[by]
			}
		}
	}
}

// run is the same operation on the real port.
func run(w *world, p *admission.Port, o op, granted func(*admission.Grant)) answer {
	id := "act_none"
	if row, ok := p.Lookup(o.call); ok {
		id = row.ID
	}
	// An action that is only in the store is named by its row, as a harness would that has kept the id.
	if id == "act_none" {
		for _, r := range w.rows() {
			if r.Turn == p.Invocation().ID && r.ToolCallID == o.call {
				id = r.ID
			}
		}
	}
	ofReceipt := func(r admission.Receipt) answer { return answer{r.Accepted, r.Code} }
	switch o.name {
	case "admit":
		slot := admission.Slot{}
		if o.none {
			slot.Traits.Effect = writ.EffectNone
		}
		if o.explore {
			slot.Traits.Strategy = writ.Exploration
		}
		if o.hold {
			slot.Approval = &admission.Approval{Approver: admission.ByOwner}
		}
		d := p.Admit(ctx, variant(p, o), slot, callBlock)
		return answer{d.Admitted, d.Refusal}
	case "dispatch":
		g, r := p.Dispatch(ctx, id)
		if g != nil {
			granted(g)
		}
		return ofReceipt(r)
	case "complete":
		return ofReceipt(p.Complete(ctx, id, outcomeOf(o), resultBlock))
	case "report_unknown":
		return ofReceipt(p.ReportUnknown(ctx, id, o.outcome, resultBlock))
	case "cancel":
		return ofReceipt(p.Cancel(ctx, id, o.outcome, resultBlock))
	case "abandon":
		return ofReceipt(p.Abandon(ctx, id, o.outcome, resultBlock))
	case "drain":
		p.Drain()
		return accepted
	case "close":
		return answer{ok: p.Close(ctx, admission.Ending{}, w.end(p.Invocation().ID), resultBlock) == nil}
	}
	panic(o.name)
}

func variant(p *admission.Port, o op) admission.Request {
	r := request(p, o.call)
	switch o.variant {
	case "malformed":
		r.Targets = nil
	case "arguments":
		r.ArgumentDigest = "other"
	case "identity":
		r.Generation++
	case "affordance":
		r.Affordance += ".other"
	case "boundary":
		r.Boundary = boundaryB
	case "target":
		r.Targets = []string{"tool.a", "tool.b"}
	}
	return r
}

func outcomeOf(o op) admission.Outcome {
	switch o.kase {
	case "succeeded":
		return admission.Outcome{State: writ.Succeeded, ResultDigest: strings.TrimPrefix(o.outcome, "/")}
	case "failed":
		return admission.Outcome{State: writ.Failed, Failure: o.outcome}
	}
	return admission.Outcome{State: writ.Withheld}
}

// same compares the model with the rows of the turn in the store: every row, its state and outcome, in the order of
// admission from 0, with exactly one call block, and one result block when and only when it is settled.
func (m *model) same(w *world, turn string) error {
	var got []string
	blocks := map[string]int{}
	for _, b := range w.blocks() {
		blocks[b.Kind+":"+b.ActionID]++
	}
	for _, r := range w.rows() {
		if r.Turn != turn {
			continue
		}
		got = append(got, fmt.Sprintf("%d %s %s %s%s none=%v", r.Ordinal, r.ToolCallID, r.State, r.Failure, digestPart(r.ResultDigest), r.Effect == "none"))
		results := 0
		if r.State.Settled() {
			results = 1
		}
		if blocks["call:"+r.ID] != 1 || blocks["result:"+r.ID] != results {
			return fmt.Errorf("%s is %s and has %d call blocks and %d results", r.ID, r.State, blocks["call:"+r.ID], blocks["result:"+r.ID])
		}
	}
	var want []string
	for i, r := range m.rows {
		want = append(want, fmt.Sprintf("%d %s %s %s none=%v", i, r.call, r.state, r.outcome, r.effectNone))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("the ledger holds\n  %s\nand the model\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	return nil
}

func digestPart(s string) string {
	if s == "" {
		return ""
	}
	return "/" + s
}
