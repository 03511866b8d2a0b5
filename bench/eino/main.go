// Command eino measures what a turn costs on top of the model, in one process and one run: a bare loop, Eino's ReAct
// agent, and Writ on memory and on SQLite. All call the same scripted model (two calls, one tool) that takes no time.
//
// It is a module of its own, so that Eino's requirements are not Writ's:
//
//	cd bench/eino && go run .
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"sort"
	"time"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"

	"writ"
	"writ/config"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
	"writ/store/sqlite"
)

const turns = 2000

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	bare, err := measure(bareTurn)
	if err != nil {
		return err
	}
	agent, err := einoAgent()
	if err != nil {
		return err
	}
	eino, err := measure(func() error { return einoTurn(agent) })
	if err != nil {
		return err
	}
	fmt.Printf("%-28s %10s  %s\n", "turn (2 model calls, 1 tool)", "median", "of Eino's")
	row := func(name string, d time.Duration) {
		fmt.Printf("%-28s %10s  %.2fx\n", name, d.Round(100*time.Nanosecond), float64(d)/float64(eino))
	}
	row("bare loop", bare)
	row("Eino ReAct, in memory", eino)
	for _, s := range []struct {
		name string
		open func() (store.Store, error)
	}{
		{"Writ, memory", func() (store.Store, error) { return memory.Open(), nil }},
		{"Writ, SQLite, every step", func() (store.Store, error) {
			dir, err := os.MkdirTemp("", "writ-bench-")
			if err != nil {
				return nil, err
			}
			return sqlite.Open(context.Background(), dir)
		}},
	} {
		d, err := writTurns(s.open)
		if err != nil {
			return err
		}
		row(s.name, d)
	}
	fmt.Println("\nEino keeps nothing. Writ on memory keeps a ledger and a timeline; on SQLite each step is durable before the next.")
	return nil
}

func measure(turn func() error) (time.Duration, error) {
	var took []time.Duration
	for i := range turns {
		began := time.Now()
		if err := turn(); err != nil {
			return 0, fmt.Errorf("turn %d: %w", i, err)
		}
		took = append(took, time.Since(began))
	}
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	return took[len(took)/2], nil
}

// The bare loop: ask, call, ask again.
func bareTurn() error {
	history := []string{"go"}
	for n := range 2 {
		if n == 1 {
			history = append(history, "done")
			break
		}
		var in struct{ N int }
		if err := json.Unmarshal([]byte(`{"n":1}`), &in); err != nil {
			return err
		}
		history = append(history, fmt.Sprint(in.N+1))
	}
	return nil
}

// einoModel is the scripted model in Eino's form.
type einoModel struct{}

func (einoModel) next(in []*schema.Message) *schema.Message {
	if in[len(in)-1].Role == schema.Tool {
		return schema.AssistantMessage("done", nil)
	}
	return schema.AssistantMessage("", []schema.ToolCall{{ID: "c1", Function: schema.FunctionCall{Name: "add", Arguments: `{"n":1}`}}})
}

func (m einoModel) Generate(_ context.Context, in []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	return m.next(in), nil
}

func (m einoModel) Stream(_ context.Context, in []*schema.Message, _ ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	return schema.StreamReaderFromArray([]*schema.Message{m.next(in)}), nil
}

func (m einoModel) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) { return m, nil }

type add struct{}

func (add) Info(context.Context) (*schema.ToolInfo, error) {
	return &schema.ToolInfo{Name: "add", Desc: "Add one.", ParamsOneOf: schema.NewParamsOneOfByParams(map[string]*schema.ParameterInfo{"n": {Type: schema.Integer, Required: true}})}, nil
}

func (add) InvokableRun(_ context.Context, args string, _ ...tool.Option) (string, error) {
	var in struct{ N int }
	if err := json.Unmarshal([]byte(args), &in); err != nil {
		return "", err
	}
	return fmt.Sprint(in.N + 1), nil
}

func einoAgent() (*react.Agent, error) {
	return react.NewAgent(context.Background(), &react.AgentConfig{ToolCallingModel: einoModel{}, ToolsConfig: compose.ToolsNodeConfig{Tools: []tool.BaseTool{add{}}}})
}

func einoTurn(a *react.Agent) error {
	s, err := a.Stream(context.Background(), []*schema.Message{schema.UserMessage("go")})
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := schema.ConcatMessageStream(s)
	if err != nil {
		return err
	}
	if m.Content != "done" {
		return fmt.Errorf("answer %q", m.Content)
	}
	return nil
}

// writModel is the scripted model in Writ's form.
type writModel struct{}

func (writModel) Stream(_ context.Context, req *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	events := []writ.ModelEvent{{Kind: writ.ModelToolOpen, ID: "c1", Name: "t__add"}, {Kind: writ.ModelToolArgs, Text: `{"n":1}`}, {Kind: writ.ModelBlockEnd}, {Kind: writ.ModelFinish, Finish: writ.FinishTools}}
	for _, m := range req.Messages {
		if m.Parts[0].Kind == writ.PartToolResult {
			events = []writ.ModelEvent{{Kind: writ.ModelText, Text: "done"}, {Kind: writ.ModelBlockEnd}, {Kind: writ.ModelFinish, Finish: writ.FinishStop}}
		}
	}
	return func(yield func(writ.ModelEvent, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

type writAdd struct{}

func (writAdd) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	return []writ.ToolSpec{{Name: "add", Description: "Add one.", Schema: json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)}}, nil, nil
}

func (writAdd) Call(_ context.Context, c writ.Call) (writ.Result, error) {
	var in struct{ N int }
	if err := json.Unmarshal(c.Params, &in); err != nil {
		return writ.Result{}, err
	}
	return writ.TextResult("%d", in.N+1), nil
}

func (writAdd) Close() error { return nil }

const writAgent = `
react: {dialect: native}
surfaces: {as_consumer: {default_agent: main, agents: {main: {tools: [{kind: go, alias: t, allowed: [add], tool_traits: {add: {strategy: exploration}}}]}}}}
`

func writTurns(open func() (store.Store, error)) (time.Duration, error) {
	st, err := open()
	if err != nil {
		return 0, err
	}
	defer st.Close()
	dir, err := os.MkdirTemp("", "writ-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	cfg, report := config.Parse("agent.yaml", []byte(writAgent), dir)
	if !report.OK() {
		return 0, report.Err()
	}
	agent, err := cfg.Agent("")
	if err != nil {
		return 0, err
	}
	rt, err := runtime.New(runtime.Config{Store: st, Key: make([]byte, 32), Dir: dir})
	if err != nil {
		return 0, err
	}
	defer rt.Close()
	in := runtime.Input{Agent: agent, Connections: []runtime.Connection{{Config: agent.Connections[0], Tools: writAdd{}}}, Message: "go",
		Model: func(context.Context) (writ.Model, string, error) { return writModel{}, "scripted", nil }}
	return measure(func() error {
		out, err := rt.Run(context.Background(), in)
		if err == nil && out.Answer != "done" {
			err = fmt.Errorf("answer %q: %s", out.Answer, out.Reason)
		}
		return err
	})
}
