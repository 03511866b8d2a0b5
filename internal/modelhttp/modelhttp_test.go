package modelhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"writ"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-test-0123456789"

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		f    Failure
		want writ.ErrorClass
		text string
	}{
		{Failure{Status: 401, Type: "authentication_error", Message: "bad " + key}, writ.ErrorAuth, "401 authentication_error: the provider refuses the key"},
		{Failure{Status: 403, Message: "no such right"}, writ.ErrorAuth, "403: no such right"},
		{Failure{Status: 429, Message: "slow"}, writ.ErrorRateLimit, "429: slow"},
		{Failure{Status: 429, Code: "insufficient_quota"}, writ.ErrorInvalid, "429 insufficient_quota"},
		{Failure{Status: 529}, writ.ErrorOverloaded, "529"},
		{Failure{Status: 529, Type: "server_error"}, writ.ErrorOverloaded, "529 server_error"},
		{Failure{Status: 503, Type: "overloaded_error"}, writ.ErrorOverloaded, "503 overloaded_error"},
		{Failure{Status: 503}, writ.ErrorInternal, "503"},
		{Failure{Status: 500, Message: "maximum context length"}, writ.ErrorInternal, "500: maximum context length"},
		{Failure{Status: 408}, writ.ErrorNetwork, "408"},
		{Failure{Status: 409}, writ.ErrorOverloaded, "409"},
		{Failure{Status: 413}, writ.ErrorContextLimit, "413"},
		{Failure{Status: 400, Type: "invalid_request_error", Message: "prompt is too long: 3 > 2"}, writ.ErrorContextLimit, "400 invalid_request_error: prompt is too long: 3 > 2"},
		{Failure{Status: 400, Type: "BadRequestError", Message: "This model's maximum context length is 4096 tokens"}, writ.ErrorContextLimit, "400 BadRequestError: This model's maximum context length is 4096 tokens"},
		{Failure{Status: 400, Type: "invalid_request_error", Message: "x"}, writ.ErrorInvalid, "400 invalid_request_error: x"},
		{Failure{Status: 404}, writ.ErrorInvalid, "404"},
		{Failure{Status: 422}, writ.ErrorInvalid, "422"},
		{Failure{Type: "overloaded_error", Message: "Overloaded"}, writ.ErrorOverloaded, "overloaded_error: Overloaded"},
		{Failure{Code: "429", Message: "from upstream"}, writ.ErrorRateLimit, "429: from upstream"},
		{Failure{Message: "with " + key + " in it"}, writ.ErrorInternal, "with *** in it"},
		{Failure{}, writ.ErrorInternal, "the provider failed and did not say why"},
	} {
		e := c.f.ModelError(key)
		if e.Class != c.want || e.Message != c.text {
			t.Errorf("%+v: %s, %q; want %s, %q", c.f, e.Class, e.Message, c.want, c.text)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 7, 12, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second}, {"Retry-After", "1.5", 1500 * time.Millisecond}, {"Retry-After", " 3 ", 3 * time.Second},
		{"Retry-After", "Sun, 12 Jul 2026 09:01:00 GMT", time.Minute}, {"Retry-After", "Sun, 12 Jul 2026 08:00:00 GMT", 0},
		{"Retry-After", "soon", 0}, {"Retry-After", "-4", 0}, {"Retry-After", "NaN", 0}, {"Retry-After", "1e30", 24 * time.Hour},
		{"Retry-After-Ms", "250", 250 * time.Millisecond}, {"X-Other", "1", 0},
	} {
		if got := RetryAfter(http.Header{http.CanonicalHeaderKey(c.name): {c.value}}, now); got != c.want {
			t.Errorf("%s: %s is %s, want %s", c.name, c.value, got, c.want)
		}
	}
	if RetryAfter(nil, now) != 0 {
		t.Error("no header asks for a wait")
	}
}

func TestScrub(t *testing.T) {
	for in, want := range map[string]string{
		"key " + key + ".":                     "key ***.",
		"Incorrect key: sk-ab***yz99 given":    "Incorrect key: *** given",
		"Authorization: Bearer abcdef.ghi-jkl": "Authorization: ***",
		"two\nlines\t and \xff":                "two lines and \uFFFD",
		strings.Repeat("é", 400):               strings.Repeat("é", 300) + "…",
	} {
		if got := Scrub(in, key); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// fake is a transport whose stages take as long as they are told, on the bubble's clock.
type fake struct {
	connect, header time.Duration
	gaps            []time.Duration // before each byte of the body
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	trace.GetConn("host")
	if err := wait(r.Context(), f.connect); err != nil {
		return nil, err
	}
	trace.GotConn(httptrace.GotConnInfo{})
	if err := wait(r.Context(), f.header); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Body: &slow{r.Context(), f.gaps}, Request: r}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type slow struct {
	ctx  context.Context
	gaps []time.Duration
}

func (s *slow) Read(p []byte) (int, error) {
	if len(s.gaps) == 0 {
		return 0, io.EOF
	}
	if err := wait(s.ctx, s.gaps[0]); err != nil {
		return 0, err
	}
	s.gaps = s.gaps[1:]
	p[0] = 'x'
	return 1, nil
}

func (s *slow) Close() error { return nil }

func TestTimeouts(t *testing.T) {
	long := time.Hour
	for _, c := range []struct {
		name  string
		limit Timeouts
		peer  fake
		pause time.Duration // that the reader takes after each byte
		want  string        // "" = all is read
		after time.Duration
	}{
		{"all within the defaults", Timeouts{}, fake{9 * time.Second, 4 * time.Minute, []time.Duration{50 * time.Second, 179 * time.Second, 179 * time.Second}}, 0, "", 9*time.Second + 4*time.Minute + 50*time.Second + 2*179*time.Second},
		{"no connection", Timeouts{}, fake{long, 0, nil}, 0, "no connection after 10s", 10 * time.Second},
		{"no header", Timeouts{}, fake{time.Second, long, nil}, 0, "no byte of the answer after 5m0s", 5*time.Minute + time.Second},
		{"a header and no byte", Timeouts{}, fake{0, 4 * time.Minute, []time.Duration{long}}, 0, "no byte of the answer after 5m0s", 5 * time.Minute},
		{"a stall", Timeouts{}, fake{0, 0, []time.Duration{0, time.Minute, long}}, 0, "stalled: no byte for 3m0s", 4 * time.Minute},
		{"the reader's own time does not count", Timeouts{Idle: time.Second}, fake{0, 0, []time.Duration{0, 0, 0}}, time.Minute, "", 3 * time.Minute},
		{"no limits", Timeouts{-1, -1, -1}, fake{long, long, []time.Duration{long, long}}, 0, "", 4 * long},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hc, release := Client(&http.Client{Transport: &c.peer}, c.limit)
				defer release()
				begin := time.Now()
				err := read(t, hc, c.pause)
				var te *TimeoutError
				switch {
				case c.want == "" && err != nil:
					t.Error(err)
				case c.want != "" && (!errors.As(err, &te) || te.Error() != c.want || !te.Timeout()):
					t.Errorf("got %v, want %s", err, c.want)
				}
				if d := time.Since(begin); d != c.after {
					t.Errorf("took %s, want %s", d, c.after)
				}
				if c.want != "" {
					me := Broken(t.Context(), "x", key, err)
					var as *writ.ModelError
					if !errors.As(me, &as) || as.Class != writ.ErrorNetwork || as.Message != c.want || !errors.As(me, &te) {
						t.Errorf("as a model error: %v", me)
					}
				}
			})
		})
	}
}

func read(t *testing.T, hc *http.Client, pause time.Duration) error {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://host.invalid", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	for {
		n, err := res.Body.Read(make([]byte, 8))
		if n > 0 {
			<-time.After(pause)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// TestRedirect: credentials are sent nowhere but where they were meant to go.
func TestRedirect(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://other.invalid/", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	hc, release := Client(nil, Timeouts{})
	defer release()
	_, err := hc.Post(s.URL, "application/json", strings.NewReader("{}"))
	var me *writ.ModelError
	if !errors.As(Broken(t.Context(), "x", key, err), &me) || me.Class != writ.ErrorInvalid || strings.Contains(me.Message, "other.invalid") {
		t.Errorf("%v", err)
	}
}

// TestCallersEnd: what the caller ends is no error of the provider.
func TestCallersEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	err := Broken(ctx, "x", key, fmt.Errorf("reading: %w", context.Canceled))
	var me *writ.ModelError
	if errors.As(err, &me) || !errors.Is(err, why) || err.Error() != "x: streaming: enough" {
		t.Error(err)
	}
}
