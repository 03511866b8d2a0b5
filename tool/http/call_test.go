package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"writ"
	"writ/internal/dial/dialtest"
)

// service is a server of a test with a counter of effects: what it counted is the truth.
type service struct {
	*httptest.Server
	effects atomic.Int32
	mu      sync.Mutex
	seen    []*http.Request
	bodies  []string
}

func serve(t *testing.T, h func(s *service, w http.ResponseWriter, r *http.Request)) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen, s.bodies = append(s.seen, r), append(s.bodies, string(body))
		s.mu.Unlock()
		s.effects.Add(1)
		h(s, w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) last() (*http.Request, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[len(s.seen)-1], s.bodies[len(s.bodies)-1]
}

func answer(status int, kind, body string) func(*service, http.ResponseWriter, *http.Request) {
	return func(_ *service, w http.ResponseWriter, _ *http.Request) {
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func hangUp(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		c.Close()
	}
}

func pets(t *testing.T, url string, change func(*Config)) *Tools {
	t.Helper()
	cfg := Config{Spec: "testdata/pets-3.0.yaml", BaseURL: url, Headers: map[string]string{"X-Api-Key": "s3cret-key"},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&cfg)
	}
	return open(t, cfg)
}

func do(t *testing.T, tools *Tools, tool, args string) (writ.Result, error) {
	t.Helper()
	return tools.Call(t.Context(), writ.Call{Tool: tool, Params: json.RawMessage(args), IdempotencyKey: "key-1"})
}

func must(t *testing.T, tools *Tools, tool, args string) writ.Result {
	t.Helper()
	res, err := do(t, tools, tool, args)
	if err != nil {
		t.Fatalf("%s %s: %v", tool, args, err)
	}
	return res
}

func wantUnknown(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil || errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("got %v, want an unknown outcome", err)
		return
	}
	wantWords(t, err.Error(), words...)
}

func wantNotStarted(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("got %v, want not started", err)
		return
	}
	wantWords(t, err.Error(), words...)
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in: %s", w, text)
		}
	}
	if strings.Contains(text, "s3cret") {
		t.Errorf("a secret is shown: %s", text)
	}
}

func TestRequestsAreBuilt(t *testing.T) {
	s := serve(t, answer(200, "application/json", `{}`))
	tools := pets(t, s.URL+"/base/", nil)
	for _, tc := range []struct{ tool, args, want string }{
		{"listPets", `{}`, "GET /base/pets"},
		{"listPets", `{"limit":5,"tags":["a b","c&d=e"]}`, "GET /base/pets?limit=5&tags=a%20b&tags=c%26d%3De"},
		{"listPets", `{"limit":12345678901234567890,"ids":[1,2.50]}`, "GET /base/pets?limit=12345678901234567890&ids=1,2.50"},
		{"listPets", `{"bars":["a","b|c"],"words":["d","e"]}`, "GET /base/pets?bars=a%7Cb%7Cc&words=d%20e"},
		{"listPets", `{"filter":{"name":"x#y"},"flat":{"q":"1","r":true}}`, "GET /base/pets?filter%5Bname%5D=x%23y&q=1&r=true"},
		{"listPets", `{"page_size":3,"query_body":"b","where":{"a": [1]}}`, "GET /base/pets?page%5Bsize%5D=3&where=%7B%22a%22%3A%5B1%5D%7D&body=b"},
		{"listPets", `{"tags":[],"ids":null,"filter":{}}`, "GET /base/pets"},
		{"get_pets_petId", `{"petId":"a/b?c#d e%2F"}`, "GET /base/pets/a%2Fb%3Fc%23d%20e%252F"},
		{"get_pets_petId", `{"petId":"ü;x"}`, "GET /base/pets/%C3%BC%3Bx"},
		{"get_pets_petId", `{"petId":"..."}`, "GET /base/pets/..."},
		{"styles", `{"simple":"a,b","list":["x","y,z"],"label":"l","labels":["m","n"],"matrix":"o","matrices":["p","q"]}`,
			"GET /base/a/a%2Cb/x,y%2Cz/.l/.m.n/;matrix=o/;matrices=p;matrices=q"},
		{"create_pet_new", `{"body":{"name":"x","n":1.10}}`, `POST /base/pets {"name":"x","n":1.10}`},
		{"replacePet", `{"petId":"1","query_petId":"2","body":{"name":"y"}}`, `PUT /base/pets/1?petId=2 {"name":"y"}`},
		{"replacePet", `{"petId":"1"}`, `PUT /base/pets/1`},
		{"deletePet", `{"petId":"1"}`, `DELETE /base/pets/1`},
	} {
		must(t, tools, tc.tool, tc.args)
		r, body := s.last()
		if got := strings.TrimSpace(r.Method + " " + r.RequestURI + " " + body); got != tc.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tc.tool, tc.args, got, tc.want)
		}
		if r.Header.Get("Idempotency-Key") != "key-1" || r.Header.Get("X-Api-Key") != "s3cret-key" {
			t.Errorf("%s: headers %v", tc.tool, r.Header)
		}
	}
	must(t, tools, "listPets", `{"X-Trace":"t 1","session":"a;b"}`)
	r, _ := s.last()
	if r.Header.Get("X-Trace") != "t 1" || r.Header.Get("Cookie") != "session=a%3Bb" {
		t.Errorf("headers %v", r.Header)
	}
	must(t, tools, "replacePet", `{"petId":"1","body":{}}`)
	if r, _ := s.last(); r.Header.Get("Content-Type") != "application/merge-patch+json" {
		t.Errorf("headers %v", r.Header)
	}
	n := s.effects.Load()
	for args, want := range map[string]string{
		`{}`: "petId is missing", `{"petId":""}`: "empty", `{"petId":"."}`: "lead the path elsewhere", `{"petId":".."}`: "lead the path elsewhere",
		`{"petId":"../x"}`: "lead the path elsewhere", `{"petId":"x/../../y"}`: "lead the path elsewhere", `{"petId":"..\\x"}`: "lead the path elsewhere",
		`{"petId":[[1]]}`: "no simple one", `{"petId":null}`: "petId is missing", `[]`: "no JSON object", `null`: "no JSON object", `{"petId":`: "no JSON object",
	} {
		_, err := do(t, tools, "get_pets_petId", args)
		wantNotStarted(t, err, want)
	}
	_, err := do(t, tools, "listPets", `{"X-Trace":"a\r\nX-Evil: b"}`)
	wantNotStarted(t, err, "a header cannot have")
	if _, err := do(t, tools, "nobody", `{}`); !errors.Is(err, writ.ErrVanished) {
		t.Errorf("got %v", err)
	}
	if s.effects.Load() != n {
		t.Error("something was sent that must not be")
	}
}

func TestAnswersAreMapped(t *testing.T) {
	text := func(s string) writ.Content { return writ.Content{Kind: writ.ContentText, Text: s} }
	for name, tc := range map[string]struct {
		status     int
		kind, body string
		want       []writ.Content
		failed     bool
	}{
		"json":            {200, "application/json", `{ "a": 1.0 }`, []writ.Content{{Kind: writ.ContentJSON, JSON: []byte(`{"a":1.0}`)}}, false},
		"problem":         {404, "application/problem+json", `{"title":"no"}`, []writ.Content{text("HTTP 404 Not Found"), {Kind: writ.ContentJSON, JSON: []byte(`{"title":"no"}`)}}, true},
		"text":            {200, "text/plain; charset=utf-8", "hü", []writ.Content{{Kind: writ.ContentText, Text: "hü", MIME: "text/plain"}}, false},
		"latin1":          {200, "text/plain; charset=ISO-8859-1", "h\xfc", []writ.Content{{Kind: writ.ContentText, Text: "hü", MIME: "text/plain"}}, false},
		"not really json": {200, "application/json", `<html>`, []writ.Content{{Kind: writ.ContentText, Text: "<html>", MIME: "application/json"}}, false},
		"not really text": {200, "text/plain", "\xff\x00", []writ.Content{{Kind: writ.ContentBlob, Data: []byte("\xff\x00"), MIME: "text/plain"}}, false},
		"image":           {200, "image/png", "\x89PNG", []writ.Content{{Kind: writ.ContentBlob, Data: []byte("\x89PNG"), MIME: "image/png"}}, false},
		"created":         {201, "application/json", `1`, []writ.Content{text("HTTP 201 Created"), {Kind: writ.ContentJSON, JSON: []byte(`1`)}}, false},
		"empty":           {200, "application/json", ``, []writ.Content{text("HTTP 200 OK")}, false},
		"server error":    {500, "text/plain", "oops", []writ.Content{text("HTTP 500 Internal Server Error"), {Kind: writ.ContentText, Text: "oops", MIME: "text/plain"}}, true},
		"unavailable":     {503, "", "", []writ.Content{text("HTTP 503 Service Unavailable")}, true},
		"see other":       {303, "text/plain", "", []writ.Content{text("HTTP 303 See Other; redirects of a call that may change something are not followed")}, false},
		"moved":           {308, "text/plain", "", []writ.Content{text("HTTP 308 Permanent Redirect; redirects of a call that may change something are not followed")}, true},
		"a cursor": {200, "application/json", `{"items":[],"meta":{"next_cursor":"x"}}`, []writ.Content{{Kind: writ.ContentJSON, JSON: []byte(`{"items":[],"meta":{"next_cursor":"x"}}`)},
			text("There is another page, which was not read: see meta.next_cursor in the answer.")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, answer(tc.status, tc.kind, tc.body))
			res := must(t, pets(t, s.URL, nil), "create_pet_new", `{"body":{"name":"x"}}`)
			if fmt.Sprint(res.Content) != fmt.Sprint(tc.want) || res.IsError != tc.failed {
				t.Errorf("got  %+v\nwant %+v", res, tc.want)
			}
			if n := s.effects.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
	for _, status := range []int{502, 504} {
		s := serve(t, answer(status, "text/html", "<h1>upstream</h1>"))
		tools := pets(t, s.URL, nil)
		_, err := tools.Call(t.Context(), writ.Call{Tool: "create_pet_new", Params: json.RawMessage(`{"body":{"name":"x"}}`)})
		if err == nil || errors.Is(err, writ.ErrNotStarted) || !strings.Contains(err.Error(), "may have acted") || s.effects.Load() != 1 {
			t.Errorf("a gateway's %d: %v, %d requests; want an unknown outcome", status, err, s.effects.Load())
		}
		if res := must(t, tools, "listPets", `{}`); !res.IsError {
			t.Errorf("a gateway's %d to a safe call: %+v", status, res)
		}
	}
	s := serve(t, func(_ *service, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/pets/7")
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(202)
	})
	if res := must(t, pets(t, s.URL, nil), "create_pet_new", `{"body":{"name":"x"}}`); res.Content[0].Text != "HTTP 202 Accepted; Location: /pets/7; Retry-After: 3" {
		t.Errorf("%+v", res)
	}
	head := serve(t, answer(200, "application/json", ""))
	if res := must(t, pets(t, head.URL, nil), "headPet", `{"petId":"1"}`); len(res.Content) != 1 || res.Content[0].Text != "HTTP 200 OK" {
		t.Errorf("%+v", res)
	}
	gone := serve(t, answer(204, "", ""))
	if res := must(t, pets(t, gone.URL, nil), "deletePet", `{"petId":"1"}`); res.IsError || res.Content[0].Text != "HTTP 204 No Content" {
		t.Errorf("%+v", res)
	}
	file := serve(t, func(_ *service, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="../../etc/a.bin"`)
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write([]byte{0, 1})
	})
	if res := must(t, pets(t, file.URL, nil), "listPets", `{}`); res.Content[0].Name != "a.bin" || !bytes.Equal(res.Content[0].Data, []byte{0, 1}) {
		t.Errorf("%+v", res)
	}
}

func TestPagesAreReportedAndNotRead(t *testing.T) {
	s := serve(t, func(_ *service, w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Link", `<https://x.example.com/pets?limit=1>; rel="first", </pets?limit=7&private_token=s3cret>; title="a, b"; rel="last next"`)
		answer(200, "application/json", `[]`)(nil, w, nil)
	})
	res := must(t, pets(t, s.URL, nil), "listPets", `{"limit":5}`)
	if got := res.Content[len(res.Content)-1].Text; got != `There is another page, which was not read: call again with limit = "7".` {
		t.Errorf("%q", got)
	}
	if s.effects.Load() != 1 {
		t.Error("the next page was asked for")
	}
}

// TestOutcomes: what the service counted and what the caller is told must agree.
func TestOutcomes(t *testing.T) {
	create := func(t *testing.T, h func(*service, http.ResponseWriter, *http.Request), change func(*Config)) (*service, writ.Result, error) {
		s := serve(t, h)
		res, err := do(t, pets(t, s.URL, change), "create_pet_new", `{"body":{"name":"x"}}`)
		if n := s.effects.Load(); n != 1 {
			t.Errorf("the effect happened %d times", n)
		}
		return s, res, err
	}
	t.Run("dies after the effect", func(t *testing.T) {
		_, _, err := create(t, func(_ *service, w http.ResponseWriter, _ *http.Request) { hangUp(w) }, nil)
		wantUnknown(t, err, "the outcome is unknown")
	})
	t.Run("half an answer", func(t *testing.T) {
		_, _, err := create(t, func(_ *service, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"half":`)
			w.(http.Flusher).Flush()
			hangUp(w)
		}, nil)
		wantUnknown(t, err, "HTTP 200 OK", "not to the end")
	})
	t.Run("half an error is one", func(t *testing.T) {
		_, res, err := create(t, func(_ *service, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(422)
			_, _ = io.WriteString(w, `because`)
			w.(http.Flusher).Flush()
			hangUp(w)
		}, nil)
		if err != nil || !res.IsError || !strings.Contains(fmt.Sprint(res.Content), "because") || !strings.Contains(fmt.Sprint(res.Content), "left out") {
			t.Errorf("%+v, %v", res, err)
		}
	})
	t.Run("no HTTP", func(t *testing.T) {
		_, _, err := create(t, func(_ *service, w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			_, _ = io.WriteString(c, "hello\r\n\r\n")
			c.Close()
		}, nil)
		wantUnknown(t, err)
	})
	t.Run("huge", func(t *testing.T) {
		_, _, err := create(t, func(_ *service, w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				_, _ = w.Write(make([]byte, 1<<16))
			}
		}, func(c *Config) { c.MaxBody = 1 << 20 })
		wantUnknown(t, err, "too large (limit 1048576 bytes)")
	})
	t.Run("a huge error is cut", func(t *testing.T) {
		_, res, err := create(t, func(_ *service, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			for range 100 {
				_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<16))
			}
		}, nil)
		if err != nil || !res.IsError || len(fmt.Sprint(res.Content)) > 100_000 {
			t.Errorf("%d, %v", len(fmt.Sprint(res.Content)), err)
		}
	})
	t.Run("compressed to nothing", func(t *testing.T) {
		_, _, err := create(t, func(_ *service, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "this is no gzip")
		}, nil)
		wantUnknown(t, err)
	})
	t.Run("hangs", func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		_, _, err := create(t, func(_ *service, w http.ResponseWriter, r *http.Request) { <-release }, func(c *Config) { c.Timeout = 100 * time.Millisecond })
		wantUnknown(t, err, "deadline exceeded")
	})
	t.Run("is stopped", func(t *testing.T) {
		started, release := make(chan struct{}), make(chan struct{})
		defer close(release)
		s := serve(t, func(_ *service, _ http.ResponseWriter, _ *http.Request) { close(started); <-release })
		tools := pets(t, s.URL, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("the user pressed stop")
		go func() { <-started; cancel(reason) }()
		_, err := tools.Call(ctx, writ.Call{Tool: "deletePet", Params: json.RawMessage(`{"petId":"1"}`)})
		wantUnknown(t, err)
		if !errors.Is(err, reason) {
			t.Errorf("the reason is lost: %v", err)
		}
		_, err = tools.Call(ctx, writ.Call{Tool: "deletePet", Params: json.RawMessage(`{"petId":"1"}`)})
		wantNotStarted(t, err)
	})
	t.Run("is closed", func(t *testing.T) {
		started, release := make(chan struct{}), make(chan struct{})
		defer close(release)
		s := serve(t, func(_ *service, _ http.ResponseWriter, _ *http.Request) { close(started); <-release })
		tools := pets(t, s.URL, nil)
		result := make(chan error, 1)
		go func() {
			_, err := tools.Call(context.Background(), writ.Call{Tool: "deletePet", Params: json.RawMessage(`{"petId":"1"}`)})
			result <- err
		}()
		<-started
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
		wantUnknown(t, <-result)
		_, err := do(t, tools, "deletePet", `{"petId":"1"}`)
		wantNotStarted(t, err, "closed")
	})
	t.Run("nobody listens", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		_, err = do(t, pets(t, "http://"+l.Addr().String(), nil), "deletePet", `{"petId":"1"}`)
		wantNotStarted(t, err, "refused")
	})
}

// TestNothingIsSentTwice: connections that could have been kept, then a service that takes the request and hangs up.
func TestNothingIsSentTwice(t *testing.T) {
	var bad atomic.Bool
	s := serve(t, func(_ *service, w http.ResponseWriter, _ *http.Request) {
		if bad.Load() {
			hangUp(w)
		}
	})
	tools := pets(t, s.URL, nil)
	calls := map[string]string{"listPets": `{}`, "get_pets_petId": `{"petId":"1"}`, "headPet": `{"petId":"1"}`, "deletePet": `{"petId":"1"}`,
		"create_pet_new": `{"body":{"name":"x"}}`, "replacePet": `{"petId":"1"}`}
	for tool, args := range calls {
		must(t, tools, tool, args)
	}
	bad.Store(true)
	n := s.effects.Load()
	for tool, args := range calls {
		_, err := do(t, tools, tool, args)
		wantUnknown(t, err)
		if n++; s.effects.Load() != n {
			t.Errorf("%s: %d requests, want %d", tool, s.effects.Load(), n)
			n = s.effects.Load()
		}
	}
}

func TestRedirects(t *testing.T) {
	private := serve(t, answer(200, "text/plain", "internal"))
	var target atomic.Value
	s := serve(t, func(_ *service, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/there" {
			answer(200, "text/plain", "arrived")(nil, w, r)
			return
		}
		http.Redirect(w, r, target.Load().(string), http.StatusFound)
	})
	tools := pets(t, s.URL, nil)
	to := func(url string) writ.Result {
		target.Store(url)
		return must(t, tools, "listPets", `{}`)
	}
	if res := to("/there"); res.IsError || res.Content[0].Text != "arrived" {
		t.Errorf("%+v", res)
	}
	if r, _ := s.last(); r.Header.Get("X-Api-Key") == "" {
		t.Error("the credentials are lost on the way to the same service")
	}
	for _, url := range []string{private.URL, "http://169.254.169.254/latest/meta-data/", "http://[::1]:1/", "http://localhost:1/",
		strings.Replace(private.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1)} {
		res := to(url)
		if !res.IsError || !strings.Contains(res.Content[0].Text, "not public") {
			t.Errorf("%s: %+v", url, res)
		}
	}
	for _, url := range []string{"file:///etc/passwd", "ftp://x/", "http://u:p@127.0.0.1/"} {
		if res := to(url); !res.IsError || !strings.Contains(res.Content[0].Text, "it redirects to") {
			t.Errorf("%q: %+v", url, res)
		}
	}
	if n := private.effects.Load(); n != 0 {
		t.Fatalf("the private service was reached %d times", n)
	}
	target.Store("/loop")
	n := s.effects.Load()
	if res := must(t, tools, "listPets", `{}`); !res.IsError || !strings.Contains(res.Content[0].Text, "more than 5 times") || s.effects.Load() != n+6 {
		t.Errorf("%+v, %d requests", res, s.effects.Load()-n)
	}
	target.Store("/there")
	n = s.effects.Load()
	if res := must(t, tools, "deletePet", `{"petId":"1"}`); !res.IsError || s.effects.Load() != n+1 {
		t.Errorf("%+v", res)
	}

	allowed := pets(t, s.URL, func(c *Config) { c.AllowPrivate = []string{"127.0.0.0/8"} })
	target.Store(private.URL)
	if res := must(t, allowed, "listPets", `{"X-Trace":"t"}`); res.IsError || res.Content[0].Text != "internal" {
		t.Errorf("%+v", res)
	}
	r, _ := private.last()
	for _, h := range []string{"X-Api-Key", "X-Trace", "Cookie", "Idempotency-Key"} {
		if r.Header.Get(h) != "" {
			t.Errorf("%s went to another service", h)
		}
	}
}

// TestRebinding: a redirect to a name that was public when somebody looked and is private when it is connected to.
func TestRebinding(t *testing.T) {
	private := serve(t, answer(200, "text/plain", "internal"))
	_, port, _ := net.SplitHostPort(private.Listener.Addr().String())
	s := serve(t, func(_ *service, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://rebind.example.com:"+port+"/", http.StatusFound)
	})
	names := dialtest.New("127.0.0.1")
	res := must(t, pets(t, s.URL, func(c *Config) { c.resolver = names.Resolver() }), "listPets", `{}`)
	if !res.IsError || !strings.Contains(res.Content[0].Text, "not public") || names.Asked() == 0 || private.effects.Load() != 0 {
		t.Errorf("%+v, %d questions, reached %d times", res, names.Asked(), private.effects.Load())
	}
}

func TestTheDocumentsServerIsNotTrusted(t *testing.T) {
	s := serve(t, answer(200, "text/plain", "x"))
	spec := writeSpec(t, head+"servers: [{url: '"+s.URL+"'}]\npaths: {/a: {get: {operationId: a, responses: {'200': {description: ok}}}}}\n")
	_, err := do(t, open(t, Config{Spec: spec}), "a", `{}`)
	wantNotStarted(t, err, "not public")
	if s.effects.Load() != 0 {
		t.Error("it was reached")
	}
	must(t, open(t, Config{Spec: spec, AllowPrivate: []string{"127.0.0.1"}}), "a", `{}`)
	must(t, open(t, Config{Spec: spec, BaseURL: s.URL}), "a", `{}`)
}

// TestNoSecretComesOut: a service that repeats what it was sent, and every kind of failure.
func TestNoSecretComesOut(t *testing.T) {
	var log bytes.Buffer
	s := serve(t, func(_ *service, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/?k="+r.Header.Get("X-Api-Key"))
		w.WriteHeader(500)
		fmt.Fprintf(w, "you sent %v", r.Header)
	})
	tools := pets(t, s.URL, func(c *Config) {
		c.Headers["Authorization"] = "Bearer s3cret-token"
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	res := must(t, tools, "listPets", `{}`)
	wantWords(t, fmt.Sprint(res.Content), "[redacted]")
	s.Close()
	_, err := do(t, tools, "listPets", `{}`)
	wantNotStarted(t, err)
	wantWords(t, log.String())
}
