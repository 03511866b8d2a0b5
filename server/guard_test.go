package server

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

func TestHost(t *testing.T) {
	loopback := newFixture(t)
	wide := newFixture(t, func(c *Config) { c.Loopback, c.Hosts, c.StartToken = false, []string{"writ.example.org"}, "" })
	for host, want := range map[string][2]bool{ // on loopback, elsewhere
		"127.0.0.1":             {true, true},
		"127.0.0.1:8720":        {true, true},
		"127.9.9.9:1":           {true, true},
		"localhost":             {true, true},
		"LOCALHOST.:8720":       {true, true},
		"[::1]:8720":            {true, true},
		"[::1]":                 {true, true},
		"[::ffff:127.0.0.1]:1":  {true, true},
		"192.0.2.1:8720":        {false, true},
		"[2001:db8::1]":         {false, true},
		"writ.example.org":      {false, true},
		"Writ.Example.org:8720": {false, true},
		"evil.example.org":      {false, false},
		"localhost.evil.org":    {false, false},
		"127.0.0.1.evil.org":    {false, false},
		"localhost:0":           {false, false},
		"localhost:x":           {false, false},
		"":                      {false, false},
		"a b":                   {false, false},
		"2130706433":            {false, false},
		"0x7f.1":                {false, false},
		"[::1%25lo]:1":          {true, true},
		"xn--localhost":         {false, false},
		"localhost/../evil.org": {false, false},
		"user@localhost":        {false, false},
		"localhost:8720:8720":   {false, false},
		"[localhost]":           {true, true},
		"writ.example.org.evil": {false, false},
		"0.0.0.0:8720":          {false, true},
		"127.0.0.1:99999":       {false, false},
		"notlocalhost:8720":     {false, false},
		"localhost:8720.":       {false, false},
		"127.0.0.1:":            {false, false},
		"writ.example.org:8720": {false, true},
		"[127.0.0.1]:8720":      {true, true},
		"::1":                   {true, true},
	} {
		if got := [2]bool{loopback.s.host(host), wide.s.host(host)}; got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
	loopback.expect(403, asking{path: "/healthz", host: "evil.example.org"})
}

func TestOrigin(t *testing.T) {
	f := newFixture(t)
	for origin, status := range map[string]int{
		"":                       200,
		"http://127.0.0.1:8720":  200,
		"https://127.0.0.1:8720": 200,
		"http://localhost:8720":  403, // the Host is another
		"http://127.0.0.1":       403,
		"http://evil.example":    403,
		"null":                   403,
	} {
		f.expect(status, asking{path: "/v1/participants", origin: origin})
		f.expect(status, asking{method: "POST", path: "/v1/participants/p1/invocations", key: newKey(), origin: origin})
	}
	r := httptest.NewRequest("GET", "/healthz", nil)
	r.Host = "localhost"
	r.Header["Origin"] = []string{"http://localhost", "http://evil.example"}
	if fault := f.s.guard(r); fault == nil {
		t.Error("two origins pass")
	}
}

func TestMedia(t *testing.T) {
	f := newFixture(t)
	for media, status := range map[string]int{
		"application/json":                  200,
		"application/json; charset=UTF-8":   200,
		"application/json; charset=utf-7":   415,
		"text/plain":                        415,
		"application/x-www-form-urlencoded": 415,
		" ":                                 415, // none
		"text/plain; a=json":                415,
		"application/jsonx":                 415,
	} {
		f.expect(status, asking{method: "POST", path: "/v1/participants/p1/invocations", key: newKey(), media: media})
	}
}

func TestBody(t *testing.T) {
	f := newFixture(t)
	h := f.open("p1")
	id := h.admitted("a")
	ok := `{"action_instance_id":"` + id + `"}`
	for body, status := range map[string]int{
		`{"action_instance_id":"` + id + `"`:       400,
		`[]`:                                       400,
		`"` + id + `"`:                             400,
		`{"action_instance_id":7}`:                 400,
		`{"action_instance_id":"a","x":1}`:         400,
		`{"Action_Instance_ID":"` + id + `"}`:      400,
		`{"action_in\u017ftance_id":"` + id + `"}`: 400,
		ok + ok:                               400,
		`{"action_instance_id":"a",` + ok[1:]: 400,
		"{\"action_instance_id\":\"\xff\"}":   400,
		``:                                    400,
		`{"action_instance_id":"` + strings.Repeat("a", maxBody) + `"}`:         413,
		`{"action_instance_id":"` + strings.Repeat(" ", maxBody-len(ok)) + `"}`: 200,
		`{}`:   200, // action_unknown
		`null`: 200,
	} {
		got := f.expect(status, asking{method: "POST", path: "/v1/invocations/" + h.id + "/dispatch", token: h.token, body: body})
		if status == 200 {
			f.want(body[:min(len(body), 60)], got, "action_unknown")
		}
		if m, _ := got["message"].(string); strings.Contains(m, id) {
			t.Errorf("the error shows what was sent: %s", m)
		}
	}
	if rows := h.rows(); rows != "accepted" {
		t.Errorf("rows %s", rows)
	}
}

func TestFaults(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		a      asking
		status int
		code   string
	}{
		{asking{path: "/"}, 404, FaultNotFound},
		{asking{path: "/v1/nothing"}, 404, FaultNotFound},
		{asking{method: "DELETE", path: "/v1/operations"}, 405, FaultMethod},
		{asking{path: "/v1/operations?limt=3"}, 400, FaultRequest},
		{asking{path: "/v1/operations?limit=501"}, 400, FaultRequest},
		{asking{path: "/v1/operations?state=held"}, 400, FaultRequest},
		{asking{path: "/v1/operations?since=yesterday"}, 400, FaultRequest},
		{asking{path: "/v1/operations?after=-1"}, 400, FaultRequest},
		{asking{method: "POST", path: "/v1/participants/p1/invocations"}, 400, FaultRequest}, // no key
		{asking{method: "POST", path: "/v1/participants/p1/invocations", key: strings.Repeat("k", 257)}, 400, FaultRequest},
		{asking{method: "POST", path: "/v1/participants/p1/invocations", key: "k", body: map[string]any{"lease_seconds": 3601}}, 400, FaultRequest},
		{asking{method: "POST", path: "/v1/participants/p1/invocations", key: "k", body: map[string]any{"lease_seconds": -1}}, 400, FaultRequest},
		{asking{method: "POST", path: "/v1/participants/p1/invocations", key: "k", body: map[string]any{"owner": "somebody"}}, 400, FaultRequest},
		{asking{method: "POST", path: "/v1/participants/p1/invocations", key: "k", body: map[string]any{"episode_id": "conv_nobody"}}, 404, FaultNotFound},
		{asking{method: "POST", path: "/v1/participants/nobody/invocations", key: "k"}, 404, FaultNotFound},
		{asking{method: "POST", path: "/v1/participants/opaque/invocations", key: "k"}, 404, FaultNotFound},
		{asking{path: "/v1/invocations/" + strings.Repeat("x", 300)}, 400, FaultRequest},
		{asking{path: "/v1/operations/nothing"}, 404, FaultNotFound},
	} {
		got := f.expect(c.status, c.a)
		if got["code"] != c.code {
			t.Errorf("%s %s: %v, want %s", c.a.method, c.a.path, got, c.code)
		}
	}
	hint := f.expect(404, asking{method: "POST", path: "/v1/participants/opaque/invocations", key: "k"})["hint"]
	if hint != "its runtime does not claim invocation_tool_actions" {
		t.Errorf("hint %v", hint)
	}
	w := httptest.NewRecorder()
	f.s.Handler().ServeHTTP(w, func() *http.Request {
		r := httptest.NewRequest("GET", "/v1/participants", nil)
		r.Host = "localhost"
		return r
	}())
	if w.Code != 401 || w.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// FuzzStrict: what is read is what every other reader of JSON would read.
func FuzzStrict(f *testing.F) {
	for _, s := range []string{`{}`, `{"action_instance_id":"a"}`, `{"reason":"a","reason":"b"}`, `{"Reason":"a"}`, `[1]`, `{"reason":null}`, "{\"reason\":\"\xff\"}", `{"a":{"a":[{"a":1,"a":2}]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r ActionRequest
		if strict(data, &r) != nil {
			return
		}
		for _, name := range []string{"action_instance_id", "reason"} {
			if n := strings.Count(string(data), `"`+name+`":`); n > 1 {
				t.Errorf("%q has %s %d times", data, name, n)
			}
		}
	})
}
