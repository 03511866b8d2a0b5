package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"writ"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

// crashMode is what happens to the n-th write of a run.
type crashMode struct {
	name string
	// before and after say what the faulty write answers; dead says that every later write fails too, as when the
	// process is gone.
	after, dead bool
}

var crashModes = []crashMode{
	{"fails before, the process is gone", false, true},
	{"fails before, once", false, false},
	{"commits, the answer is lost, the process is gone", true, true},
	{"commits, the answer is lost, once", true, false},
}

var errCrash = errors.New("the store is gone")

// core are the transcripts of which every write fails in every way in each run of the tests: one for each shape of a
// round. Of the others only every sample-th point is taken, a different one in each mode; WRIT_CRASH_ALL=1 (make crash)
// takes all.
var core = []string{"one_call", "search_then_write_native", "final_with_neutral", "provisional_then_one_more_round", "sibling_error",
	"interrupt_call_1_of_3", "unknown_outcome_announced_next_turn", "plan_in_announce", "early_sibling_refused",
	"cut_after_early_claimed_other_index", "cut_after_early_same_index_other_args_native", "cut_after_early_unclaimed", "twins_claimed_one_by_one",
	"compaction_summary_native", "compaction_context_limit", "pruning_cold", "approval_approved", "approval_any_order", "approval_message_wakes",
	"approval_beside_answer_declined", "quarantine_until_resolved"}

const sample = 4

// TestCrashMatrix replays the transcripts, failing each Apply of them in each way, restarts on what is left, and holds
// the ledger against the tools' own counters.
func TestCrashMatrix(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	all := os.Getenv("WRIT_CRASH_ALL") != ""
	for _, name := range core {
		if !slices.Contains(files, "testdata/"+name+".txtar") {
			t.Errorf("%s is not there", name)
		}
	}
	var points atomic.Int64
	t.Run("matrix", func(t *testing.T) {
		for _, f := range files {
			name := strings.TrimSuffix(filepath.Base(f), ".txtar")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tr := loadTranscript(t, f)
				tr = tr.parsed(t, t.TempDir())
				writes := countWrites(t, tr, t.TempDir())
				for k, m := range crashModes {
					for n := 1; n <= writes; n++ {
						if !all && !slices.Contains(core, name) && (n+k)%sample != 0 {
							continue
						}
						points.Add(1)
						crashAt(func(st store.Store) *bench { return newBench(t, tr, st) }, tr.users(), m, n)
						if t.Failed() {
							t.Fatalf("write %d of %d %s", n, writes, m.name)
						}
					}
				}
			})
		}
	})
	t.Logf("%d crash points over %d transcripts", points.Load(), len(files))
}

func countWrites(t failer, tr transcript, dir string) int {
	n := atomic.Int64{}
	b := benchIn(t, tr, &store.Fault{Store: memory.Open(), Before: func(*store.Batch) error { n.Add(1); return nil }}, dir)
	rt := b.runtime()
	for _, u := range tr.users() {
		if _, err := b.step(&rt, u); err != nil {
			t.Fatal(err)
		}
	}
	return int(n.Load())
}

// crashAt lets the n-th write of a conversation fail, restarts, and checks what is left.
func crashAt(open func(store.Store) *bench, users []string, m crashMode, at int) *bench {
	inner := memory.Open()
	var n atomic.Int64
	var gone atomic.Bool
	faulty := &store.Fault{Store: inner,
		Before: func(*store.Batch) error {
			if gone.Load() {
				return errCrash
			}
			if n.Add(1) == int64(at) && !m.after {
				gone.Store(m.dead)
				return errCrash
			}
			return nil
		},
		After: func(*store.Batch) error {
			if n.Load() == int64(at) && m.after {
				gone.Store(m.dead)
				n.Add(1) // only this one answer is lost
				return fmt.Errorf("%w: %w", store.ErrUnknown, errCrash)
			}
			return nil
		}}
	b := open(&unreadable{faulty, &gone})
	b.t.Helper()
	b.checked = inner
	rt := b.runtime()
	for _, u := range users {
		if _, err := b.step(&rt, u); err != nil {
			break // the process would end here
		}
	}
	if err := rt.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.afterCrash(inner)
	return b
}

// unreadable cannot be read back once the process is gone, as nothing can then.
type unreadable struct {
	store.Store
	gone *atomic.Bool
}

func (u *unreadable) Applied(ctx context.Context, id string) (bool, error) {
	if u.gone.Load() {
		return false, errCrash
	}
	return u.Store.Applied(ctx, id)
}

func (u *unreadable) Actions(ctx context.Context, f store.ActionFilter) ([]store.Action, error) {
	if u.gone.Load() {
		return nil, errCrash
	}
	return u.Store.Actions(ctx, f)
}

// afterCrash restarts on what is left and checks what must hold whatever was lost.
func (b *bench) afterCrash(inner *memory.Store) {
	b.t.Helper()
	b.store = inner
	rt := b.runtime()
	if _, err := rt.Recover(context.Background()); err != nil {
		b.t.Errorf("recovery: %v", err)
		return
	}
	writes := 0
	again := &store.Fault{Store: inner, Before: func(*store.Batch) error { writes++; return nil }}
	b.store = again
	if rec, err := b.runtime().Recover(context.Background()); err != nil || len(rec) != 0 || writes != 0 {
		b.t.Errorf("a second recovery: %d turns, %d writes, %v", len(rec), writes, err)
	}
	b.store = inner
	var keys []string
	for _, s := range b.tools {
		keys = append(keys, s.keys...)
	}
	slices.Sort(keys)
	if len(slices.Compact(slices.Clone(keys))) != len(keys) {
		b.t.Errorf("an effect happened twice: keys %v", keys)
	}
	rows, err := inner.Actions(context.Background(), store.ActionFilter{})
	if err != nil {
		b.t.Fatal(err)
	}
	known := map[string]bool{}
	for _, r := range rows {
		known[r.IdempotencyKey] = true
		ran := slices.Contains(keys, r.IdempotencyKey)
		switch {
		case r.State == writ.Held && !ran && b.parked(r.Turn): // it goes on waiting
		case !r.State.Settled():
			b.t.Errorf("%s is %s after recovery", r.ID, r.State)
		case r.State == writ.Withheld && ran:
			b.t.Errorf("%s is withheld and ran", r.ID)
		case r.State == writ.Succeeded && !ran && !strings.HasPrefix(r.Tool, "react."):
			b.t.Errorf("%s succeeded and did not run", r.ID)
		}
	}
	for _, k := range keys {
		if !known[k] {
			b.t.Errorf("an effect without a row: key %s", k)
		}
	}
	b.nextTurn(rt)
	b.checkHistory()
	b.checkChain()
	b.checkReplay(1)
}

// nextTurn asks for one more answer: the history must render.
func (b *bench) nextTurn(rt *runtime.Runtime) {
	b.t.Helper()
	b.model.Model = answering(b.agent.Dialect)
	out, err := b.say(rt, "and now?")
	if err != nil || out.State != store.TurnAnswered && (out.State != store.TurnParked || out.Answer == "") {
		b.t.Errorf("the turn after recovery: %+v %v", out, err)
	}
}

func (b *bench) parked(turn string) bool {
	t, err := b.store.Turn(context.Background(), turn)
	return err == nil && t.State == store.TurnParked
}

type answering writ.Dialect

func (a answering) Stream(context.Context, *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	text := "fine"
	if writ.Dialect(a) == writ.Channel {
		text = `<channel:action>{"action":"complete","final_answer":"fine"}</channel:action>`
	}
	return func(yield func(writ.ModelEvent, error) bool) {
		_ = yield(writ.ModelEvent{Kind: writ.ModelText, Text: text}, nil) &&
			yield(writ.ModelEvent{Kind: writ.ModelBlockEnd}, nil) &&
			yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: writ.FinishStop}, nil)
	}
}
