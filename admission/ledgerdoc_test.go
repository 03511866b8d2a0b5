package admission_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"writ"
	"writ/admission"
	"writ/store"
)

// readTable returns the cells of the table of docs/ledger.md whose header begins with these cells.
func readTable(t testing.TB, header ...string) (head []string, rows [][]string) {
	t.Helper()
	doc, err := os.ReadFile("../docs/ledger.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(doc), "\n")
	start := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "| "+strings.Join(header, " | ")+" |") })
	if start < 0 {
		t.Fatalf("docs/ledger.md has no table %v", header)
	}
	split := func(l string) []string {
		cells := strings.Split(strings.Trim(l, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		return cells
	}
	for _, l := range lines[start+2:] {
		if !strings.HasPrefix(l, "|") {
			break
		}
		rows = append(rows, split(l))
		if len(rows[len(rows)-1]) != len(split(lines[start])) {
			t.Fatalf("docs/ledger.md: row %q has another width than its table", l)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("table %v is empty", header)
	}
	return split(lines[start]), rows
}

// method is a method with the case of it, as the tables write them: `complete` (failed).
type method struct{ name, kase string }

var methodCell = regexp.MustCompile("^`([a-z_]+)`(?: \\(([a-z ]+)\\))?$")

func parseMethod(t testing.TB, cell string) method {
	t.Helper()
	m := methodCell.FindStringSubmatch(cell)
	if m == nil {
		t.Fatalf("docs/ledger.md: %q is no method", cell)
	}
	return method{m[1], m[2]}
}

const none = "—"

type arrow struct {
	from, to string
	by       method
	write    string
	event    string
}

func readArrows(t testing.TB) []arrow {
	_, rows := readTable(t, "from", "to", "by", "who", "durable write", "event")
	var out []arrow
	for _, r := range rows {
		out = append(out, arrow{from: r[0], to: r[1], by: parseMethod(t, r[2]), write: r[4], event: strings.Trim(r[5], "`")})
	}
	return out
}

// next is the table as a function: where the method leads from the state, or "".
type next map[[2]string]string

func (m method) String() string { return strings.TrimSpace(m.name + " " + m.kase) }

func arrowsAsFunction(t testing.TB) next {
	n := next{}
	for _, a := range readArrows(t) {
		k := [2]string{a.from, a.by.String()}
		if n[k] != "" {
			t.Fatalf("docs/ledger.md: two arrows leave %s by %s", a.from, a.by)
		}
		n[k] = a.to
	}
	return n
}

// to follows the arrow of a method, for a tool with or without an effect.
func (n next) to(from string, m method, effectNone bool) string {
	if effectNone {
		if s := n[[2]string{from, method{m.name, "effect none"}.String()}]; s != "" {
			return s
		}
	}
	if s := n[[2]string{from, m.String()}]; s != "" {
		return s
	}
	if m.name == "admit" {
		return n[[2]string{from, m.name}]
	}
	return ""
}

const theReason = "tool_error"

// call runs one method on the action of call id "x" and says what it answered.
func call(w *world, p *admission.Port, m method, id string) (accepted bool, code writ.Code) {
	receipt := func(r admission.Receipt) (bool, writ.Code) { return r.Accepted, r.Code }
	outcome := func(o admission.Outcome) (bool, writ.Code) { return receipt(p.Complete(ctx, id, o, resultBlock)) }
	switch m {
	case method{"admit", "approval"}:
		d := p.Admit(ctx, request(p, "x"), admission.Slot{Approval: &admission.Approval{Approver: admission.ByOwner}}, callBlock)
		return d.Admitted && d.Held, d.Refusal
	case method{"approve", ""}: // the row is released by a dispatch; the second write of it fails, so that the first is seen alone
		decide(w, id, true)
		w.st.Before = func(b *store.Batch) error {
			if b.Actions[0].State == writ.Dispatched {
				return errStore
			}
			return nil
		}
		_, r := p.Dispatch(ctx, id)
		w.st.Before = nil
		return r.Code == writ.CodeLedgerUnavailable, r.Code
	case method{"decline", ""}:
		decide(w, id, false)
		return true, ""
	case method{"expire", ""}:
		w.pass(admission.DefaultApprovalTime)
		rows, err := w.ledger.Expire(ctx, store.ApprovalFilter{}, resultBlock)
		return len(rows) == 1 && err == nil, ""
	case method{"admit", "equal"}, method{"admit", ""}:
		d := p.Admit(ctx, request(p, "x"), admission.Slot{}, callBlock)
		return d.Admitted, d.Refusal
	case method{"admit", "other"}:
		r := request(p, "x")
		r.ArgumentDigest = "other"
		d := p.Admit(ctx, r, admission.Slot{}, callBlock)
		return d.Admitted, d.Refusal
	case method{"dispatch", ""}:
		g, r := p.Dispatch(ctx, id)
		if (g != nil) != r.Accepted {
			panic("a grant without an accepted dispatch, or the reverse")
		}
		return receipt(r)
	case method{"complete", "succeeded"}:
		return outcome(admission.Outcome{State: writ.Succeeded, ResultDigest: "d"})
	case method{"complete", "failed"}:
		return outcome(admission.Outcome{State: writ.Failed, Failure: theReason})
	case method{"complete", "invalid"}:
		return outcome(admission.Outcome{State: writ.Indeterminate})
	case method{"report_unknown", ""}:
		return receipt(p.ReportUnknown(ctx, id, theReason, resultBlock))
	case method{"cancel", ""}:
		return receipt(p.Cancel(ctx, id, theReason, resultBlock))
	case method{"abandon", ""}:
		return receipt(p.Abandon(ctx, id, theReason, resultBlock))
	}
	switch m.name {
	case "close":
		return p.Close(ctx, admission.Ending{}, nil, resultBlock) == nil, ""
	case "restart":
		_, err := w.recover(w.theTurn(p.Invocation().ID))
		return err == nil, ""
	}
	panic(fmt.Sprintf("the test does not know the method %q", m))
}

func decide(w *world, id string, approve bool) {
	if _, err := w.ledger.Decide(ctx, admission.Verdict{Action: id, Approve: approve, By: admission.Actor{ID: "o"}}, resultBlock); err != nil {
		panic(err)
	}
}

// reach drives a new action into the state by the arrows of the table.
func reach(w *world, p *admission.Port, state string, effectNone bool) (id string) {
	path := map[string][]method{
		none: {}, "held": {{"admit", "approval"}}, "admitted": {{"admit", ""}}, "dispatched": {{"admit", ""}, {"dispatch", ""}},
		"succeeded":     {{"admit", ""}, {"dispatch", ""}, {"complete", "succeeded"}},
		"failed":        {{"admit", ""}, {"dispatch", ""}, {"complete", "failed"}},
		"withheld":      {{"admit", ""}, {"cancel", ""}},
		"indeterminate": {{"admit", ""}, {"dispatch", ""}, {"report_unknown", ""}},
	}[state]
	id = "act_none"
	for _, m := range path {
		if m.name == "admit" {
			slot := admission.Slot{}
			if effectNone {
				slot.Traits.Effect = writ.EffectNone
			}
			if m.kase == "approval" {
				slot.Approval = &admission.Approval{Approver: admission.ByOwner}
			}
			id = p.Admit(ctx, request(p, "x"), slot, callBlock).ActionID
			continue
		}
		if ok, code := call(w, p, m, id); !ok {
			panic(fmt.Sprintf("reaching %s: %s: %s", state, m, code))
		}
	}
	return id
}

func newPort() (*world, *admission.Port) {
	w := newWorld(limits{Total: 8, Concurrent: 8})
	return w, w.open()
}

// Every (state, method) pair, on the real port: exactly the listed arrows happen, and everything else answers the code
// of the table and changes nothing.
func TestEveryStateAndMethodIsAsDocumented(t *testing.T) {
	head, rows := readTable(t, "state", "`admit` (equal)")
	arrows := arrowsAsFunction(t)
	seen := map[[2]string]bool{}
	states := map[string]bool{}
	for _, r := range rows {
		states[r[0]] = true
		for i, cell := range r[1:] {
			m, from := parseMethod(t, head[i+1]), r[0]
			t.Run(from+"/"+m.String(), func(t *testing.T) {
				want := arrows.to(from, m, false)
				if (want != "") != !strings.ContainsAny(cell, "=`") || want != "" && want != cell {
					t.Fatalf("the tables disagree: the arrow leads to %q, the cell says %q", want, cell)
				}
				w, p := newPort()
				id := reach(w, p, from, false)
				before, n := w.everything(), w.st.writes.Load()
				ok, code := call(w, p, m, id)
				after := w.rows()
				if want != "" {
					if !ok || len(after) != 1 || string(after[0].State) != want {
						t.Fatalf("accepted=%v code=%q rows=%+v, want the state %s", ok, code, after, want)
					}
					return
				}
				if ok != (cell == "=") || !ok && "`"+string(code)+"`" != cell {
					t.Errorf("accepted=%v code=%q, want %s", ok, code, cell)
				}
				if m.name != "restart" && m.name != "close" && (w.everything() != before || w.st.writes.Load() != n) {
					t.Errorf("the store has changed:\n%s\nwas\n%s", w.everything(), before)
				}
				if from != none && string(w.state(id)) != from {
					t.Errorf("the row is %s", w.state(id))
				}
			})
			if to := arrows.to(from, m, false); to != "" {
				seen[[2]string{from, m.String()}] = true
				if m.name == "admit" {
					seen[[2]string{from, "admit"}] = true
				}
			}
		}
	}
	for k := range arrows {
		if !seen[k] && !strings.Contains(k[1], "effect none") && slices.ContainsFunc(head, func(h string) bool { return strings.HasPrefix(h, "`"+k[1]) }) {
			t.Errorf("the second table lacks the arrow from %s by %s", k[0], k[1])
		}
	}
	for _, s := range writ.ActionStates() {
		if !states[string(s)] {
			t.Errorf("the second table lacks the state %s", s)
		}
	}
}

// Each arrow writes what its row says it does.
func TestEveryArrowWritesWhatItSays(t *testing.T) {
	events, err := os.ReadFile("../runtime/events.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range readArrows(t) {
		t.Run(a.from+"/"+a.by.String(), func(t *testing.T) {
			w, p := newPort()
			effectNone := a.by.kase == "effect none"
			id := reach(w, p, a.from, effectNone)
			turn := p.Invocation().ID
			var ok bool
			if a.by.name == "close" {
				ok = p.Close(ctx, admission.Ending{}, w.end(turn), resultBlock) == nil
			} else {
				ok, _ = call(w, p, a.by, id)
			}
			if !ok {
				t.Fatal("not accepted")
			}
			b := w.st.last
			if len(b.Actions) != 1 || string(b.Actions[0].State) != a.to || string(b.Actions[0].Expect) != strings.Trim(a.from, none) {
				t.Fatalf("it wrote %+v", b.Actions)
			}
			row := b.Actions[0].Action
			var kinds []string
			for _, bl := range b.Blocks {
				kinds = append(kinds, bl.Kind)
				if bl.ActionID != row.ID {
					t.Errorf("the %s block names the action %q", bl.Kind, bl.ActionID)
				}
			}
			for _, has := range []struct {
				words string
				is    bool
			}{
				{"fence", b.Fence != nil && b.Fence.Token == 1},
				{"call block", slices.Contains(kinds, "call")},
				{"approval", len(b.Approvals) > 0},
				{"history", len(b.History) > 0 && a.by.name != "decline"},
				{"result block", slices.Contains(kinds, "result")},
				{"`settled_at`", !row.SettledAt.IsZero()},
				{"failure class", row.Failure != "" && a.by.name != "close" && a.by.name != "restart"},
				{"end of the turn", w.theTurn(turn).State != store.TurnRunning},
			} {
				if strings.Contains(a.write, has.words) != has.is {
					t.Errorf("%q is documented: %v, and so: %v", has.words, !has.is, has.is)
				}
			}
			if a.event != none && !strings.Contains(string(events), `= "`+a.event+`"`) {
				t.Errorf("there is no event %s", a.event)
			}
			if row.State.Settled() == row.SettledAt.IsZero() || (row.State != writ.Admitted && row.State != writ.Held && row.State != writ.Withheld) == row.DispatchedAt.IsZero() {
				t.Errorf("the times of %s are %v and %v", row.State, row.DispatchedAt, row.SettledAt)
			}
		})
	}
}

// The phase of a port is looked at before anything else but the request's shape.
func TestEveryPhaseIsAsDocumented(t *testing.T) {
	_, rows := readTable(t, "phase", "`admit`, `dispatch`")
	if len(rows) != 4 {
		t.Fatalf("%d phases", len(rows))
	}
	groups := [][]method{
		{{"admit", "equal"}, {"admit", "other"}, {"dispatch", ""}},
		{{"complete", "succeeded"}, {"complete", "invalid"}, {"report_unknown", ""}, {"cancel", ""}, {"abandon", ""}},
	}
	for _, r := range rows {
		for g, ms := range groups {
			for _, m := range ms {
				t.Run(r[0]+"/"+m.String(), func(t *testing.T) {
					w := newWorld(limits{Total: 8, Concurrent: 8})
					p := w.turn()
					id := "act_none"
					if r[0] != "inactive" {
						p.Activate()
						id = reach(w, p, "dispatched", false)
					}
					switch r[0] {
					case "draining":
						p.Drain()
					case "closed":
						if err := p.Close(ctx, admission.Ending{}, nil, resultBlock); err != nil {
							t.Fatal(err)
						}
					}
					p.Activate() // a phase is never gone back to
					if r[0] == "inactive" {
						p = w.turn()
					}
					before := w.everything()
					_, code := call(w, p, m, id)
					if cell := strings.Trim(r[g+1], "`"); cell != "as above" && string(code) != cell {
						t.Errorf("%q, want %s", code, cell)
					} else if cell == "as above" && (code == writ.CodeInvocationClosed || code == writ.CodeInvocationInactive) {
						t.Errorf("%q", code)
					} else if cell != "as above" && w.everything() != before {
						t.Error("the store has changed")
					}
				})
			}
		}
	}
}
