package server

import (
	"fmt"
	"net/url"
	"testing"
	"time"
)

// list reads pages until the end, and returns how many operations were on each.
func (f *fixture) list(token, query string) (ids []string, pages []int) {
	f.t.Helper()
	for after := 0.0; ; {
		path := fmt.Sprintf("/v1/operations?after=%d&%s", int64(after), query)
		out := f.expect(200, asking{path: path, token: token})
		ops := out["operations"].([]any)
		pages = append(pages, len(ops))
		for _, op := range ops {
			ids = append(ids, op.(map[string]any)["operation_id"].(string))
		}
		next, more := out["next"].(float64)
		if !more {
			return ids, pages
		}
		after = next
	}
}

func TestListing(t *testing.T) {
	f := newFixture(t)
	one, two := f.open("p1"), f.open("p1")
	third := f.open("p2")
	own := func(m map[string]any) { m["tool_affordance_address"] = affordanceF + "-of-p2" }
	var want []string
	for i := range 3 {
		id := one.admitted(fmt.Sprint(i))
		one.cancel(id)
		want = append(want, id)
	}
	middle := time.Now()
	running := two.dispatched("a")
	accepted := two.admit("b", with("target_addresses", []string{target1}))["action_instance_id"].(string)
	foreign := third.admit("a", own)["action_instance_id"].(string)
	unknown := third.admit("b", own, with("target_addresses", []string{target2}))["action_instance_id"].(string)
	third.dispatch(unknown)
	third.report(unknown, "timeout")
	want = append(want, running, accepted, foreign, unknown)
	_, token := f.token(TokenRequest{Participant: "p1"})
	episode := two.open["episode_id"].(string)
	for _, c := range []struct {
		token, query string
		want         []string
	}{
		{"", "", want},
		{"", "limit=3", want},
		{"", "state=cancelled", want[:3]},
		{"", "state=running", []string{running}},
		{"", "state=accepted", []string{accepted, foreign}},
		{"", "state=indeterminate", []string{unknown}},
		{"", "unresolved=true", []string{unknown}},
		{"", "state=succeeded", nil},
		{"", "participant=p2", []string{foreign, unknown}},
		{"", "participant=nobody", nil},
		{"", "invocation=" + one.id, want[:3]},
		{"", "episode=" + episode, []string{running, accepted}},
		{"", "since=" + url.QueryEscape(middle.Format(time.RFC3339Nano)), want[3:]},
		{token, "", want[:5]},
		{token, "participant=p2", nil},
		{token, "participant=p1&limit=2", want[:5]},
		{token, "invocation=" + third.id, nil},
		{one.token, "", want[:3]},
		{one.token, "invocation=" + two.id, nil},
		{one.token, "limit=1", want[:3]},
		{third.token, "participant=p2", []string{foreign, unknown}},
	} {
		ids, pages := f.list(c.token, c.query)
		if fmt.Sprint(ids) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v (pages %v)", c.query, ids, c.want, pages)
		}
	}
	if _, pages := f.list("", "limit=3"); fmt.Sprint(pages) != "[3 3 1]" {
		t.Errorf("pages %v", pages)
	}
	if _, pages := f.list("", "limit=7"); fmt.Sprint(pages) != "[7]" {
		t.Errorf("pages %v", pages)
	}
	f.expect(404, asking{path: "/v1/operations/" + foreign, token: token})
	f.expect(404, asking{path: "/v1/invocations/" + third.id, token: token})
	f.expect(200, asking{path: "/v1/operations/" + running, token: token})
	f.expect(200, asking{path: "/v1/invocations/" + two.id, token: token})
	if op := f.expect(200, asking{path: "/v1/operations/" + third.id}); op["kind"] != "invocation" || op["state"] != "running" {
		t.Errorf("%v", op)
	}
}

func TestParticipants(t *testing.T) {
	f := newFixture(t)
	all := f.expect(200, asking{path: "/v1/participants"})["participants"].([]any)
	byName := map[string]map[string]any{}
	for _, p := range all {
		byName[p.(map[string]any)["name"].(string)] = p.(map[string]any)
	}
	p1, opaque := byName["p1"], byName["opaque"]
	if p1["port"] != true || len(p1["bindings"].([]any)) != 1 || len(p1["execution_bindings"].([]any)) != 1 || p1["limits"] == nil {
		t.Errorf("%v", p1)
	}
	if opaque["port"] != false || opaque["why"] == nil || opaque["limits"] != nil {
		t.Errorf("%v", opaque)
	}
}
