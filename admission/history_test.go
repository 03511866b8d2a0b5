package admission_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"writ/admission"
)

// histories is how many concurrent histories are checked.
const histories = 10_000

// Whatever callers do at the same time, close, restart and takeover among it, their answers are those of some order in
// which each call takes place at one moment between its beginning and its end, by the table of docs/ledger.md.
func TestHistoriesAreLinearizable(t *testing.T) {
	n := histories
	if testing.Short() {
		n /= 10
	}
	next := arrowsAsFunction(t)
	checker := porcupineModel(next)
	seed := rand.Uint64()
	for i := range n {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		history := record(r, 3, 7)
		if !porcupine.CheckOperations(checker, history) {
			for _, o := range history {
				t.Logf("%d [%d %d] %s: %+v", o.ClientId, o.Call, o.Return, o.Input, o.Output)
			}
			t.Fatalf("history %d of seed %d is not linearizable", i, seed)
		}
	}
}

var concurrentOps = []method{
	{"admit", ""}, {"admit", ""}, {"admit", ""}, {"dispatch", ""}, {"dispatch", ""}, {"dispatch", ""}, {"complete", "succeeded"}, {"complete", "failed"},
	{"report_unknown", ""}, {"cancel", ""}, {"abandon", ""},
}

// record lets the callers loose on one port and writes down what they saw.
func record(r *rand.Rand, callers, each int) []porcupine.Operation {
	w := newWorld(limits{Total: 100, Concurrent: 100})
	p := w.open()
	// A restart beside a live port is not one step: what is admitted between its reading and its writing is missed by it,
	// though the unknown outcome that it writes would have held that back. So there all only explore.
	ends := []string{"close", "drain", "restart", "takeover", "", ""}
	end := ends[r.IntN(len(ends))]
	plans := make([][]op, callers)
	for c := range plans {
		for range each {
			o := op{method: concurrentOps[r.IntN(len(concurrentOps))], call: calls[r.IntN(2)]}
			if o.name == "admit" {
				o.explore, o.hold = end == "restart" || r.IntN(3) == 0, end != "restart" && r.IntN(4) == 0
			}
			switch o.name {
			case "complete":
				o.outcome = map[string]string{"succeeded": "/d", "failed": theReason}[o.kase]
			case "report_unknown", "cancel", "abandon":
				o.outcome = theReason
			}
			plans[c] = append(plans[c], o)
		}
	}
	// One of the ends, somewhere; not in every history.
	if end != "" {
		c := r.IntN(callers)
		at := 2 + r.IntN(each-2)
		plans[c] = slices.Insert(plans[c], at, op{method: method{end, ""}})
	}
	var clock atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for c, plan := range plans {
		wg.Add(1)
		go func() {
			defer wg.Done()
			<-begin
			for _, o := range plan {
				from := clock.Add(1)
				// Who has no id yet can only name an action that is none. Restart writes behind the port's back, so
				// between an admission's write and its return the store knows of an action and the port does not.
				if _, known := p.Lookup(o.call); !known && o.name != "admit" {
					o.call = "none"
				}
				got := inHistory(w, p, o)
				to := clock.Add(1)
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: c, Input: o, Call: from, Output: got, Return: to})
				mu.Unlock()
			}
		}()
	}
	close(begin)
	wg.Wait()
	return history
}

func inHistory(w *world, p *admission.Port, o op) answer {
	switch o.name {
	case "restart":
		for range 1000 { // a real restart has the data to itself; here a live port may come in between, and then nothing was written
			if _, err := w.recover(w.theTurn(p.Invocation().ID)); err == nil {
				return accepted
			}
		}
		return answer{}
	case "takeover":
		w.takeOver()
		return accepted
	case "close":
		return answer{ok: p.Close(ctx, admission.Ending{}, nil, resultBlock) == nil}
	}
	return run(w, p, o, func(*admission.Grant) {})
}

// porcupineModel is the reference model as the checker wants it: states are values.
func porcupineModel(n next) porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			return &model{next: n, phase: "open", limits: limits{Total: 100, Concurrent: 100}}
		},
		Step: func(state, input, output any) (bool, any) {
			m, o, got := state.(*model).clone(), input.(op), output.(answer)
			switch o.name {
			case "restart":
				if m.phase != "closed" { // the rows are settled behind the port's back
					m.settleAll("restart")()
				}
				return got.ok, m
			case "takeover":
				m.lost = true
				return got.ok, m
			}
			if o.name == "close" && !got.ok { // it met rows that somebody else had settled: it may be called again
				m.phase = "draining"
				return true, m
			}
			return m.step(o) == got, m
		},
		Equal: func(a, b any) bool {
			x, y := a.(*model), b.(*model)
			return x.phase == y.phase && x.lost == y.lost && x.stale == y.stale && slices.Equal(x.rows, y.rows)
		},
		DescribeOperation: func(i, o any) string { return fmt.Sprintf("%s: %+v", i, o) },
	}
}
