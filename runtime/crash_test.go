package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// TestCrashMatrix replays every transcript, failing each Apply of it in each way, restarts on what is left, and holds
// the ledger against the tools' own counters.
func TestCrashMatrix(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	var points atomic.Int64
	t.Run("matrix", func(t *testing.T) {
		for _, f := range files {
			t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
				t.Parallel()
				tr := loadTranscript(t, f)
				writes := countWrites(t, tr)
				for _, m := range crashModes {
					for n := 1; n <= writes; n++ {
						points.Add(1)
						crashAt(t, tr, m, n)
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

func countWrites(t *testing.T, tr transcript) int {
	n := atomic.Int64{}
	b := newBench(t, tr, &store.Fault{Store: memory.Open(), Before: func(*store.Batch) error { n.Add(1); return nil }})
	rt := b.runtime()
	for _, u := range tr.users() {
		if _, err := b.say(rt, u); err != nil {
			t.Fatal(err)
		}
	}
	return int(n.Load())
}

func crashAt(t *testing.T, tr transcript, m crashMode, at int) {
	t.Helper()
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
	b := newBench(t, tr, &unreadable{faulty, &gone})
	b.checked = inner
	rt := b.runtime()
	for _, u := range tr.users() {
		if _, err := b.say(rt, u); err != nil {
			break // the process would end here
		}
	}
	if err := rt.Close(); err != nil {
		t.Fatal(err)
	}
	b.afterCrash(inner)
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
}

// nextTurn asks for one more answer: the history must render.
func (b *bench) nextTurn(rt *runtime.Runtime) {
	b.t.Helper()
	b.model.Model = answering(b.agent.Dialect)
	out, err := b.say(rt, "and now?")
	if err != nil || out.State != store.TurnAnswered {
		b.t.Errorf("the turn after recovery: %+v %v", out, err)
	}
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
