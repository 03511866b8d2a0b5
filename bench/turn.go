package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"writ"
	"writ/runtime"
	"writ/store"
	"writ/store/sqlite"
)

// counted counts the writes of a store.
type counted struct {
	store.Store
	n atomic.Int64
}

func (c *counted) Apply(ctx context.Context, b *store.Batch) error {
	c.n.Add(1)
	return c.Store.Apply(ctx, b)
}

// WholeTurn measures a small turn of a new conversation: two model calls, one tool. Model and tool take no time, so
// all of it is Writ's own.
func WholeTurn(b *testing.B, open Opener) {
	agent := agentWith(b, "dialect: native", "{noop: {strategy: exploration}}")
	st := &counted{Store: open(b)}
	s := newStage(b, st, agent, noop())
	m := calling(1, 1)
	s.turn(b, m)
	st.n.Store(0)
	b.ReportAllocs()
	for b.Loop() {
		s.turn(b, m)
	}
	b.ReportMetric(float64(st.n.Load())/float64(b.N), "writes/turn")
}

const earlyTraits = "{helper: {strategy: neutral, execution: {trigger: tool_call_complete, concurrency: parallel_with_generation, " +
	"result_dependency: detached, replay: at_most_once_per_round}}}"

// Early measures a turn whose model calls a detached helper at its beginning and goes on writing its answer. It
// reports the delay from the end of the call's block to the start of the tool, and the turn's wall time as a multiple
// of what it cannot be shorter than: the longer of generation and helper.
func Early(b *testing.B, open Opener, generation, helper time.Duration) {
	agent := agentWith(b, "dialect: channel", earlyTraits)
	var closed, started, written, helped atomic.Int64 // of the newest turn, in ns since origin
	origin := time.Now()
	now := func() int64 { return int64(time.Since(origin)) }
	set := &tools{specs: []writ.ToolSpec{{Name: "helper", Description: "Helps.", Schema: noopSchema}}}
	set.call = func(context.Context, writ.Call) (writ.Result, error) {
		started.Store(now())
		time.Sleep(helper)
		helped.Store(now() - started.Load())
		return ok, nil
	}
	const pieces = 20
	m := model(func(_ context.Context, _ *writ.ModelRequest, yield func(writ.ModelEvent, error) bool) {
		begin := now()
		say := func(s string) bool { return yield(writ.ModelEvent{Kind: writ.ModelText, Text: s}, nil) }
		if !say("<channel:thinking>I delegate.</channel:thinking>\n<channel:action>" +
			`{"action":"call_tool","tool_call":{"tool_id":"probe.helper","params":{"n":1}}}`) {
			return
		}
		closed.Store(now())
		if !say("</channel:action>\n") || !say(`<channel:action>{"action":"complete","final_answer":"`) {
			return
		}
		for i := range pieces {
			time.Sleep(time.Duration(begin) + generation*time.Duration(i+1)/pieces - time.Duration(now()))
			if !say("some words of an answer ") {
				return
			}
		}
		written.Store(now() - begin)
		_ = say(`"}</channel:action>`) && yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: writ.FinishStop}, nil)
	})
	s := newStage(b, open(b), agent, set)
	s.turn(b, m)
	var delays, extra []time.Duration
	var ratios []float64
	for b.Loop() {
		t := time.Now()
		s.turn(b, m)
		wall := time.Since(t)
		least := time.Duration(max(written.Load(), helped.Load()))
		delays = append(delays, time.Duration(started.Load()-closed.Load()))
		extra = append(extra, wall-least)
		ratios = append(ratios, float64(wall)/float64(least))
	}
	slices.Sort(delays)
	slices.Sort(extra)
	slices.Sort(ratios)
	b.ReportMetric(float64(delays[len(delays)/2].Nanoseconds())/1e6, "start-ms-p50")
	b.ReportMetric(float64(delays[len(delays)-1].Nanoseconds())/1e6, "start-ms-max")
	b.ReportMetric(float64(extra[len(extra)/2].Nanoseconds())/1e6, "extra-ms-p50")
	b.ReportMetric(ratios[len(ratios)/2], "wall/least")
}

// Build measures the building of an agent with n tools, each with a schema of its own.
func Build(b *testing.B, n int) {
	agent := agentWith(b, "dialect: native", "{'*': {strategy: exploration}}")
	set := &tools{}
	for i := range n {
		set.specs = append(set.specs, writ.ToolSpec{Name: fmt.Sprintf("tool_%04d", i), Description: "Looks something up in the catalog of " + fmt.Sprint(i) + ".",
			Schema: fmt.Appendf(nil, `{"type":"object","required":["query"],"properties":{"query":{"type":"string","description":"what to look for in %d"},"limit":{"type":"integer","minimum":1}}}`, i)})
	}
	conns := []runtime.Connection{{Config: agent.Connections[0], Tools: set}}
	b.ReportAllocs()
	for b.Loop() {
		a, err := runtime.Build(context.Background(), agent, conns)
		if err != nil || len(a.Tools()) != n {
			b.Fatalf("%d tools: %v", len(a.Tools()), err)
		}
	}
}

// Start measures the way from nothing open to ready: the store with its lock and migrations, the runtime, and the
// recovery of what an earlier process left. With fresh, the data directory is new each time.
func Start(b *testing.B, fresh bool) {
	dir := b.TempDir()
	n := 0
	once := func() {
		d := dir
		if fresh {
			n++
			d = filepath.Join(dir, fmt.Sprint(n))
		}
		st, err := sqlite.Open(context.Background(), d)
		if err != nil {
			b.Fatal(err)
		}
		rt, err := runtime.New(runtime.Config{Store: st, Key: []byte(strings.Repeat("k", 16)), Dir: d})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := rt.Recover(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	once()
	for b.Loop() {
		once()
	}
}
