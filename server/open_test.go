package server

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"writ/store"
)

func TestOpen(t *testing.T) {
	f := newFixture(t)
	h := f.open("p1", map[string]any{"lease_seconds": 60, "observation_point": "clock.segment-7"})
	for name, want := range map[string]any{"participant_address": "participant.behavior.p1", "participant_implementation_ref": implA, "phase": "open", "state": "running",
		"execution_scope_ref": "participant.autonomous-execution.main", "execution_generation": 0.0, "observation_point": "clock.segment-7",
		"invocation_action_contract_address": "participant.action-contract.turn"} {
		if h.open[name] != want {
			t.Errorf("%s: %v, want %v", name, h.open[name], want)
		}
	}
	lease, _ := time.Parse(time.RFC3339Nano, h.open["lease_expires_at"].(string))
	if d := time.Until(lease); d < 50*time.Second || d > 60*time.Second {
		t.Errorf("lease %s", d)
	}
	if limits := fmt.Sprint(h.open["limits"]); limits != "map[max_concurrent_tool_actions_per_invocation:4 max_tool_actions_per_invocation:16]" {
		t.Errorf("%s", limits)
	}
	if n := len(h.open["bindings"].([]any)); n != 1 {
		t.Errorf("%d bindings", n)
	}
	turn, err := f.store.Turn(t.Context(), h.id)
	if err != nil || turn.Kind != store.KindHTTP || turn.Owner != "local:1" || turn.Agent != "p1" {
		t.Errorf("%+v %v", turn, err)
	}
	if _, err := f.store.Document(t.Context(), turn.ConfigDigest); err != nil {
		t.Errorf("what it was bound to is not kept: %v", err)
	}
}

func TestOpenIsIdempotent(t *testing.T) {
	f := newFixture(t)
	a := openAs("p1", "")
	a.body = map[string]any{"lease_seconds": 60}
	first := f.expect(200, a)
	second := f.expect(200, a)
	for _, name := range []string{"invocation_action_instance_id", "invocation_token", "episode_id", "lease_expires_at"} {
		if first[name] != second[name] {
			t.Errorf("%s: %v and %v", name, first[name], second[name])
		}
	}
	if first["replay"] != nil || second["replay"] != true {
		t.Errorf("replay %v, %v", first["replay"], second["replay"])
	}
	for what, change := range map[string]func(*asking){
		"another lease":       func(a *asking) { a.body = map[string]any{"lease_seconds": 61} },
		"without a body":      func(a *asking) { a.body = nil },
		"another participant": func(a *asking) { a.path = "/v1/participants/p2/invocations" },
	} {
		b := a
		change(&b)
		if got := f.expect(409, b); got["code"] != FaultKey {
			t.Errorf("%s: %v", what, got)
		}
	}
	_, token := f.token(TokenRequest{Participant: "p1"})
	b := a
	b.token = token // the key is the token's: another may use the same
	if got := f.expect(200, b); got["replay"] != nil || got["invocation_action_instance_id"] == first["invocation_action_instance_id"] {
		t.Errorf("%v", got)
	}
	h := f.handle(first)
	h.close("succeeded")
	if again := f.expect(200, a); again["phase"] != PhaseClosed || again["invocation_token"] != h.token || again["participant_address"] != "participant.behavior.p1" ||
		again["observation_point"] != h.id || again["execution_scope_ref"] != first["execution_scope_ref"] {
		t.Errorf("after close: %v", again)
	}
}

func TestOpenAtOnce(t *testing.T) {
	f := newFixture(t)
	a := openAs("p1", "")
	ids := make([]any, 50)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() { ids[i] = f.expect(200, a)["invocation_action_instance_id"] })
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("%v and %v", id, ids[0])
		}
	}
	if n := len(f.tokens()); n != 1 {
		t.Errorf("%d tokens", n)
	}
	if f.s.live.byToken[startID] != 1 || len(f.s.live.byID) != 1 {
		t.Errorf("%d open, counted %d", len(f.s.live.byID), f.s.live.byToken[startID])
	}
}

func TestEpisodes(t *testing.T) {
	f := newFixture(t)
	h := f.open("p1")
	episode := map[string]any{"episode_id": h.open["episode_id"]}
	on := func(participant, token string) asking {
		a := openAs(participant, token)
		a.body = episode
		return a
	}
	if got := f.expect(409, on("p1", "")); got["code"] != FaultBusy {
		t.Errorf("%v", got)
	}
	h.close("succeeded")
	f.expect(404, on("p2", "")) // it is p1's
	other := Desk{Store: f.store, Tenant: "local", Owner: "local:2", Now: time.Now}
	_, token, err := other.Create(t.Context(), TokenRequest{Participant: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	f.expect(404, on("p1", token)) // and somebody else's
	next := f.handle(f.expect(200, on("p1", "")))
	if next.open["episode_id"] != h.open["episode_id"] || next.id == h.id {
		t.Errorf("%v", next.open)
	}
	// The old one's rows are the old one's, and its port stays closed.
	f.want("admit of the old one", h.admit("a"), "invocation_closed")
	next.admitted("a")
}

func TestManyOpen(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Open = 3 })
	var open []*handle
	for range 3 {
		open = append(open, f.open("p1"))
	}
	if got := f.expect(429, openAs("p1", "")); got["code"] != FaultTooMany {
		t.Errorf("%v", got)
	}
	_, token := f.token(TokenRequest{Participant: "p1"})
	f.expect(200, openAs("p1", token)) // each token has its own
	open[0].close("succeeded")
	open[0].close("succeeded") // twice counts once
	f.expect(200, openAs("p1", ""))
	f.expect(429, openAs("p1", ""))
}

// TestOpenWithoutStore: what could not be written opens nothing and takes no place.
func TestOpenWithoutStore(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Open = 1 })
	f.gone.Store(true)
	a := openAs("p1", "")
	if got := f.expect(503, a); got["code"] != FaultUnavailable || strings.Contains(fmt.Sprint(got), "disk") {
		t.Errorf("%v", got)
	}
	f.gone.Store(false)
	h := f.handle(f.expect(200, a))
	f.gone.Store(true)
	f.want("admit", h.admit("a"), "ledger_unavailable")
	f.expect(503, asking{method: "POST", path: "/v1/invocations/" + h.id + "/close", token: h.token, body: map[string]any{"status": "succeeded"}})
	f.gone.Store(false)
	if out := h.close("succeeded"); out["state"] != "succeeded" {
		t.Errorf("%v", out)
	}
	// An answer that got lost after the commit is found again under the key.
	lost := true
	f.store.After = func(*store.Batch) error {
		if lost {
			lost = false
			return fmt.Errorf("%w", store.ErrUnknown)
		}
		return nil
	}
	b := openAs("p1", "")
	if first, second := f.expect(200, b), f.expect(200, b); first["invocation_token"] != second["invocation_token"] {
		t.Errorf("%v and %v", first, second)
	}
}
