package runtime_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"writ"
	"writ/internal/timeline"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

// curious asks before it does anything, as often as it is told to.
type curious struct {
	asks  int
	calls []writ.Call
}

func (c *curious) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	return []writ.ToolSpec{{Name: "get", Description: "Ask first."}}, nil, nil
}
func (c *curious) Close() error { return nil }
func (c *curious) Call(_ context.Context, call writ.Call) (writ.Result, error) {
	c.calls = append(c.calls, call)
	call.Progress(1, 2, "half")
	if len(c.calls) <= c.asks {
		return writ.Result{}, &writ.InputRequired{Requests: json.RawMessage(`{"q":{"method":"elicitation/create"}}`), State: "opaque"}
	}
	return writ.TextResult("done with %s", call.Input), nil
}

func askOnce(t *testing.T, tool *curious, ask func(context.Context, runtime.Question) (json.RawMessage, bool)) (store.Action, []store.Block) {
	t.Helper()
	st := memory.Open()
	b := newBench(t, transcript{archive: &txtar.Archive{Files: []txtar.File{{Name: "agent.yaml", Data: []byte(strings.Replace(getAgent, "DIALECT", "channel", 1))},
		{Name: "model", Data: []byte("writ_recording: 1\ndialect: channel\nrounds: [{finish: cut}]")}}}}, st)
	model := &callsThenAnswers{dialect: writ.Channel}
	told := 0
	defer func() {
		if told != len(tool.calls) {
			t.Errorf("%d progress events of %d calls", told, len(tool.calls))
		}
	}()
	sink := func(e runtime.Event) {
		if e.Type == runtime.EventProgress && e.Tool == "t.get" && e.Done == 1 && e.Total == 2 && e.Text == "half" {
			told++
		}
	}
	out, err := b.runtime().Run(context.Background(), runtime.Input{Agent: b.agent, Conversation: "conv", Message: "go", Ask: ask, Sink: sink,
		Connections: []runtime.Connection{{Config: b.agent.Connections[0], Tools: tool}},
		Model:       func(context.Context) (writ.Model, string, error) { return model, "fake", nil }})
	if err != nil || out.State != store.TurnAnswered {
		t.Fatalf("%+v %v", out, err)
	}
	rows, err := st.Actions(context.Background(), store.ActionFilter{})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%v %v", rows, err)
	}
	blocks, err := st.Blocks(context.Background(), "conv", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return rows[0], blocks
}

// A call that asks is one action with one grant: the answers continue it.
func TestAToolAsksInTheMiddleOfACall(t *testing.T) {
	tool := &curious{asks: 2}
	row, blocks := askOnce(t, tool, func(_ context.Context, q runtime.Question) (json.RawMessage, bool) {
		if q.Tool != "t.get" || !strings.Contains(string(q.Requests), "elicitation/create") {
			t.Errorf("%+v", q)
		}
		return json.RawMessage(`{"q":{"action":"accept"}}`), true
	})
	if row.State != writ.Succeeded || len(tool.calls) != 3 {
		t.Errorf("%s after %d calls", row.State, len(tool.calls))
	}
	for i, c := range tool.calls {
		if c.IdempotencyKey != row.IdempotencyKey || (len(c.Input) == 0) != (i == 0) || i > 0 && !strings.Contains(string(c.Input), "opaque") {
			t.Errorf("call %d: %+v", i, c)
		}
	}
	asked := 0
	for _, b := range blocks {
		if b.Kind == timeline.KindQuestion && b.ActionID == row.ID {
			asked++
		}
	}
	if asked != 2 {
		t.Errorf("%d questions are stored", asked)
	}
}

// Without an answer nobody knows what the tool did before it asked.
func TestAQuestionWithoutAnAnswerIsUnknown(t *testing.T) {
	for name, ask := range map[string]func(context.Context, runtime.Question) (json.RawMessage, bool){
		"nobody there": nil,
		"no answer":    func(context.Context, runtime.Question) (json.RawMessage, bool) { return nil, false },
	} {
		tool := &curious{asks: 1}
		if row, _ := askOnce(t, tool, ask); row.State != writ.Indeterminate || len(tool.calls) != 1 {
			t.Errorf("%s: %s after %d calls", name, row.State, len(tool.calls))
		}
	}
	// One that never stops asking is stopped.
	tool := &curious{asks: 100}
	row, _ := askOnce(t, tool, func(context.Context, runtime.Question) (json.RawMessage, bool) { return json.RawMessage(`{}`), true })
	if row.State != writ.Indeterminate || len(tool.calls) != 8 {
		t.Errorf("%s after %d calls", row.State, len(tool.calls))
	}
}
