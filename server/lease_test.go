package server

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"writ"
	"writ/admission"
	"writ/store"
)

// bubble runs a test of time: the clock stands still until everything waits.
func bubble(t *testing.T, run func(*testing.T, *fixture), change ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) { run(t, newFixture(t, change...)) })
}

func (f *fixture) phase(h *handle) string {
	f.t.Helper()
	v := f.expect(200, asking{path: "/v1/invocations/" + h.id, token: h.token})
	return v["phase"].(string) + " " + v["state"].(string)
}

// pass lets time go by, and everything that is due be done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		h := f.open("p1")
		h.settles("complete", h.complete(h.dispatched("a"), "succeeded"))
		id := h.admitted("b")
		pass(DefaultLease - time.Second)
		if got := f.phase(h); got != "open running" {
			t.Errorf("a second before: %s", got)
		}
		pass(time.Second)
		if got := f.phase(h); got != "closed failed" {
			t.Errorf("after: %s", got)
		}
		if rows := h.rows(); rows != "succeeded cancelled" {
			t.Errorf("rows %s", rows)
		}
		if row, err := f.store.Action(t.Context(), id); err != nil || row.Failure != admission.FailureLeaseExpired {
			t.Errorf("%+v %v", row, err)
		}
		if kinds := f.history(h); kinds != "tool tool tool tool tool tool" {
			t.Errorf("history %s", kinds)
		}
		if len(f.s.live.byID) != 0 || f.s.live.byToken[startID] != 0 {
			t.Error("it leaks")
		}
	})
}

func TestOutcomeAfterTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		h := f.open("p1", map[string]any{"lease_seconds": 10})
		pass(8 * time.Second)
		a, b := h.dispatched("a"), h.dispatched("b")
		pass(30 * time.Second) // the tool may take 30 s, and its report 30 s more
		if got := f.phase(h); got != "draining running" {
			t.Errorf("%s", got)
		}
		h.settles("complete", h.complete(a, "succeeded"))
		synctest.Wait()
		if got := f.phase(h); got != "draining running" {
			t.Errorf("with one awaited: %s", got)
		}
		h.settles("complete", h.complete(b, "failed"))
		synctest.Wait()
		if got := f.phase(h); got != "closed failed" || h.rows() != "succeeded failed" {
			t.Errorf("%s; %s", got, h.rows())
		}
	})
}

func TestNobodyReports(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		h := f.open("p1", map[string]any{"lease_seconds": 10})
		id := h.dispatched("a")
		pass(59 * time.Second)
		if got := f.phase(h); got != "draining running" {
			t.Errorf("before the deadline: %s", got)
		}
		pass(time.Second)
		if got := f.phase(h); got != "closed failed" || h.rows() != "indeterminate" {
			t.Errorf("%s; %s", got, h.rows())
		}
		f.want("complete", h.complete(id, "succeeded"), "invocation_closed")
	})
}

func TestRenew(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		h := f.open("p1", map[string]any{"lease_seconds": 10})
		until := func(answer map[string]any) time.Duration {
			at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(answer["lease_expires_at"]))
			if err != nil {
				t.Fatalf("%v", answer)
			}
			return time.Until(at)
		}
		for range 5 {
			pass(9 * time.Second)
			if d := until(h.post("renew", map[string]any{"lease_seconds": 10})); d != 10*time.Second {
				t.Errorf("renewed for %s", d)
			}
			h.settles("cancel", h.cancel(h.admitted(newKey())))
		}
		if d := until(h.post("renew", map[string]any{"lease_seconds": 1})); d != 10*time.Second {
			t.Errorf("a renewal shortens it to %s", d)
		}
		if d := until(h.post("renew", nil)); d != DefaultLease {
			t.Errorf("renewed for %s", d)
		}
		pass(DefaultLease)
		f.want("renew", h.post("renew", nil), "invocation_closed")
		f.expect(400, asking{method: "POST", path: "/v1/invocations/" + h.id + "/renew", token: h.token, body: map[string]any{"lease_seconds": 3601}})
	})
}

func TestLifeEnds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		h := f.open("p1", map[string]any{"lease_seconds": 3600})
		for range 3 {
			pass(59 * time.Minute)
			h.post("renew", map[string]any{"lease_seconds": 3600})
		}
		if got := f.phase(h); got != "open running" {
			t.Errorf("%s", got)
		}
		pass(3 * time.Minute)
		if got := f.phase(h); got != "closed failed" {
			t.Errorf("after three hours: %s", got)
		}
		f.expect(200, asking{path: "/v1/invocations/" + h.id, token: h.token})
		pass(time.Hour) // the token is good for reading and reporting a while longer
		f.expect(401, asking{path: "/v1/invocations/" + h.id, token: h.token})
	}, func(c *Config) { c.Life, c.Late = 3*time.Hour, time.Hour })
}

// TestLeaseEndsWithoutStore: what could not be recorded is tried again, and meanwhile nothing more is admitted.
func TestLeaseEndsWithoutStore(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		h := f.open("p1", map[string]any{"lease_seconds": 10})
		h.admitted("a")
		f.gone.Store(true)
		pass(time.Minute)
		f.want("admit", h.admit("b"), "invocation_closed")
		if got := f.phase(h); got != "draining running" {
			t.Errorf("%s", got)
		}
		f.gone.Store(false)
		pass(retry)
		if got := f.phase(h); got != "closed failed" || h.rows() != "cancelled" {
			t.Errorf("%s; %s", got, h.rows())
		}
	})
}

// TestCloseWithoutStore: what the harness said of its invocation is what is recorded in the end.
func TestCloseWithoutStore(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		h := f.open("p1")
		f.gone.Store(true)
		f.expect(503, asking{method: "POST", path: "/v1/invocations/" + h.id + "/close", token: h.token, body: map[string]any{"status": "succeeded"}})
		f.gone.Store(false)
		pass(retry)
		if got := f.phase(h); got != "closed succeeded" {
			t.Errorf("%s", got)
		}
	})
}

func TestStop(t *testing.T) {
	f := newFixture(t)
	idle, settled, busy, waiting := f.open("p1"), f.open("p1"), f.open("p1"), f.open("p1")
	settled.settles("complete", settled.complete(settled.dispatched("a"), "succeeded"))
	id := busy.dispatched("a")
	waiting.admitted("a")
	f.s.Drain()
	if got := f.expect(503, openAs("p1", "")); got["code"] != FaultShuttingDown {
		t.Errorf("%v", got)
	}
	if got := f.expect(503, asking{path: "/readyz", noToken: true}); got["ready"] != false {
		t.Errorf("%v", got)
	}
	left, err := f.s.Close(context.Background())
	if err != nil || left != 2 {
		t.Errorf("%d left, %v", left, err)
	}
	for h, want := range map[*handle]string{idle: store.TurnFailed, settled: store.TurnFailed, busy: store.TurnRunning, waiting: store.TurnRunning} {
		if turn, err := f.store.Turn(t.Context(), h.id); err != nil || turn.State != want {
			t.Errorf("%+v %v, want %s", turn, err, want)
		}
	}
	// The next start settles what is left; a late outcome is then kept beside its action.
	next := f.restart()
	if got := busy.in(next).rows() + ", " + waiting.in(next).rows(); got != "indeterminate, cancelled" {
		t.Errorf("after the restart: %s", got)
	}
	if got := busy.in(next).complete(id, "succeeded"); said(got) != "invocation_closed" || got["late_report"] != true {
		t.Errorf("%v", got)
	}
}

// restart is what a process does that takes the store over: it settles what is open, and serves.
func (f *fixture) restart() *fixture {
	f.t.Helper()
	turns, err := f.store.OpenTurns(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, turn := range turns {
		if _, err := f.s.ledger.Recover(f.t.Context(), turn, nil); err != nil {
			f.t.Fatal(err)
		}
	}
	return newFixture(f.t, func(c *Config) { c.Store = f.store })
}

// in is the same invocation, asked of another server.
func (h *handle) in(f *fixture) *handle { return &handle{f, h.id, h.token, h.open} }

// An action whose outcome is overdue is given up while its invocation goes on; what is told of it later is kept beside it.
func TestOverdueOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		h := f.open("p1")
		id := h.dispatched("a")
		pass(30*time.Second + admission.DefaultGrace - time.Second)
		if rows := h.rows(); rows != "running" {
			t.Errorf("a second before: %s", rows)
		}
		pass(2 * time.Second)
		row, err := f.store.Action(t.Context(), id)
		if err != nil || row.State != writ.Indeterminate || row.Failure != admission.FailureTimeout || f.phase(h) != "open running" {
			t.Errorf("%+v %v %s", row, err, f.phase(h))
		}
		h.complete(id, "succeeded")
		ops, err := f.store.Operations(t.Context(), id)
		if err != nil || len(ops) != 1 || ops[0].Kind != store.OperationReport {
			t.Errorf("%+v %v", ops, err)
		}
	})
}
