package server

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"writ/store"
)

func (f *fixture) desk() Desk {
	return Desk{Store: f.store, Tenant: "local", Owner: "local:1", Now: f.s.cfg.Now}
}

// token makes an API token.
func (f *fixture) token(r TokenRequest) (store.Token, string) {
	f.t.Helper()
	t, text, err := f.desk().Create(f.t.Context(), r)
	if err != nil {
		f.t.Fatal(err)
	}
	return t, text
}

func openAs(participant, token string) asking {
	return asking{method: "POST", path: "/v1/participants/" + participant + "/invocations", key: newKey(), token: token}
}

func TestAPITokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *Config) { c.StartToken = "" })
		row, p1 := f.token(TokenRequest{Participant: "p1", Name: "ci", Life: 24 * time.Hour})
		_, all := f.token(TokenRequest{Participant: Everybody})
		sum := sha256.Sum256([]byte(p1))
		if row.Hash != hex.EncodeToString(sum[:]) || !strings.HasPrefix(p1, "writ_") || len(p1) < 30 || row.Owner != "local:1" {
			t.Errorf("%+v %s", row, p1)
		}
		for _, a := range []asking{{path: "/v1/participants", noToken: true}, {path: "/v1/participants", token: "writ_wrong"},
			{path: "/v1/participants", token: strings.Repeat("x", 5000)}, {path: "/v1/participants", token: row.Hash},
			{path: "/v1/operations/x", token: "writ_wrong"}, {path: "/v1/invocations/x", noToken: true}, openAs("p1", "writ_wrong")} {
			f.expect(401, a)
		}
		f.expect(200, openAs("p1", p1))
		// Another participant, and none, read the same.
		other, none := f.expect(404, openAs("p2", p1)), f.expect(404, openAs("nobody", p1))
		if other["message"] != none["message"] || other["hint"] != none["hint"] {
			t.Errorf("%v and %v", other, none)
		}
		f.expect(404, openAs("opaque", p1))
		f.expect(200, openAs("p1", all))
		f.expect(200, openAs("p2", all))
		if got := names1(f.expect(200, asking{path: "/v1/participants", token: p1})); !slices.Equal(got, []string{"p1"}) {
			t.Errorf("participants %v", got)
		}
		if got := names1(f.expect(200, asking{path: "/v1/participants", token: all})); len(got) != 10 {
			t.Errorf("participants %v", got)
		}
		revoked, text := f.token(TokenRequest{Participant: "p1"})
		f.expect(200, openAs("p1", text))
		if _, err := f.desk().Revoke(t.Context(), revoked.ID); err != nil {
			t.Fatal(err)
		}
		f.expect(401, openAs("p1", text))
		time.Sleep(24 * time.Hour)
		f.expect(401, openAs("p1", p1)) // expired
		f.expect(200, openAs("p1", all))
	})
}

func names1(answer map[string]any) (out []string) {
	for _, p := range answer["participants"].([]any) {
		out = append(out, p.(map[string]any)["name"].(string))
	}
	return out
}

func TestTokensRefuse(t *testing.T) {
	f := newFixture(t)
	for _, r := range []TokenRequest{{}, {Participant: strings.Repeat("p", 300)}, {Participant: "p1", Name: strings.Repeat("n", 201)}, {Participant: "p1", Life: -1}} {
		if _, _, err := f.desk().Create(t.Context(), r); err == nil {
			t.Errorf("%+v makes a token", r)
		}
	}
	if _, err := f.desk().Revoke(t.Context(), "tok_nothing"); err == nil {
		t.Error("nothing is revoked")
	}
}

// TestInvocationTokens: the token of an invocation is for that one, and for the port alone.
func TestInvocationTokens(t *testing.T) {
	f := newFixture(t)
	h, other := f.open("p1"), f.open("p1")
	id := h.dispatched("a")
	methods := []string{"admit", "dispatch", "complete", "report_unknown", "cancel", "renew", "close"}
	body := map[string]any{"admit": h.request("b"), "complete": map[string]any{"action_instance_id": id, "result": h.result(id, "succeeded")}}
	for _, m := range methods {
		b := body[m]
		if b == nil && m != "renew" && m != "close" {
			b = map[string]any{"action_instance_id": id, "reason": "timeout"}
		}
		at := func(inv string) asking {
			return asking{method: "POST", path: "/v1/invocations/" + inv + "/" + m, body: b}
		}
		with := func(a asking, token string) asking { a.token = token; return a }
		f.expect(401, with(at(h.id), "writ_inv_wrong"))
		foreign, none := f.expect(404, with(at(h.id), other.token)), f.expect(404, with(at("inv_none"), other.token))
		if foreign["message"] != none["message"] {
			t.Errorf("%s: %v and %v", m, foreign, none)
		}
		f.expect(403, at(h.id))       // an API token is not the invocation's
		f.expect(403, at("inv_none")) // and does not tell whether there is one
	}
	if rows := h.rows(); rows != "running" {
		t.Errorf("rows %s", rows)
	}
	f.expect(404, openAs("p1", h.token))
	f.expect(404, asking{path: "/v1/invocations/" + h.id, token: other.token})
	f.expect(404, asking{path: "/v1/operations/" + id, token: other.token})
	f.expect(404, asking{path: "/v1/operations/" + h.id, token: other.token})
	f.expect(200, asking{path: "/v1/operations/" + id, token: h.token})
	f.expect(200, asking{path: "/v1/operations/" + h.id, token: h.token})
	if got := names1(f.expect(200, asking{path: "/v1/participants", token: h.token})); !slices.Equal(got, []string{"p1"}) {
		t.Errorf("participants %v", got)
	}
	for _, tok := range f.tokens() {
		if strings.Contains(h.token, tok.Hash) || tok.Kind != store.TokenInvocation || tok.Hash == h.token {
			t.Errorf("stored %+v", tok)
		}
	}
}

func (f *fixture) tokens() []store.Token {
	all, err := f.store.Tokens(f.t.Context(), store.TokenInvocation)
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}
