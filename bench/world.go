// Package bench measures what governance costs: the same fake model and the same no-op tools with and without it, and
// durable writes beside the disk's own. Nothing here asserts a time; README.md says how to read the numbers.
//
// The measurements are functions of a *testing.B, so that `go test -bench . ./bench` and `go run ./bench/report` run
// the same code.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"

	"writ"
	"writ/config"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
	"writ/store/sqlite"
)

// Opener opens an empty store that ends with the benchmark.
type Opener func(b *testing.B) store.Store

// Memory opens a store that forgets.
func Memory(*testing.B) store.Store { return memory.Open() }

// SQLite opens a store on disk, with an fsync for each group of commits.
func SQLite(b *testing.B) store.Store {
	s, err := sqlite.Open(context.Background(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// model is a function as a [writ.Model].
type model func(ctx context.Context, req *writ.ModelRequest, yield func(writ.ModelEvent, error) bool)

func (m model) Stream(ctx context.Context, req *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	return func(yield func(writ.ModelEvent, error) bool) { m(ctx, req, yield) }
}

// calling is a model that calls k tools in each of the first rounds, in the provider's own shapes, and then answers.
// It does no work of its own.
func calling(rounds, k int) model {
	args := make([]string, k)
	for i := range args {
		args[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	return func(_ context.Context, req *writ.ModelRequest, yield func(writ.ModelEvent, error) bool) {
		if roundOf(req) > rounds {
			_ = yield(writ.ModelEvent{Kind: writ.ModelText, Text: "done"}, nil) &&
				yield(writ.ModelEvent{Kind: writ.ModelUsage, Usage: writ.Usage{Input: 10, Output: 1}}, nil) &&
				yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: writ.FinishStop}, nil)
			return
		}
		for i, a := range args {
			if !yield(writ.ModelEvent{Kind: writ.ModelToolOpen, Block: i, ID: fmt.Sprint("toolu_", i), Name: "probe__noop"}, nil) ||
				!yield(writ.ModelEvent{Kind: writ.ModelToolArgs, Block: i, Text: a}, nil) || !yield(writ.ModelEvent{Kind: writ.ModelBlockEnd, Block: i}, nil) {
				return
			}
		}
		_ = yield(writ.ModelEvent{Kind: writ.ModelUsage, Usage: writ.Usage{Input: 10, Output: 10}}, nil) &&
			yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: writ.FinishTools}, nil)
	}
}

// roundOf reads the round from the call's name, "turn/round/attempt".
func roundOf(req *writ.ModelRequest) int {
	parts := strings.Split(req.Call, "/")
	n := 0
	if len(parts) > 1 {
		_, _ = fmt.Sscan(parts[1], &n) // 0 when it is none: such a model only answers
	}
	return n
}

// tools is a connection of one kind of tool.
type tools struct {
	specs []writ.ToolSpec
	call  func(ctx context.Context, c writ.Call) (writ.Result, error)
}

func (t *tools) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	return t.specs, nil, nil
}

func (t *tools) Call(ctx context.Context, c writ.Call) (writ.Result, error) { return t.call(ctx, c) }

func (t *tools) Close() error { return nil }

var (
	noopSchema = json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)
	ok         = writ.TextResult("ok")
)

// noop is a connection whose one tool does nothing.
func noop() *tools {
	return &tools{specs: []writ.ToolSpec{{Name: "noop", Description: "Does nothing.", Schema: noopSchema}},
		call: func(context.Context, writ.Call) (writ.Result, error) { return ok, nil }}
}

// agentWith declares an agent with one Go connection, "probe".
func agentWith(b *testing.B, react, traits string) *config.Agent {
	b.Helper()
	text := "react: {" + react + `}
surfaces:
  as_consumer:
    agents:
      main:
        tools:
          - kind: go
            alias: probe
            allowed: ['*']
            tool_traits: ` + traits + "\n"
	cfg, report := config.Parse("bench.yaml", []byte(text), b.TempDir())
	if !report.OK() {
		b.Fatal(report.Err())
	}
	agent, err := cfg.Agent("")
	if err != nil {
		b.Fatal(err)
	}
	return agent
}

// stage is a runtime with an agent, ready to run turns.
type stage struct {
	rt    *runtime.Runtime
	agent *config.Agent
	conns []runtime.Connection
}

func newStage(b *testing.B, st store.Store, agent *config.Agent, set writ.Toolset) *stage {
	b.Helper()
	rt, err := runtime.New(runtime.Config{Store: st, Key: []byte("0123456789abcdef"), Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	return &stage{rt: rt, agent: agent, conns: []runtime.Connection{{Config: agent.Connections[0], Tools: set}}}
}

// turn runs one turn of a new conversation to its answer.
func (s *stage) turn(b *testing.B, m writ.Model) {
	out, err := s.rt.Run(context.Background(), runtime.Input{Agent: s.agent, Connections: s.conns, Message: "go on",
		Model: func(context.Context) (writ.Model, string, error) { return m, "fake", nil }})
	if err != nil || out.State != store.TurnAnswered {
		b.Fatalf("turn: %+v %v", out, err)
	}
}
