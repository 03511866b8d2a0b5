package gofunc

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"writ"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type params struct {
	City string   `json:"city" jsonschema:"the city's name"`
	Days int      `json:"days,omitempty"`
	Tags []string `json:"tags,omitempty"`
}

func answer(text string) func(context.Context, writ.Call, params) (writ.Result, error) {
	return func(_ context.Context, _ writ.Call, in params) (writ.Result, error) {
		return writ.TextResult("%s %s %d", text, in.City, in.Days), nil
	}
}

func set(t *testing.T, funcs ...Function) *Funcs {
	t.Helper()
	s, err := Set(funcs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestToolsAreSortedWithInferredSchema(t *testing.T) {
	explore := writ.Exploration
	s := set(t,
		Func("zeta", "Last.", answer("z"), Options{}),
		Func("alpha", " First. ", answer("a"), Options{Effect: writ.EffectNone, Local: true,
			Traits: &writ.DeclaredTraits{Strategy: &explore}, Paths: writ.ToolPaths{Reads: []string{"city"}}}))
	tools, problems, err := s.Tools(t.Context())
	if err != nil || len(problems) != 0 || len(tools) != 2 || tools[0].Name != "alpha" || tools[1].Name != "zeta" {
		t.Fatalf("got %+v, %v, %v", tools, problems, err)
	}
	want := `{"type":"object","required":["city"],"properties":{"city":{"type":"string","description":"the city's name"},` +
		`"days":{"type":"integer"},"tags":{"type":["null","array"],"items":{"type":"string"}}},"additionalProperties":false}`
	if !sameJSON(t, string(tools[0].Schema), want) {
		t.Errorf("schema %s\nwant   %s", tools[0].Schema, want)
	}
	if a := tools[0]; a.Description != "First." || !a.Local || *a.Declared.Strategy != writ.Exploration || a.Paths.Reads[0] != "city" {
		t.Errorf("options were lost: %+v", a)
	}
	if tools[1].Declared != nil {
		t.Errorf("a function that declares nothing has traits %+v", tools[1].Declared)
	}
	if e := s.Effects(); e["alpha"] != writ.EffectNone || e["zeta"] != writ.EffectOnce || len(e) != 2 {
		t.Errorf("effects %v", e)
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	ja, _ := json.Marshal(x)
	jb, _ := json.Marshal(y)
	return string(ja) == string(jb)
}

func TestSetReportsEveryMistake(t *testing.T) {
	_, err := Set(
		Func("same", "", answer(""), Options{}),
		Func("same", "", answer(""), Options{}),
		Func("with space", "", answer(""), Options{}),
		Func("number", "", func(context.Context, writ.Call, int) (writ.Result, error) { return writ.Result{}, nil }, Options{}),
		Func("channel", "", func(context.Context, writ.Call, struct{ C chan int }) (writ.Result, error) { return writ.Result{}, nil }, Options{}),
		Func[params]("nothing", "", nil, Options{}),
		Func("paths", "", answer(""), Options{Paths: writ.ToolPaths{Writes: []string{"town"}}}),
		Function{},
	)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"same: registered twice", `"with space"`, "number: parameters", "channel: parameters",
		"nothing: no function", `paths: the options name a parameter "town"`, "not made by Func"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestCall(t *testing.T) {
	boom := func(context.Context, writ.Call, params) (writ.Result, error) { panic("kaboom") }
	s := set(t,
		Func("ok", "", answer("weather"), Options{}),
		Func("panics", "", boom, Options{}),
		Func("goexit", "", func(context.Context, writ.Call, params) (writ.Result, error) { runtime.Goexit(); panic("never") }, Options{}),
		Func("lost", "", func(context.Context, writ.Call, params) (writ.Result, error) {
			return writ.Result{}, errors.New("connection reset")
		}, Options{}),
		Func("refuses", "", func(context.Context, writ.Call, params) (writ.Result, error) {
			return writ.Result{}, writ.ErrNotStarted
		}, Options{}),
		Func("key", "", func(_ context.Context, c writ.Call, _ struct{}) (writ.Result, error) {
			return writ.TextResult("%s", c.IdempotencyKey), nil
		}, Options{}),
	)
	for _, tc := range []struct {
		tool, params, text, err string
		notStarted              bool
	}{
		{tool: "ok", params: `{"city":"Bern","days":2}`, text: "weather Bern 2"},
		{tool: "key", params: ``, text: "k-1"},
		{tool: "ok", params: `{"city":7}`, err: "do not fit", notStarted: true},
		{tool: "ok", params: `{"city":"Bern","town":"x"}`, err: "do not fit", notStarted: true},
		{tool: "panics", params: `{"city":"x"}`, err: "panic: kaboom"},
		{tool: "goexit", params: `{"city":"x"}`, err: "ended its goroutine"},
		{tool: "lost", params: `{"city":"x"}`, err: "connection reset"},
		{tool: "refuses", params: `{"city":"x"}`, err: "not started", notStarted: true},
		{tool: "absent", params: `{}`, err: "no longer offered", notStarted: true},
	} {
		res, err := s.Call(t.Context(), writ.Call{Tool: tc.tool, Params: json.RawMessage(tc.params), IdempotencyKey: "k-1"})
		if tc.err == "" {
			if err != nil || res.IsError || len(res.Content) != 1 || res.Content[0].Text != tc.text {
				t.Errorf("%s(%s) = %+v, %v; want %q", tc.tool, tc.params, res, err, tc.text)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.err) || errors.Is(err, writ.ErrNotStarted) != tc.notStarted {
			t.Errorf("%s(%s) error %v; want %q, not started %v", tc.tool, tc.params, err, tc.err, tc.notStarted)
		}
	}
	_, err := s.Call(t.Context(), writ.Call{Tool: "panics", Params: json.RawMessage(`{"city":"x"}`)})
	if err == nil || !strings.Contains(err.Error(), "gofunc_test.go:") {
		t.Errorf("the place of the panic is missing: %v", err)
	}
}

func TestCancelReturnsAtOnceAndCloseWaits(t *testing.T) {
	started, release, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s, err := Set(Func("stubborn", "", func(ctx context.Context, _ writ.Call, _ struct{}) (writ.Result, error) {
		close(started)
		<-release
		close(left)
		return writ.TextResult("done"), nil
	}, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s.Call(ctx, writ.Call{Tool: "stubborn"})
		result <- err
	}()
	<-started
	cancel()
	if err := <-result; err == nil || errors.Is(err, writ.ErrNotStarted) || !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled running call must be unknown, got %v", err)
	}
	if _, err := s.Call(ctx, writ.Call{Tool: "stubborn"}); !errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("a call with an ended context must not start, got %v", err)
	}
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	select {
	case <-closed:
		t.Fatal("Close did not wait for the running function")
	default:
	}
	close(release)
	<-closed
	select {
	case <-left:
	default:
		t.Error("Close returned before the function had")
	}
	if _, err := s.Call(t.Context(), writ.Call{Tool: "stubborn"}); !errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("a call after Close must not start, got %v", err)
	}
}

func TestCloseCancelsRunning(t *testing.T) {
	started := make(chan struct{})
	s, err := Set(Func("polite", "", func(ctx context.Context, _ writ.Call, _ struct{}) (writ.Result, error) {
		close(started)
		<-ctx.Done()
		return writ.Result{}, context.Cause(ctx)
	}, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := s.Call(context.Background(), writ.Call{Tool: "polite"})
		result <- err
	}()
	<-started
	s.Close()
	if err := <-result; err == nil || errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("got %v, want unknown", err)
	}
}
