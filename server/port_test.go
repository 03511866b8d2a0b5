package server

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// broughtTo brings an action to each of the states in which the port can find it.
var broughtTo = []struct {
	name  string
	bring func(h *handle) string
}{
	{"none", func(*handle) string { return "act_nobody" }},
	{"admitted", func(h *handle) string { return h.admitted(newKey()) }},
	{"dispatched", func(h *handle) string { return h.dispatched(newKey()) }},
	{"succeeded", func(h *handle) string { id := h.dispatched(newKey()); h.complete(id, "succeeded"); return id }},
	{"failed", func(h *handle) string {
		id := h.dispatched(newKey())
		h.complete(id, "failed", with("failure_class", "timeout"))
		return id
	}},
	{"withheld", func(h *handle) string { id := h.admitted(newKey()); h.cancel(id); return id }},
	{"indeterminate", func(h *handle) string { id := h.dispatched(newKey()); h.report(id, "timeout"); return id }},
}

var methods = []struct {
	name string
	call func(h *handle, id string) map[string]any
}{
	{"dispatch", func(h *handle, id string) map[string]any { return h.dispatch(id) }},
	{"complete", func(h *handle, id string) map[string]any { return h.complete(id, "succeeded") }},
	{"fail", func(h *handle, id string) map[string]any {
		return h.complete(id, "failed", with("failure_class", "timeout"))
	}},
	{"invalid", func(h *handle, id string) map[string]any { return h.complete(id, "unknown") }},
	{"report_unknown", func(h *handle, id string) map[string]any { return h.report(id, "timeout") }},
	{"cancel", func(h *handle, id string) map[string]any { return h.cancel(id) }},
}

// TestEveryMethodInEveryState is the table of docs/ledger.md, over HTTP.
func TestEveryMethodInEveryState(t *testing.T) {
	const s, o, u = "state_conflict", "outcome_invalid", "action_unknown"
	want := map[string][]string{ // dispatch, complete, fail, invalid, report_unknown, cancel
		"none":          {u, u, u, u, u, u},
		"admitted":      {"yes", s, s, s, s, "yes"},
		"dispatched":    {s, "yes", "yes", o, "yes", s},
		"succeeded":     {s, "yes", s, o, s, s},
		"failed":        {s, s, "yes", o, s, s},
		"withheld":      {s, s, s, s, s, "yes"},
		"indeterminate": {s, s, s, s, "yes", s},
	}
	for _, st := range broughtTo {
		for i, m := range methods {
			f := newFixture(t)
			h := f.open("p1")
			id := st.bring(h)
			f.want(m.name+" of "+st.name, m.call(h, id), want[st.name][i])
			f.want("admit after "+m.name+" of "+st.name, h.admit("next", with("target_addresses", []string{target1})), quarantinedAfter(st.name, m.name))
		}
	}
}

// quarantinedAfter is what a new action on the same target gets.
func quarantinedAfter(state, method string) string {
	if state == "indeterminate" || state == "dispatched" && method == "report_unknown" {
		return "target_quarantined"
	}
	return "yes"
}

// TestEveryMethodInEveryPhase: a port over HTTP is open from its first answer on, so there is no inactive one.
func TestEveryMethodInEveryPhase(t *testing.T) {
	const closed = "invocation_closed"
	t.Run("draining", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			h := f.open("p1", map[string]any{"lease_seconds": 10})
			waits, admitted, d1, d2 := h.dispatched("waits"), h.admitted("admitted"), h.dispatched("d1"), h.dispatched("d2")
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := h.rows(); got != "running cancelled running running" {
				t.Errorf("after the lease: %s", got)
			}
			phase := f.expect(200, asking{path: "/v1/invocations/" + h.id, token: h.token})["phase"]
			if phase != PhaseDraining {
				t.Errorf("phase %v", phase)
			}
			f.want("admit", h.admit("late"), closed)
			f.want("equal admit", h.admit("waits"), closed)
			f.want("dispatch", h.dispatch(admitted), closed)
			f.want("renew", h.post("renew", nil), closed)
			f.want("cancel of withheld", h.cancel(admitted), "state_conflict") // withheld, for another reason
			f.want("complete", h.complete(d1, "succeeded"), "yes")
			f.want("report_unknown", h.report(d2, "timeout"), "yes")
			f.want("complete invalid", h.complete(waits, "unknown"), "outcome_invalid")
			f.want("cancel of dispatched", h.cancel(waits), "state_conflict")
		})
	})
	t.Run("closed", func(t *testing.T) {
		f := newFixture(t)
		h := f.open("p1")
		ids := map[string]string{}
		for _, st := range broughtTo {
			ids[st.name] = st.bring(h)
		}
		h.close("succeeded")
		f.want("admit", h.admit("late"), closed)
		f.want("equal admit", h.admit("next"), closed)
		f.want("renew", h.post("renew", nil), closed)
		for name, id := range ids {
			for _, m := range methods {
				f.want(m.name+" of "+name, m.call(h, id), closed)
			}
		}
	})
}

// settles is a failure of the test when the answer is not accepted.
func (h *handle) settles(what string, answer map[string]any) { h.f.want(what, answer, "yes") }

// TestCases are the cases of the port's specification that have a meaning over HTTP, by their numbers. What they leave out
// happens inside the process (an attached but inactive port, the enclosing operation's commit) or needs a failing store,
// and has its test in package admission.
func TestCases(t *testing.T) {
	refusal := func(participant, want string, change ...func(map[string]any)) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			h := f.open(participant)
			f.want("admit", h.admit("a", change...), want)
			if rows := h.rows(); rows != "" {
				t.Errorf("a refusal has left %s", rows)
			}
			f.want("the next", f.open("p1").admit("a"), "yes")
		}
	}
	completes := func(want string, status string, change ...func(map[string]any)) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			h := f.open("p1")
			id := h.dispatched("a")
			f.want("complete", h.complete(id, status, change...), want)
			if want != "yes" {
				if rows := h.rows(); rows != "running" {
					t.Errorf("it is %s", rows)
				}
				h.settles("corrected", h.complete(id, "succeeded"))
			}
		}
	}
	const mismatch, invalid = "identity_mismatch", "outcome_invalid"
	cases := []struct {
		id   string
		what string
		run  func(*testing.T, *fixture)
	}{
		{"T03", "the first admit of an open invocation has ordinal 0", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			h.admitted("a")
			if op := f.action(h, 0); op["admission_ordinal"] != 0.0 {
				t.Errorf("%v", op)
			}
		}},
		{"T04", "admit after close", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			h.close("succeeded")
			f.want("admit", h.admit("a"), "invocation_closed")
		}},
		{"T09", "another participant", refusal("p1", mismatch, with("participant_address", "participant.behavior.p2"))},
		{"T10", "another episode", refusal("p1", mismatch, with("episode_id", "conv_other"))},
		{"T11", "another implementation", refusal("p1", mismatch, with("participant_implementation_ref", "impl-b@1.0.0"))},
		{"T12", "a sibling's invocation", func(t *testing.T, f *fixture) {
			h, sibling := f.open("p1"), f.open("p1")
			f.want("admit", h.admit("a", with("invocation_action_instance_id", sibling.id)), mismatch)
		}},
		{"T13", "another scope", refusal("p1", mismatch, with("execution_scope_ref", "participant.autonomous-execution.other"))},
		{"T14", "another generation", refusal("p1", mismatch, with("execution_generation", 4))},
		{"T15", "an empty tool call id", refusal("p1", "request_invalid", with("tool_call_id", ""))},
		{"T17", "an affordance that is not compiled", refusal("p1", "affordance_unbound", with("tool_affordance_address", affordanceF+"-x"))},
		{"T18", "a contract that is not the affordance's", refusal("p1", "affordance_unbound", with("action_contract_address", contractD))},
		{"T19", "an affordance of another participant", refusal("p1", "affordance_unbound", with("tool_affordance_address", affordanceF+"-of-p2"))},
		{"T20", "two bindings", refusal("twice", "affordance_ambiguous")},
		{"T21", "a boundary of something else", refusal("p1", "boundary_unbound", with("observation_boundary_address", boundaryX))},
		{"T22", "a target outside", refusal("p1", "target_unbound", with("target_addresses", []string{target1, target3}))},
		{"T24", "no target", refusal("p1", "request_invalid", with("target_addresses", []string{}))},
		{"T24", "targets left out", refusal("p1", "request_invalid", without("target_addresses"))},
		{"T26", "a shared clock", refusal("clock", "temporal_binding_unsupported")},
		{"T27", "no offer", refusal("no-offer", "execution_binding_unavailable")},
		{"T28", "two offers", refusal("two-offers", "execution_binding_ambiguous")},
		{"T29", "an offer of another implementation", refusal("other-offer", "execution_binding_unavailable")},
		{"T30", "policy v3", refusal("v3", "policy_profile_unsupported")},
		{"T31", "a crossing policy", refusal("crossing", "crossing_policy_unsupported")},
		{"T32", "the same admit twice", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			if a, b := h.admitted("a"), h.admitted("a"); a != b {
				t.Errorf("%s and %s", a, b)
			}
			if rows := h.rows(); rows != "accepted" {
				t.Errorf("rows %s", rows)
			}
		}},
		{"T34", "the same id with another target list", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			id := h.admitted("a")
			f.want("admit", h.admit("a", with("target_addresses", []string{target1})), "request_conflict")
			h.settles("the first is dispatched", h.dispatch(id))
		}},
		{"T35", "the same id with the targets in another order", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			h.admitted("a")
			f.want("admit", h.admit("a", with("target_addresses", []string{target2, target1})), "request_conflict")
		}},
		{"T39", "the same id in another invocation", func(t *testing.T, f *fixture) {
			one, two := f.open("p1"), f.open("p1")
			if one.admitted("a") == two.admitted("a") {
				t.Error("they are one action")
			}
			if op := f.action(two, 0); op["admission_ordinal"] != 0.0 {
				t.Errorf("%v", op)
			}
		}},
		{"T40", "dispatch is durable when it answers", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			g := h.dispatch(h.admitted("a"))
			if g["accepted"] != true || g["idempotency_key"] == nil || g["start_within_seconds"] != 10.0 || g["outcome_due_at"] == nil || h.rows() != "running" {
				t.Errorf("%v, %s", g, h.rows())
			}
		}},
		{"T41", "dispatch twice", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			f.want("the second", h.dispatch(h.dispatched("a")), "state_conflict")
		}},
		{"T42", "dispatch after cancel", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			id := h.admitted("a")
			h.settles("cancel", h.cancel(id))
			f.want("dispatch", h.dispatch(id), "state_conflict")
		}},
		{"T43", "dispatch of a foreign id", func(t *testing.T, f *fixture) {
			foreign := f.open("p1").admitted("a")
			f.want("dispatch", f.open("p1").dispatch(foreign), "action_unknown")
		}},
		{"T47", "complete frees a slot", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			for i := range 4 {
				h.dispatched(fmt.Sprint(i))
			}
			f.want("the fifth", h.admit("4"), "concurrency_limit_reached")
			h.settles("complete", h.complete(f.action(h, 0)["operation_id"].(string), "succeeded"))
			f.want("again", h.admit("4"), "yes")
		}},
		{"T48", "failed with a class", completes("yes", "failed", with("failure_class", "timeout"))},
		{"T48", "failed without one, as in the article", completes("yes", "failed")},
		{"T49", "evidence that is withheld", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			id := h.dispatched("a")
			f.want("complete", h.complete(id, "succeeded", with("evidence_refs", []string{"evidence.secret"})), invalid)
			h.settles("report_unknown", h.report(id, "timeout"))
			if rows := h.rows(); rows != "indeterminate" {
				t.Errorf("it is %s", rows)
			}
		}},
		{"T50", "evidence that the boundary does not declare", completes(invalid, "succeeded", with("evidence_refs", []string{"evidence.other"}))},
		{"T50", "the same inside an effect", completes(invalid, "succeeded", with("effects", []any{map[string]any{"evidence_refs": []string{"evidence.other"}}}))},
		{"T50", "the same inside a precondition", completes(invalid, "succeeded", with("preconditions", []any{map[string]any{"evidence_refs": []string{"evidence.secret"}}}))},
		{"T50", "declared evidence in all places", completes("yes", "succeeded", with("evidence_refs", []string{"evidence.page"}),
			with("effects", []any{map[string]any{"ref": "effect.one", "status": "satisfied", "evidence_refs": []string{"evidence.page"}}}))},
		{"T52", "another observation point", completes(invalid, "succeeded", with("observation_point", "inv_other"))},
		{"T53", "status unknown", completes(invalid, "unknown")},
		{"T53", "status accepted", completes(invalid, "accepted")},
		{"T53", "status withheld", completes(invalid, "withheld")},
		{"T53", "no status", completes(invalid, "")},
		{"T54", "another participant", completes(invalid, "succeeded", with("participant_address", "participant.behavior.p2"))},
		{"T54", "another contract", completes(invalid, "succeeded", with("action_contract_address", contractD))},
		{"T54", "another episode", completes(invalid, "succeeded", with("episode_id", "conv_other"))},
		{"T54", "another action", completes(invalid, "succeeded", with("action_instance_id", "act_other"))},
		{"T54", "a mandatory field is missing", completes(invalid, "succeeded", without("observation_point"))},
		{"own", "a measurement twice", completes(invalid, "succeeded", with("resource_measurements", []any{map[string]any{"state_ref": "a"}, map[string]any{"state_ref": "a"}}))},
		{"own", "a sentence as a diagnostic", completes(invalid, "succeeded", with("diagnostics", []string{"it went wrong"}))},
		{"own", "everything that a result may have", completes("yes", "rejected", with("failure_class", "unsafe_withheld"), with("observations", []string{"content.page"}),
			with("resource_measurements", []any{map[string]any{"state_ref": "a", "quantity": 1.5}}), with("diagnostics", []string{"probe.slow"}))},
		{"T56", "complete while only admitted", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			f.want("complete", h.complete(h.admitted("a"), "succeeded"), "state_conflict")
		}},
		{"T57", "the same complete twice", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			id := h.dispatched("a")
			h.settles("first", h.complete(id, "partial_success"))
			h.settles("second", h.complete(id, "partial_success"))
			if op := f.action(h, 0); op["state"] != "failed" || op["status"] != "partial_success" || op["failure_class"] != "partial_success" {
				t.Errorf("%v", op)
			}
		}},
		{"T58", "another complete", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			id := h.dispatched("a")
			h.settles("first", h.complete(id, "succeeded"))
			f.want("second", h.complete(id, "failed"), "state_conflict")
			if rows := h.rows(); rows != "succeeded" {
				t.Errorf("it is %s", rows)
			}
		}},
		{"own", "report_unknown without a class", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			id := h.dispatched("a")
			f.want("report", h.report(id, ""), "request_invalid")
			f.want("report", h.report(id, "The socket broke."), "request_invalid")
		}},
		{"T63", "cancel twice", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			id := h.admitted("a")
			h.settles("first", h.cancel(id))
			h.settles("second", h.cancel(id))
		}},
		{"T66", "as many as there may be", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			for i := range 16 {
				h.settles("cancel", h.cancel(h.admitted(fmt.Sprint(i))))
			}
			f.want("one more", h.admit("16"), "action_limit_reached")
		}},
		{"T69", "report_unknown frees a slot", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			for i := range 3 {
				h.admit(fmt.Sprint(i), with("target_addresses", []string{target1}))
			}
			id := h.admit("3", with("target_addresses", []string{target2}))["action_instance_id"].(string)
			h.dispatch(id)
			f.want("the fifth", h.admit("4", with("target_addresses", []string{target1})), "concurrency_limit_reached")
			h.settles("report", h.report(id, "timeout"))
			f.want("again", h.admit("4", with("target_addresses", []string{target1})), "yes")
		}},
		{"T71", "close with one admitted and one dispatched", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			h.admitted("a")
			h.dispatched("b")
			out := h.close("succeeded")
			if out["phase"] != PhaseClosed || out["state"] != "succeeded" || h.rows() != "cancelled indeterminate" {
				t.Errorf("%v; %s", out, h.rows())
			}
		}},
		{"T73", "close with an outcome that is none", func(t *testing.T, f *fixture) {
			for _, body := range []any{nil, map[string]any{"status": "unknown"}, map[string]any{"status": "succeeded", "failure_class": "timeout"}, map[string]any{"status": "failed"}} {
				h := f.open("p1")
				h.settles("complete", h.complete(h.dispatched("a"), "succeeded"))
				if out := h.post("close", body); out["state"] != "failed" || h.rows() != "succeeded" {
					t.Errorf("%v: %v", body, out)
				}
				if kinds := f.history(h); kinds != "tool tool tool" {
					t.Errorf("%v: history %s", body, kinds)
				}
			}
		}},
		{"T72", "the history follows the order of admission, then the invocation", func(t *testing.T, f *fixture) {
			h := f.open("p1")
			var ids []string
			for i := range 3 {
				ids = append(ids, h.dispatched(fmt.Sprint(i)))
			}
			for _, i := range []int{2, 0, 1} {
				h.settles("complete", h.complete(ids[i], "succeeded"))
			}
			h.close("succeeded")
			if kinds := f.history(h); kinds != strings.Repeat("tool tool tool ", 3)+"invocation invocation invocation" {
				t.Errorf("history %s", kinds)
			}
		}},
		{"T85", "two participants at once", func(t *testing.T, f *fixture) {
			one, two := f.open("p1"), f.open("p2")
			own := func(m map[string]any) { m["tool_affordance_address"] = affordanceF + "-of-p2" }
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() { one.admit(fmt.Sprint(i)) })
				wg.Go(func() { two.admit(fmt.Sprint(i), own) })
			}
			wg.Wait()
			for _, h := range []*handle{one, two} {
				for i := range 4 {
					if op := f.action(h, i); op["admission_ordinal"] != float64(i) || op["participant_address"] != h.open["participant_address"] {
						t.Errorf("%v", op)
					}
				}
			}
		}},
	}
	for _, c := range cases {
		t.Run(c.id+" "+c.what, func(t *testing.T) { c.run(t, newFixture(t)) })
	}
}

// action is the i-th action of the invocation.
func (f *fixture) action(h *handle, i int) map[string]any {
	f.t.Helper()
	ops := f.expect(200, asking{path: "/v1/invocations/" + h.id, token: h.token})["operations"].([]any)
	if i >= len(ops) {
		f.t.Fatalf("there are only %d actions", len(ops))
	}
	return ops[i].(map[string]any)
}

// history is what the events of the episode are about, in order.
func (f *fixture) history(h *handle) string {
	events, err := f.store.History(f.t.Context(), h.open["episode_id"].(string), 0, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for _, e := range events {
		kind := "tool"
		if e.Action == h.id {
			kind = "invocation"
		}
		if strings.Contains(string(e.Body), "invocation_tool_context") != (kind == "tool") {
			f.t.Errorf("%s", e.Body)
		}
		out = append(out, kind)
	}
	return strings.Join(out, " ")
}

// TestRaces are T33, T81, T83 and T84: one winner, and no answer that the rows deny.
func TestRaces(t *testing.T) {
	f := newFixture(t)
	t.Run("T33 a hundred equal admits are one row", func(t *testing.T) {
		h := f.open("p1")
		ids := make([]string, 100)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() { ids[i] = h.admitted("a") })
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("%s and %s", ids[0], id)
			}
		}
		if rows := h.rows(); rows != "accepted" {
			t.Errorf("rows %s", rows)
		}
	})
	race := func(t *testing.T, prepare func(*handle, string) string, calls ...func(*handle, string) map[string]any) {
		for range 50 {
			g := newFixture(t)
			h := g.open("p1")
			id := prepare(h, "a")
			answers := make([]string, len(calls))
			var wg sync.WaitGroup
			for i, call := range calls {
				wg.Go(func() { answers[i] = said(call(h, id)) })
			}
			wg.Wait()
			if got := strings.Join(answers, " "); got != "yes state_conflict" && got != "state_conflict yes" {
				t.Fatalf("answers %s; rows %s", got, h.rows())
			}
		}
	}
	t.Run("T81 cancel and dispatch", func(t *testing.T) { race(t, (*handle).admitted, (*handle).cancel, (*handle).dispatch) })
	t.Run("T83 report_unknown and complete", func(t *testing.T) {
		race(t, (*handle).dispatched, func(h *handle, id string) map[string]any { return h.report(id, "timeout") },
			func(h *handle, id string) map[string]any { return h.complete(id, "succeeded") })
	})
	t.Run("T84 admit and close", func(t *testing.T) {
		for range 50 {
			h := f.open("p2")
			var wg sync.WaitGroup
			var answer map[string]any
			wg.Go(func() {
				answer = h.admit("a", with("tool_affordance_address", affordanceF+"-of-p2"))
			})
			wg.Go(func() { h.close("succeeded") })
			wg.Wait()
			want := map[string]string{"yes": "cancelled", "invocation_closed": ""}
			if rows, ok := want[said(answer)]; !ok || h.rows() != rows {
				t.Fatalf("%v; rows %s", answer, h.rows())
			}
		}
	})
}
