package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"writ"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

// asks, then the continuation cannot be sent
type asksThenGone struct{ n int }

func (c *asksThenGone) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	return []writ.ToolSpec{{Name: "get", Description: "Ask first."}}, nil, nil
}
func (c *asksThenGone) Close() error { return nil }
func (c *asksThenGone) Call(_ context.Context, call writ.Call) (writ.Result, error) {
	c.n++
	if c.n == 1 {
		return writ.Result{}, &writ.InputRequired{Requests: json.RawMessage(`{"q":{"method":"elicitation/create"}}`)}
	}
	return writ.Result{}, fmt.Errorf("server died: %w", writ.ErrNotStarted)
}

func runOne(t *testing.T, tool writ.Toolset, sink runtime.Sink, grace time.Duration, react string) (runtime.Outcome, store.Action, *runtime.Runtime) {
	t.Helper()
	st := memory.Open()
	y := strings.Replace(getAgent, "DIALECT", "channel", 1)
	if react != "" {
		y = strings.Replace(y, "max_result_chars: 1000", "max_result_chars: 1000, "+react, 1)
	}
	b := newBench(t, transcript{archive: &txtar.Archive{Files: []txtar.File{{Name: "agent.yaml", Data: []byte(y)},
		{Name: "model", Data: []byte("writ_recording: 1\ndialect: channel\nrounds: [{finish: cut}]")}}}}, st)
	model := &callsThenAnswers{dialect: writ.Channel}
	rt, err := runtime.New(runtime.Config{Store: st, Key: []byte("0123456789abcdef"), Dir: t.TempDir(), CallGrace: grace})
	if err != nil {
		t.Fatal(err)
	}
	out, err := rt.Run(context.Background(), runtime.Input{Agent: b.agent, Conversation: "conv", Message: "go", Sink: sink,
		Ask: func(context.Context, runtime.Question) (json.RawMessage, bool) {
			return json.RawMessage(`{"q":{"action":"accept"}}`), true
		},
		Connections: []runtime.Connection{{Config: b.agent.Connections[0], Tools: tool}},
		Model:       func(context.Context) (writ.Model, string, error) { return model, "fake", nil }})
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := st.Actions(context.Background(), store.ActionFilter{})
	return out, rows[0], rt
}

func TestAnAnswerThatCannotBeHandedOverIsUnknown(t *testing.T) {
	_, row, _ := runOne(t, &asksThenGone{}, nil, 0, "")
	if row.State != writ.Indeterminate {
		t.Errorf("effect may have begun before the question, row says %s (%s)", row.State, row.Failure)
	}
}

type lateProgress struct {
	fn func(float64, float64, string)
}

func (c *lateProgress) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	return []writ.ToolSpec{{Name: "get", Description: "x"}}, nil, nil
}
func (c *lateProgress) Close() error { return nil }
func (c *lateProgress) Call(_ context.Context, call writ.Call) (writ.Result, error) {
	c.fn = call.Progress
	return writ.TextResult("x"), nil
}

func TestNoEventAfterTheEnd(t *testing.T) {
	var mu sync.Mutex
	var ev []runtime.Event
	tool := &lateProgress{}
	runOne(t, tool, func(e runtime.Event) { mu.Lock(); ev = append(ev, e); mu.Unlock() }, 0, "")
	tool.fn(1, 2, "late")
	if l := ev[len(ev)-1]; l.Type != runtime.EventTurnEnded {
		t.Errorf("last event is %s", l.Type)
	}
}

type badAsk struct{}

func (badAsk) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	return []writ.ToolSpec{{Name: "get", Description: "x"}}, nil, nil
}
func (badAsk) Close() error { return nil }
func (badAsk) Call(_ context.Context, call writ.Call) (writ.Result, error) {
	return writ.Result{}, &writ.InputRequired{Requests: json.RawMessage(`{bad`)}
}

func TestAMalformedQuestionEndsNothing(t *testing.T) { runOne(t, badAsk{}, nil, 0, "") }

func TestAResultIsBoundedAsAWhole(t *testing.T) {
	var parts []writ.Content
	for range 2000 {
		parts = append(parts, writ.Content{Kind: writ.ContentText, Text: strings.Repeat("x", 1000)})
	}
	res, req, _ := getOnce(t, writ.Native, memory.Open(), answers{res: writ.Result{Content: parts}})
	t.Logf("max_result_chars 1000: prompt has %d bytes, ref %q", len(requestText(req)), res.Ref)
	if len(requestText(req)) > 100_000 {
		t.Error("unbounded")
	}
}
func TestAnErrorIsBounded(t *testing.T) {
	_, req, _ := getOnce(t, writ.Native, memory.Open(), answers{err: errors.New(strings.Repeat("y", 3<<20))})
	if n := len(requestText(req)); n > 100_000 {
		t.Errorf("error text in prompt: %d bytes", n)
	}
}

func TestTheNewestPlanIsCurrent(t *testing.T) {
	seen := map[string]int{}
	for range 30 {
		b := goBench(t, memory.Open(), "react: {}\n"+fmt.Sprintf(oneConnection, ""),
			says(`<channel:action>{"action":"call_tool","tool_call":{"tool_id":"react.plan","params":{"mode":"new","plan_id":"a","steps":["a1"]}}}</channel:action>`),
			says(`<channel:action>{"action":"call_tool","tool_call":{"tool_id":"react.plan","params":{"mode":"new","plan_id":"b","steps":["b1"]}}}</channel:action>`),
			says(`<channel:action>{"action":"call_tool","tool_call":{"tool_id":"react.plan","params":{"mode":"step","step":1,"status":"done"}}}</channel:action>`),
			says(finalDone))
		b.run(funcs{})
		blocks, _ := b.store.Blocks(context.Background(), b.rows()[0].Conversation, 0, 0)
		last := ""
		for _, bl := range blocks {
			if bl.Kind == "plan" {
				last = string(bl.Body)
			}
		}
		seen[last]++
	}
	if len(seen) != 1 {
		t.Errorf("%v", seen)
	}
}
