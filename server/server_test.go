package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"go.uber.org/goleak"

	"writ/participant"
	"writ/store"
	"writ/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	affordanceF = "participant.behavior-specification.main.tool-affordance.desk"
	contractC   = "participant.action-contract.probe"
	contractD   = "participant.action-contract.other"
	boundaryB   = "participant.observation-boundary.view"
	boundaryX   = "participant.observation-boundary.elsewhere"
	target1     = "provision.node.one"
	target2     = "provision.node.two"
	target3     = "provision.node.three"
	implA       = "impl-a@1.0.0"
)

// compiled is one binding of two targets with one offer, 16 actions and 4 at once, changed by the caller.
func compiled(name string, change ...func(*participant.Compiled)) participant.Compiled {
	c := participant.Compiled{Name: name, Participant: participant.Address(name), Implementation: implA, Scope: participant.ScopeAddress("main"),
		OuterContract: participant.DerivedOuter, Total: 16, Concurrent: 4, Withheld: []string{"evidence.secret"},
		Bindings:   []participant.Binding{{Participant: participant.Address(name), Affordance: affordanceF, Contract: contractC, Boundaries: []string{boundaryB}, Targets: []string{target1, target2}}},
		Boundaries: []participant.Boundary{{Address: boundaryB, Evidence: []string{"evidence.page", "evidence.secret"}}, {Address: boundaryX}},
		Offers:     []participant.Offer{{ID: "probe", Contract: contractC, Implementation: implA, Targets: []string{target1, target2}, Timeout: 30 * time.Second}}}
	for _, f := range change {
		f(&c)
	}
	return c
}

// participants are the ordinary one, one beside it, and one for each way in which authoring makes the port refuse.
func participants() []participant.Compiled {
	return []participant.Compiled{
		compiled("p1"),
		compiled("p2", func(c *participant.Compiled) { c.Bindings[0].Affordance += "-of-p2" }),
		compiled("twice", func(c *participant.Compiled) { c.Bindings = append(c.Bindings, c.Bindings[0]) }),
		compiled("clock", func(c *participant.Compiled) { c.Bindings[0].Temporal = true }),
		compiled("no-offer", func(c *participant.Compiled) { c.Offers = nil }),
		compiled("two-offers", func(c *participant.Compiled) {
			c.Offers = append(c.Offers, c.Offers[0])
			c.Offers[1].ID = "again"
		}),
		compiled("other-offer", func(c *participant.Compiled) { c.Offers[0].Implementation = "impl-b@1.0.0" }),
		compiled("v3", func(c *participant.Compiled) { c.Profile = participant.ProfileV3 }),
		compiled("crossing", func(c *participant.Compiled) { c.Crossing = true }),
	}
}

const testStart = "writ_test"

// fixture is a server over a store in memory, asked through its handler. Every answer is held against the document.
type fixture struct {
	t     *testing.T
	s     *Server
	store *store.Fault
	doc   *openapi3.T
	gone  *atomic.Bool // the store writes nothing
}

func newFixture(t *testing.T, change ...func(*Config)) *fixture {
	t.Helper()
	gone := &atomic.Bool{}
	st := &store.Fault{Store: memory.Open(), Before: func(*store.Batch) error {
		if gone.Load() {
			return errors.New("the disk is gone")
		}
		return nil
	}}
	cfg := Config{Store: st, Key: []byte("0123456789abcdef0123456789abcdef"), Holder: "test", Participants: participants(), Owner: "local:1",
		Opaque:     []participant.Opaque{{Name: "opaque", Participant: participant.Address("opaque"), Implementation: implA, Why: "its runtime does not claim invocation_tool_actions"}},
		StartToken: testStart, Loopback: true}
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.Close(context.Background()) })
	return &fixture{t, s, st, document(t, s), gone}
}

// asking is a request; the zero value is a GET with the start's token.
type asking struct {
	method, path, token, key, host, origin, media string
	body                                          any // a string is sent as it is
	noToken                                       bool
}

// ask sends a request and returns the answer; what has no JSON object is an error of the test.
func (f *fixture) ask(a asking) (int, map[string]any) {
	f.t.Helper()
	if a.method == "" {
		a.method = "GET"
	}
	var body []byte
	switch b := a.body.(type) {
	case nil:
	case string:
		body = []byte(b)
	default:
		body, _ = json.Marshal(b)
	}
	r := httptest.NewRequest(a.method, a.path, bytes.NewReader(body))
	r.Host = "127.0.0.1:8720"
	if a.host != "" {
		r.Host = a.host
	}
	set := func(name, value string) {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	set("Origin", a.origin)
	set("Idempotency-Key", a.key)
	set("Content-Type", "application/json")
	if a.media != "" {
		r.Header.Set("Content-Type", strings.TrimSpace(a.media))
	}
	if token := a.token; !a.noToken {
		if token == "" {
			token = testStart
		}
		set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	f.s.Handler().ServeHTTP(w, r)
	var out map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		f.t.Errorf("%s %s: %d, and no JSON object: %q", a.method, a.path, w.Code, w.Body)
	}
	f.checkAnswer(r, w, out)
	return w.Code, out
}

// expect sends a request that must get the status.
func (f *fixture) expect(status int, a asking) map[string]any {
	f.t.Helper()
	got, out := f.ask(a)
	if got != status {
		f.t.Fatalf("%s %s: %d %v, want %d", a.method, a.path, got, out, status)
	}
	return out
}

var (
	keyMu sync.Mutex
	keyNo int
)

func newKey() string {
	keyMu.Lock()
	defer keyMu.Unlock()
	keyNo++
	return fmt.Sprintf("key-%d", keyNo)
}

// handle is an open invocation as its harness holds it.
type handle struct {
	f     *fixture
	id    string
	token string
	open  map[string]any
}

func (f *fixture) open(participant string, body ...any) *handle {
	f.t.Helper()
	a := asking{method: "POST", path: "/v1/participants/" + participant + "/invocations", key: newKey()}
	if len(body) > 0 {
		a.body = body[0]
	}
	return f.handle(f.expect(200, a))
}

func (f *fixture) handle(opened map[string]any) *handle {
	return &handle{f, opened["invocation_action_instance_id"].(string), opened["invocation_token"].(string), opened}
}

// post calls a method of the port.
func (h *handle) post(method string, body any) map[string]any {
	h.f.t.Helper()
	return h.f.expect(200, asking{method: "POST", path: "/v1/invocations/" + h.id + "/" + method, token: h.token, body: body})
}

// request is a valid request, changed by the caller.
func (h *handle) request(call string, change ...func(map[string]any)) map[string]any {
	r := map[string]any{"tool_call_id": call, "tool_affordance_address": affordanceF, "action_contract_address": contractC,
		"observation_boundary_address": boundaryB, "target_addresses": []string{target1, target2}}
	for _, name := range []string{"invocation_action_instance_id", "participant_address", "episode_id", "participant_implementation_ref", "execution_scope_ref", "execution_generation"} {
		r[name] = h.open[name]
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func with(name string, value any) func(map[string]any) {
	return func(m map[string]any) { m[name] = value }
}

func without(name string) func(map[string]any) {
	return func(m map[string]any) { delete(m, name) }
}

func (h *handle) admit(call string, change ...func(map[string]any)) map[string]any {
	h.f.t.Helper()
	return h.post("admit", h.request(call, change...))
}

// admitted admits and returns the action's id.
func (h *handle) admitted(call string) string {
	h.f.t.Helper()
	d := h.admit(call)
	if d["admitted"] != true {
		h.f.t.Fatalf("%s is not admitted: %v", call, d)
	}
	return d["action_instance_id"].(string)
}

func (h *handle) dispatch(id string) map[string]any {
	h.f.t.Helper()
	return h.post("dispatch", map[string]any{"action_instance_id": id})
}

func (h *handle) dispatched(call string) string {
	h.f.t.Helper()
	id := h.admitted(call)
	if g := h.dispatch(id); g["accepted"] != true {
		h.f.t.Fatalf("%s is not dispatched: %v", call, g)
	}
	return id
}

// result is a valid result, changed by the caller.
func (h *handle) result(id, status string, change ...func(map[string]any)) map[string]any {
	r := map[string]any{"status": status, "participant_address": h.open["participant_address"], "episode_id": h.open["episode_id"],
		"action_instance_id": id, "action_contract_address": contractC, "observation_point": h.open["observation_point"]}
	for _, f := range change {
		f(r)
	}
	return r
}

func (h *handle) complete(id, status string, change ...func(map[string]any)) map[string]any {
	h.f.t.Helper()
	return h.post("complete", map[string]any{"action_instance_id": id, "result": h.result(id, status, change...)})
}

func (h *handle) report(id, reason string) map[string]any {
	h.f.t.Helper()
	return h.post("report_unknown", map[string]any{"action_instance_id": id, "reason": reason})
}

func (h *handle) cancel(id string) map[string]any {
	h.f.t.Helper()
	return h.post("cancel", map[string]any{"action_instance_id": id})
}

func (h *handle) close(status string) map[string]any {
	h.f.t.Helper()
	return h.post("close", map[string]any{"status": status})
}

// rows are the states of its actions in the order of their admission.
func (h *handle) rows() string {
	h.f.t.Helper()
	out := h.f.expect(200, asking{path: "/v1/invocations/" + h.id, token: h.token})
	var states []string
	for _, op := range out["operations"].([]any) {
		states = append(states, op.(map[string]any)["state"].(string))
	}
	return strings.Join(states, " ")
}

// said is the one word of an answer: yes, or the code.
func said(answer map[string]any) string {
	switch {
	case answer["admitted"] == true, answer["accepted"] == true:
		return "yes"
	case answer["refusal"] != nil:
		return answer["refusal"].(string)
	case answer["code"] != nil:
		return answer["code"].(string)
	}
	return fmt.Sprint(answer)
}

func (f *fixture) want(what string, answer map[string]any, want string) {
	f.t.Helper()
	if got := said(answer); got != want {
		f.t.Errorf("%s: %s, want %s (%v)", what, got, want, answer)
	}
}

var (
	docOnce sync.Once
	docRead *openapi3.T
)

// document is what the server says of itself, read once: it does not depend on the configuration.
func document(t *testing.T, s *Server) *openapi3.T {
	t.Helper()
	docOnce.Do(func() {
		var err error
		if docRead, err = openapi3.NewLoader().LoadFromData(s.openapi); err != nil {
			t.Fatal(err)
		}
	})
	return docRead
}

// checkAnswer holds an answer against the schema of its operation, status and field by field.
func (f *fixture) checkAnswer(r *http.Request, w *httptest.ResponseRecorder, body map[string]any) {
	f.t.Helper()
	if ct := w.Header().Get("Content-Type"); ct != "application/json" {
		f.t.Errorf("%s %s: Content-Type %q", r.Method, r.URL.Path, ct)
	}
	_, pattern := f.s.mux.Handler(r)
	var schema *openapi3.SchemaRef
	if _, path, ok := strings.Cut(pattern, " "); ok {
		op := f.doc.Paths.Value(path).GetOperation(r.Method)
		ref := op.Responses.Status(w.Code)
		if ref == nil {
			ref = op.Responses.Default()
		}
		schema = ref.Value.Content.Get("application/json").Schema
	} else {
		schema = f.doc.Components.Schemas["Fault"]
	}
	if err := schema.Value.VisitJSON(maps.Clone(body)); err != nil {
		f.t.Errorf("%s %s: %d: the answer is not what the document says: %v\n%s", r.Method, r.URL.Path, w.Code, err, w.Body)
	}
}
