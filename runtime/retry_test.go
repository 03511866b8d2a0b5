package runtime_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"writ"
	"writ/config"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

// flaky fails as its script says, then answers.
type flaky struct {
	fails  []error
	before string // streamed before each failure
	calls  int
	answer string
}

func (f *flaky) Stream(context.Context, *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	f.calls++
	n := f.calls
	return func(yield func(writ.ModelEvent, error) bool) {
		if n <= len(f.fails) {
			if f.before != "" && !yield(writ.ModelEvent{Kind: writ.ModelText, Text: f.before}, nil) {
				return
			}
			if f.fails[n-1] != nil { // nil: cut
				yield(writ.ModelEvent{}, f.fails[n-1])
			}
			return
		}
		_ = yield(writ.ModelEvent{Kind: writ.ModelText, Text: `<channel:action>{"action":"complete","final_answer":"` + f.answer + `"}</channel:action>`}, nil) &&
			yield(writ.ModelEvent{Kind: writ.ModelUsage, Usage: writ.Usage{Input: 100, Output: 10}}, nil) &&
			yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: writ.FinishStop}, nil)
	}
}

func fails(class writ.ErrorClass, n int) []error {
	var out []error
	for range n {
		out = append(out, &writ.ModelError{Class: class, Message: "no"})
	}
	return out
}

// retryBench runs one turn against a chain of models and keeps the pauses.
type retryBench struct {
	*bench
	pauses []time.Duration
	stop   context.CancelFunc
}

func newRetryBench(t *testing.T, react string) *retryBench {
	b := newBench(t, transcript{archive: &txtar.Archive{Files: []txtar.File{
		{Name: "agent.yaml", Data: []byte("react: {" + react + "}\nsurfaces: {as_consumer: {default_agent: main, agents: {main: {tools: [{kind: go, alias: t, allowed: [launch]}]}}}}\n")},
		{Name: "tools/t", Data: []byte("launch: {strategy: [neutral], early: true}\n")},
		{Name: "model", Data: []byte("writ_recording: 1\ndialect: channel\nrounds: [{finish: cut}]")}}}}, memory.Open())
	return &retryBench{bench: b}
}

func (b *retryBench) run(first *flaky, others ...*flaky) runtime.Outcome {
	b.t.Helper()
	rt, err := runtime.New(runtime.Config{Store: b.store, Key: []byte("0123456789abcdef"), Dir: b.dir, NewID: b.newID, Now: func() time.Time { return b.now },
		Wait: func(ctx context.Context, d time.Duration) error {
			b.pauses = append(b.pauses, d)
			if b.stop != nil {
				b.stop()
			}
			return ctx.Err()
		}})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if b.stop != nil {
		b.stop = cancel
	}
	in := runtime.Input{Agent: b.agent, Connections: b.connections(), Conversation: "conv", Message: "go",
		Model: func(context.Context) (writ.Model, string, error) { return first, "first", nil },
		Price: func(model string) (config.Price, bool) {
			return config.Price{Input: 10, Output: 100}, model == "second"
		},
		Sink: func(e runtime.Event) { b.events = append(b.events, e) }}
	for i, m := range others {
		in.Fallback = append(in.Fallback, runtime.Choice{Name: []string{"second", "third"}[i], Model: m})
	}
	out, err := rt.Run(ctx, in)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *retryBench) notices() string {
	var out []string
	for _, e := range b.events {
		if e.Type == runtime.EventNotice && strings.HasPrefix(string(e.Code), "model_") {
			out = append(out, string(e.Code))
		}
	}
	return strings.Join(out, " ")
}

func TestRetries(t *testing.T) {
	limited := &writ.ModelError{Class: writ.ErrorRateLimit, RetryAfter: 7 * time.Second}
	forever := &writ.ModelError{Class: writ.ErrorRateLimit, RetryAfter: time.Hour}
	for _, c := range []struct {
		name    string
		react   string
		first   *flaky
		others  []*flaky
		state   string
		answer  string
		calls   int // of the first
		notices string
		reason  string
	}{
		{name: "overloaded twice", first: &flaky{fails: fails(writ.ErrorOverloaded, 2)}, state: store.TurnAnswered, answer: "first", calls: 3, notices: "model_retry model_retry"},
		{name: "cut once", first: &flaky{fails: []error{nil}, before: "<channel:thinking>x"}, state: store.TurnAnswered, answer: "first", calls: 2, notices: "model_retry"},
		{name: "retry-after", first: &flaky{fails: []error{limited, forever}}, state: store.TurnAnswered, answer: "first", calls: 3, notices: "model_retry model_retry"},
		{name: "the budget", react: "max_retries: 2", first: &flaky{fails: fails(writ.ErrorOverloaded, 9)}, state: store.TurnFailed, calls: 3, notices: "model_retry model_retry", reason: "overloaded"},
		{name: "no retries", react: "max_retries: 0", first: &flaky{fails: fails(writ.ErrorOverloaded, 1)}, state: store.TurnFailed, calls: 1, reason: "overloaded"},
		{name: "a refused key is not tried again", first: &flaky{fails: fails(writ.ErrorAuth, 9)}, state: store.TurnFailed, calls: 1, reason: "auth"},
		{name: "any other error is not tried again", first: &flaky{fails: []error{errors.New("broken adapter")}}, state: store.TurnFailed, calls: 1, reason: "broken adapter"},
		{name: "the next model after three", first: &flaky{fails: fails(writ.ErrorOverloaded, 9)}, others: []*flaky{{answer: "second"}}, state: store.TurnAnswered, answer: "second", calls: 3,
			notices: "model_retry model_retry model_changed"},
		{name: "the next model at once", first: &flaky{fails: fails(writ.ErrorAuth, 9)}, others: []*flaky{{answer: "second"}}, state: store.TurnAnswered, answer: "second", calls: 1, notices: "model_changed"},
		{name: "the chain", react: "max_retries: 9", first: &flaky{fails: fails(writ.ErrorInvalid, 9)}, others: []*flaky{{fails: fails(writ.ErrorNetwork, 3), answer: "second"}, {answer: "third"}}, state: store.TurnAnswered,
			answer: "third", calls: 1, notices: "model_changed model_retry model_retry model_changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.first.answer = "first"
			b := newRetryBench(t, c.react)
			out := b.run(c.first, c.others...)
			if out.State != c.state || out.Answer != c.answer || c.first.calls != c.calls || b.notices() != c.notices || !strings.Contains(out.Reason, c.reason) {
				t.Errorf("%+v, %d calls, notices %q", out, c.first.calls, b.notices())
			}
			if c.name == "retry-after" && (b.pauses[0] != 7*time.Second || b.pauses[1] != time.Minute) {
				t.Errorf("pauses %v", b.pauses)
			}
			for i, d := range b.pauses {
				if d <= 0 || d > time.Minute {
					t.Errorf("pause %d is %s", i, d)
				}
			}
			if want := 100*10/1e6 + 10*100/1e6; c.answer == "second" && math.Abs(out.Cost-want) > 1e-12 || c.answer == "first" && out.Cost != 0 {
				t.Errorf("cost %v", out.Cost)
			}
		})
	}
}

// TestNoRetryRepeatsAStartedAction: the effect happens once, over retries and a change of model.
func TestNoRetryRepeatsAStartedAction(t *testing.T) {
	launch := `<channel:action>{"action":"call_tool","tool_call":{"tool_id":"t.launch","params":{"n":1}}}</channel:action>`
	b := newRetryBench(t, "max_retries: 9")
	out := b.run(&flaky{fails: fails(writ.ErrorNetwork, 9), before: launch}, &flaky{fails: []error{nil, nil}, before: launch, answer: "second"})
	if out.Answer != "second" || len(b.tools["t"].calls) != 1 {
		t.Errorf("%+v; calls %v", out, b.tools["t"].calls)
	}
}

func TestStoppedInAPause(t *testing.T) {
	b := newRetryBench(t, "")
	b.stop = func() {}
	if out := b.run(&flaky{fails: fails(writ.ErrorOverloaded, 9)}); out.State != store.TurnInterrupted {
		t.Errorf("%+v", out)
	}
}
