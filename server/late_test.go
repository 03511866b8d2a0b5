package server

import (
	"testing"
	"time"

	"writ/store"
)

func TestLateReport(t *testing.T) {
	f := newFixture(t)
	h, other := f.open("p1"), f.open("p2")
	id := h.dispatched("a")
	own := func(m map[string]any) { m["tool_affordance_address"] = affordanceF + "-of-p2" }
	done := other.admit("a", own, with("target_addresses", []string{target2}))["action_instance_id"].(string)
	_ = done
	h.close("failed")
	for what, change := range map[string]func(map[string]any){
		"a status that is none":   with("status", "unknown"),
		"another participant":     with("participant_address", "participant.behavior.p2"),
		"another contract":        with("action_contract_address", contractD),
		"another observation":     with("observation_point", "inv_other"),
		"a missing field":         without("episode_id"),
		"evidence of nobody":      with("evidence_refs", []string{"evidence.other"}),
		"evidence that is vetoed": with("evidence_refs", []string{"evidence.secret"}),
	} {
		if got := h.complete(id, "succeeded", change); said(got) != "invocation_closed" || got["late_report"] != nil {
			t.Errorf("%s: %v", what, got)
		}
	}
	other.close("succeeded")
	if got := other.complete(id, "succeeded"); got["late_report"] != nil {
		t.Errorf("through another invocation: %v", got)
	}
	if got := other.complete(done, "succeeded"); got["late_report"] != nil {
		t.Errorf("of what was withheld: %v", got)
	}
	evidence := with("evidence_refs", []string{"evidence.page"})
	for range 2 { // the same again is kept too
		if got := h.complete(id, "succeeded", evidence); said(got) != "invocation_closed" || got["late_report"] != true {
			t.Errorf("%v", got)
		}
	}
	if got := h.complete(id, "failed"); got["late_report"] != nil {
		t.Errorf("another one: %v", got)
	}
	op := f.expect(200, asking{path: "/v1/operations/" + id, token: h.token})
	about, _ := op["about"].([]any)
	if op["state"] != "indeterminate" || len(about) != 1 {
		t.Fatalf("%v", op)
	}
	report := about[0].(map[string]any)
	if report["kind"] != store.OperationReport || report["actor"] != "local:1" || report["detail"].(map[string]any)["status"] != "succeeded" {
		t.Errorf("%v", report)
	}
	f.expect(200, asking{path: "/v1/operations/" + report["operation_id"].(string), token: h.token})
	f.expect(404, asking{path: "/v1/operations/" + report["operation_id"].(string), token: other.token})
}

// TestReportedUnknownStays: an outcome after report_unknown, while the invocation is open, is a conflict; once it is over it
// is a late report.
func TestReportedUnknownStays(t *testing.T) {
	f := newFixture(t)
	h := f.open("p1")
	id := h.dispatched("a")
	h.report(id, "timeout")
	f.want("complete", h.complete(id, "succeeded"), "state_conflict")
	h.close("failed")
	if got := h.complete(id, "succeeded"); got["late_report"] != true {
		t.Errorf("%v", got)
	}
}

// TestKeyed: what a harness says as a digest is kept as a keyed digest of it.
func TestKeyed(t *testing.T) {
	f := newFixture(t)
	h := f.open("p1")
	const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	id := h.admit("a", with("argument_digest", digest))["action_instance_id"].(string)
	f.want("equal", h.admit("a", with("argument_digest", digest)), "yes")
	f.want("other arguments", h.admit("a", with("argument_digest", digest+"x")), "request_conflict")
	f.want("too long", h.admit("b", with("argument_digest", string(make([]byte, 257)))), "request_invalid")
	h.dispatch(id)
	body := map[string]any{"action_instance_id": id, "result": h.result(id, "succeeded"), "result_digest": digest}
	h.settles("complete", h.post("complete", body))
	h.settles("again", h.post("complete", body))
	body["result_digest"] = "other"
	f.want("another result", h.post("complete", body), "state_conflict")
	row, err := f.store.Action(t.Context(), id)
	if err != nil || row.ArgumentDigest == "" || row.ArgumentDigest == digest || row.ResultDigest == "" || row.ResultDigest == digest {
		t.Errorf("%+v %v", row, err)
	}
}

func TestReady(t *testing.T) {
	f := newFixture(t)
	ask := func() map[string]any { t.Helper(); return f.expect(200, asking{path: "/readyz", noToken: true}) }
	if got := ask(); got["ready"] != true || got["unresolved_unknown"] != 0.0 || got["oldest_dispatched_at"] != nil {
		t.Errorf("%v", got)
	}
	h := f.open("p1")
	before := time.Now()
	id := h.dispatched("a")
	if got := ask(); got["open_invocations"] != 1.0 || got["oldest_dispatched_at"] == nil {
		t.Errorf("%v", got)
	} else if at, err := time.Parse(time.RFC3339Nano, got["oldest_dispatched_at"].(string)); err != nil || at.Before(before.Add(-time.Second)) {
		t.Errorf("%v %v", got, err)
	}
	h.report(id, "timeout")
	if got := ask(); got["ready"] != true || got["unresolved_unknown"] != 1.0 || got["oldest_dispatched_at"] != nil {
		t.Errorf("%v", got)
	}
	f.expect(200, asking{path: "/healthz", noToken: true})
}
