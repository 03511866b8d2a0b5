package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"writ"
	"writ/admission"
	"writ/store"
)

// together runs fn in n goroutines that begin at the same time.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			<-begin
			fn(i)
		}()
	}
	close(begin)
	wg.Wait()
}

func TestEqualAdmitsAreOneRow(t *testing.T) {
	w, p := newPort()
	var ids sync.Map
	together(64, func(int) {
		d := admit(p, "x")
		if !d.Admitted {
			t.Errorf("refused: %s", d.Refusal)
		}
		ids.Store(d.ActionID+d.Key, true)
	})
	n := 0
	ids.Range(func(any, any) bool { n++; return true })
	if rows := w.rows(); n != 1 || len(rows) != 1 || len(w.blocks()) != 1 {
		t.Errorf("%d decisions, %d rows, %d blocks", n, len(rows), len(w.blocks()))
	}
}

func TestOneGrantForManyDispatchers(t *testing.T) {
	_, p := newPort()
	d := admit(p, "x")
	var grants, started atomic.Int64
	together(64, func(int) {
		g, r := p.Dispatch(ctx, d.ActionID)
		if !r.Accepted && r.Code != writ.CodeStateConflict {
			t.Errorf("%+v", r)
		}
		if g != nil {
			grants.Add(1)
			if g.ActionID() != d.ActionID || g.Key() != d.Key {
				t.Errorf("the grant is for %s %s", g.ActionID(), g.Key())
			}
			together(16, func(int) {
				if g.Start() {
					started.Add(1)
				}
			})
		}
	})
	if grants.Load() != 1 || started.Load() != 1 {
		t.Errorf("%d grants, %d starts", grants.Load(), started.Load())
	}
}

func TestGrantEnds(t *testing.T) {
	var absent *admission.Grant
	if absent.Start() || new(admission.Grant).Start() {
		t.Error("a grant that nobody gave starts something")
	}
	for _, c := range []struct {
		after time.Duration
		ok    bool
	}{{0, true}, {admission.DefaultStartWithin, true}, {admission.DefaultStartWithin + 1, false}} {
		w, p := newPort()
		d := admit(p, "x")
		g, _ := p.Dispatch(ctx, d.ActionID)
		w.pass(c.after)
		if g.Start() != c.ok {
			t.Errorf("after %v: %v", c.after, !c.ok)
		}
		w.pass(-c.after)
		if g.Start() {
			t.Errorf("after %v and back: a second start", c.after)
		}
	}
	// The time of a grant runs from before its write, not from its return.
	w, p := newPort()
	d := admit(p, "x")
	w.st.After = func(*store.Batch) error { w.pass(admission.DefaultStartWithin + 1); return nil }
	if g, r := p.Dispatch(ctx, d.ActionID); !r.Accepted || g.Start() {
		t.Errorf("%+v; a grant that took too long to write starts something", r)
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(limits{Total: 3, Concurrent: 2})
	p := w.open()
	a, b := admit(p, "a"), admit(p, "b")
	full := admit(p, "c")
	if full.Refusal != writ.CodeConcurrencyLimitReached || full.Freed == nil {
		t.Fatalf("%+v", full)
	}
	select {
	case <-full.Freed:
		t.Fatal("freed before anything settled")
	default:
	}
	if r := p.Cancel(ctx, a.ActionID, "", resultBlock); !r.Accepted {
		t.Fatal(r.Code)
	}
	<-full.Freed
	if d := admit(p, "c"); !d.Admitted {
		t.Errorf("%+v", d)
	}
	p.Cancel(ctx, b.ActionID, "", resultBlock)
	if d := admit(p, "d"); d.Refusal != writ.CodeActionLimitReached { // a cancelled action still counts
		t.Errorf("%+v", d)
	}
	if d := admit(p, "a"); !d.Admitted || d.ActionID != a.ActionID { // and its decision stands when the limits are full
		t.Errorf("%+v", d)
	}
}

// Whoever waits for a place is woken by everything that can end the waiting.
func TestWaitersAreWoken(t *testing.T) {
	settle := func(p *admission.Port, id string) { p.Cancel(ctx, id, "", resultBlock) }
	for name, end := range map[string]func(w *world, p *admission.Port, id string){
		"settlement": func(_ *world, p *admission.Port, id string) { settle(p, id) },
		"drain":      func(_ *world, p *admission.Port, _ string) { p.Drain() },
		"close":      func(_ *world, p *admission.Port, _ string) { _ = p.Close(ctx, admission.Ending{}, nil, resultBlock) },
		"a settlement that was read back": func(w *world, p *admission.Port, id string) {
			w.st.set(blindWritten)
			settle(p, id)
			w.st.set(sound)
			settle(p, id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(limits{Total: 2, Concurrent: 1})
			p := w.open()
			first := admit(p, "x")
			freed := admit(p, "y").Freed
			end(w, p, first.ActionID)
			<-freed // a test that hangs here has found a waiter that nobody wakes
		})
	}
}

// A worker that has lost its lease admits and dispatches nothing; what it has dispatched it may still settle.
func TestLostLease(t *testing.T) {
	w, p := newPort()
	ready, flying := admit(p, "ready"), admit(p, "flying")
	if _, r := p.Dispatch(ctx, flying.ActionID); !r.Accepted {
		t.Fatal(r.Code)
	}
	w.takeOver()
	if g, r := p.Dispatch(ctx, ready.ActionID); g != nil || r.Code != writ.CodeGenerationStale {
		t.Errorf("dispatch: %+v", r)
	}
	if d := admit(p, "new"); d.Refusal != writ.CodeGenerationStale {
		t.Errorf("admit: %+v", d)
	}
	if d := admit(p, "ready"); d.ActionID != ready.ActionID {
		t.Errorf("an equal admit: %+v", d)
	}
	if r := p.Complete(ctx, flying.ActionID, admission.Outcome{State: writ.Succeeded}, resultBlock); !r.Accepted {
		t.Errorf("complete: %+v", r)
	}
	if r := p.Cancel(ctx, ready.ActionID, "", resultBlock); !r.Accepted {
		t.Errorf("cancel: %+v", r)
	}
	for _, row := range w.rows() {
		if row.Generation != 3 || row.LeaseToken != 1 {
			t.Errorf("%s carries generation %d and token %d", row.ToolCallID, row.Generation, row.LeaseToken)
		}
	}
}

// A turn's end and what it leaves open are one write, in order: results first, then what ends the turn.
func TestClose(t *testing.T) {
	w, p := newPort()
	states := map[string]writ.ActionState{}
	for _, c := range []struct {
		call  string
		none  bool
		state writ.ActionState
		do    bool
	}{{"ready", false, writ.Withheld, false}, {"ready none", true, writ.Withheld, false}, {"flying", false, writ.Indeterminate, true}, {"flying none", true, writ.Failed, true}} {
		slot := admission.Slot{}
		if c.none {
			slot.Traits.Effect = writ.EffectNone
		}
		d := p.Admit(ctx, request(p, c.call), slot, callBlock)
		if c.do {
			p.Dispatch(ctx, d.ActionID)
		}
		states[c.call] = c.state
	}
	n := w.st.writes.Load()
	extra := w.end("turn1")
	extra.Blocks = []store.Block{{Conversation: "conv", Kind: "turn.end", Body: []byte("{}")}}
	if err := p.Close(ctx, admission.Ending{}, extra, resultBlock); err != nil {
		t.Fatal(err)
	}
	if w.st.writes.Load() != n+1 || len(extra.Blocks) != 1 || len(extra.Actions) != 0 {
		t.Errorf("%d writes; the caller's batch has %d blocks and %d rows", w.st.writes.Load()-n, len(extra.Blocks), len(extra.Actions))
	}
	for _, row := range p.Rows() {
		if row.State != states[row.ToolCallID] || row.Failure != "invocation_closed" || w.state(row.ID) != row.State {
			t.Errorf("%s is %s (%s), in the store %s", row.ToolCallID, row.State, row.Failure, w.state(row.ID))
		}
	}
	blocks := w.blocks()
	if last := blocks[len(blocks)-1]; last.Kind != "turn.end" || w.theTurn("turn1").State != store.TurnAnswered {
		t.Errorf("the last block is %s, the turn %s", last.Kind, w.theTurn("turn1").State)
	}
	if err := p.Close(ctx, admission.Ending{}, w.end("turn1"), resultBlock); err != nil || w.st.writes.Load() != n+1 {
		t.Errorf("closing again: %v, %d writes", err, w.st.writes.Load()-n)
	}
}

// Nothing starts once its port is being closed, whatever comes of the closing.
func TestCloseUsesUpGrants(t *testing.T) {
	for _, k := range []faulty{sound, refused, blindWritten} {
		w, p := newPort()
		d := admit(p, "x")
		g, _ := p.Dispatch(ctx, d.ActionID)
		w.st.set(k)
		if err := p.Close(ctx, admission.Ending{}, nil, resultBlock); (err == nil) != (k == sound) {
			t.Fatal(err)
		}
		if g.Start() {
			t.Errorf("fault %d: a start after close", k)
		}
	}
}

// Close may be called after its context ended: what is open is settled all the same.
func TestSettlingOutlivesItsContext(t *testing.T) {
	w, p := newPort()
	a, b := reach(w, p, "dispatched", false), admit(p, "b")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if d := p.Admit(ended, request(p, "c"), admission.Slot{}, nil); d.Refusal != writ.CodeLedgerUnavailable {
		t.Errorf("admit: %+v", d)
	}
	if g, r := p.Dispatch(ended, b.ActionID); g != nil || r.Code != writ.CodeLedgerUnavailable {
		t.Errorf("dispatch: %+v", r)
	}
	if r := p.Complete(ended, a, admission.Outcome{State: writ.Succeeded}, resultBlock); !r.Accepted {
		t.Errorf("complete: %+v", r)
	}
	if err := p.Close(ended, admission.Ending{}, nil, resultBlock); err != nil || w.state(b.ActionID) != writ.Withheld {
		t.Errorf("close: %v, %s", err, w.state(b.ActionID))
	}
}

// The restart rules, and that they are applied once, also by who has read the turn before.
func TestRecover(t *testing.T) {
	w, p := newPort()
	ready, flying := admit(p, "ready"), admit(p, "flying")
	none := p.Admit(ctx, request(p, "none"), admission.Slot{Traits: writ.Traits{Effect: writ.EffectNone}}, callBlock)
	done := admit(p, "done")
	for _, d := range []admission.Decision{flying, none, done} {
		p.Dispatch(ctx, d.ActionID)
	}
	p.Complete(ctx, done.ActionID, admission.Outcome{State: writ.Succeeded}, resultBlock)
	turn := w.theTurn("turn1")
	rec, err := w.recover(turn)
	if err != nil || len(rec.Actions) != 3 || rec.Turn.State != store.TurnInterrupted {
		t.Fatalf("%+v %v", rec, err)
	}
	for id, want := range map[string]writ.ActionState{ready.ActionID: writ.Withheld, flying.ActionID: writ.Indeterminate, none.ActionID: writ.Failed, done.ActionID: writ.Succeeded} {
		if w.state(id) != want {
			t.Errorf("%s is %s, want %s", id, w.state(id), want)
		}
	}
	before := w.everything()
	for _, read := range []store.Turn{turn, w.theTurn("turn1")} {
		if rec, err := w.recover(read); err != nil || len(rec.Actions) != 0 || rec.Turn.State != store.TurnInterrupted {
			t.Errorf("again: %+v %v", rec, err)
		}
	}
	if w.everything() != before {
		t.Error("a second recovery has written")
	}
	// The old holder, if it is still there, settles nothing that is settled, and sees what stands.
	if r := p.Complete(ctx, flying.ActionID, admission.Outcome{State: writ.Succeeded}, resultBlock); r.Code != writ.CodeStateConflict {
		t.Errorf("complete after recovery: %+v", r)
	}
	if g, r := p.Dispatch(ctx, ready.ActionID); g != nil || r.Code != writ.CodeStateConflict {
		t.Errorf("dispatch after recovery: %+v", r)
	}
	if row, _ := p.Row(flying.ActionID); row.State != writ.Indeterminate {
		t.Errorf("the old holder sees %s", row.State)
	}
	if _, err := w.recover(store.Turn{ID: "nobody's", State: store.TurnRunning}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a turn that is none: %v", err)
	}
}

// finish may refuse: then nothing is written.
func TestRecoverWithoutFinish(t *testing.T) {
	w, p := newPort()
	id := reach(w, p, "dispatched", false)
	no := errors.New("no")
	before := w.everything()
	_, err := w.ledger.Recover(ctx, w.theTurn("turn1"), func(_ *store.Batch, _ store.Turn, all, settled []store.Action) error {
		if len(all) != 1 || len(settled) != 1 || all[0].State != writ.Indeterminate {
			t.Errorf("finish got %+v and %+v", all, settled)
		}
		return no
	})
	if !errors.Is(err, no) || w.everything() != before {
		t.Errorf("%v", err)
	}
	if _, err := w.ledger.Recover(ctx, w.theTurn("turn1"), nil); err != nil || w.state(id) != writ.Indeterminate {
		t.Errorf("%v, %s", err, w.state(id))
	}
}

// In every position the answer to a commit may be lost, and the read-back too. Meanwhile the invocation is fenced;
// after it, it goes on from what the rows say.
func TestLostAnswers(t *testing.T) {
	type step struct {
		name string
		from string
		do   func(w *world, p *admission.Port, id string) bool
		to   writ.ActionState // when the write did take place
	}
	receipt := func(r admission.Receipt) bool { return r.Accepted }
	steps := []step{
		{"admit", none, func(_ *world, p *admission.Port, _ string) bool { return admit(p, "x").Admitted }, writ.Admitted},
		{"dispatch", "admitted", func(_ *world, p *admission.Port, id string) bool {
			g, r := p.Dispatch(ctx, id)
			return r.Accepted && g.Start()
		}, writ.Dispatched},
		{"complete", "dispatched", func(_ *world, p *admission.Port, id string) bool {
			return receipt(p.Complete(ctx, id, admission.Outcome{State: writ.Succeeded, ResultDigest: "d"}, resultBlock))
		}, writ.Succeeded},
		{"report_unknown", "dispatched", func(_ *world, p *admission.Port, id string) bool {
			return receipt(p.ReportUnknown(ctx, id, "timeout", resultBlock))
		}, writ.Indeterminate},
		{"cancel", "admitted", func(_ *world, p *admission.Port, id string) bool { return receipt(p.Cancel(ctx, id, "", resultBlock)) }, writ.Withheld},
		{"abandon a grant", "dispatched", func(_ *world, p *admission.Port, id string) bool {
			return receipt(p.Abandon(ctx, id, "interrupted", resultBlock))
		}, writ.Failed},
		{"close", "dispatched", func(w *world, p *admission.Port, _ string) bool {
			return p.Close(ctx, admission.Ending{}, w.end("turn1"), resultBlock) == nil
		}, writ.Indeterminate},
	}
	for _, s := range steps {
		for kind, k := range map[string]faulty{"read back": lostAnswer, "not there": lostNothing, "blind, written": blindWritten, "blind, not written": blindNothing} {
			t.Run(s.name+"/"+kind, func(t *testing.T) {
				w, p := newPort()
				id := reach(w, p, s.from, false)
				w.st.set(k)
				if ok := s.do(w, p, id); ok != (k == lostAnswer) {
					t.Fatalf("accepted: %v", ok)
				}
				if k == lostAnswer {
					return
				}
				w.st.set(sound)
				if k != lostNothing { // fenced until the rows can be read
					w.st.deaf.Store(true)
					if s.name == "close" {
						if err := p.Close(ctx, admission.Ending{}, w.end("turn1"), resultBlock); err == nil {
							t.Error("closed while nobody knows how its rows stand")
						}
					} else if d := admit(p, "other"); d.Refusal != writ.CodeLedgerUnavailable {
						t.Errorf("another admission meanwhile: %+v", d)
					}
					w.st.deaf.Store(false)
				}
				n := w.st.writes.Load()
				again := s.do(w, p, id)
				// A dispatch that took place gives no grant: nobody ever held it. Everything else is accepted, and written once.
				if want := s.name != "dispatch" || k != blindWritten; again != want {
					t.Errorf("again: %v, want %v", again, want)
				}
				if wrote := w.st.writes.Load() - n; (wrote == 0) != (k == blindWritten) {
					t.Errorf("%d writes", wrote)
				}
				if rows := w.rows(); len(rows) != 1 || rows[0].State != s.to {
					t.Errorf("the ledger holds %+v, want one row in %s", rows, s.to)
				}
				if s.name == "dispatch" && k == blindWritten {
					if r := p.Abandon(ctx, id, "ledger_unavailable", resultBlock); !r.Accepted || w.state(id) != writ.Failed {
						t.Errorf("abandoning it: %+v, %s", r, w.state(id))
					}
				}
			})
		}
	}
}

// Rows are read back while other actions of the invocation are in the middle of their writes. None may be taken back
// to what it was when the reading began, none may be kept twice, and no place may be given back twice.
func TestHealingBesideWrites(t *testing.T) {
	for range 200 {
		w := newWorld(limits{Total: 100, Concurrent: 40})
		p := w.open()
		var ids []string
		for i := range 8 {
			ids = append(ids, admit(p, fmt.Sprint("before", i)).ActionID)
		}
		var odd atomic.Int64
		w.st.After = func(b *store.Batch) error { // the answers of some get lost
			if odd.Add(1)%3 == 0 {
				return store.ErrUnknown
			}
			return nil
		}
		w.st.blind.Store(true)
		together(16, func(i int) {
			if i >= 8 {
				admit(p, fmt.Sprint("new", i))
				admit(p, fmt.Sprint("new", i))
				return
			}
			if _, r := p.Dispatch(ctx, ids[i]); r.Accepted {
				p.Complete(ctx, ids[i], admission.Outcome{State: writ.Succeeded}, resultBlock)
			}
		})
		w.st.set(sound)
		admit(p, "last") // reads back
		rows, view := w.rows(), p.Rows()
		if len(rows) != len(view) {
			t.Fatalf("%d rows, the port sees %d", len(rows), len(view))
		}
		unsettled := 0
		for i, row := range rows {
			seen, _ := p.Row(row.ID)
			if row.Ordinal != i || seen.State != row.State {
				t.Fatalf("row %d of %s is %s, the port sees %s", row.Ordinal, row.ToolCallID, row.State, seen.State)
			}
			if !row.State.Settled() {
				unsettled++
			}
		}
		for i := unsettled; i < 40; i++ { // exactly so many places are free
			if d := admit(p, fmt.Sprint("fill", i)); !d.Admitted {
				t.Fatalf("with %d unsettled: %+v", i, d)
			}
		}
		if d := admit(p, "one more"); d.Refusal != writ.CodeConcurrencyLimitReached {
			t.Fatalf("with 40 unsettled: %+v", d)
		}
		if err := p.Close(ctx, admission.Ending{}, nil, resultBlock); err != nil {
			t.Fatal(err)
		}
	}
}

// A second answer may get lost while the rows are read back because of a first: what was read then does not hold it.
func TestAnswerLostWhileReadingBack(t *testing.T) {
	w, p := newPort()
	flying := reach(w, p, "dispatched", false)
	begun, commit, done := make(chan struct{}), make(chan struct{}), make(chan admission.Receipt)
	outcome := admission.Outcome{State: writ.Succeeded}
	w.st.set(blindWritten)
	w.st.Before = func(b *store.Batch) error {
		if b.Actions[0].State == writ.Succeeded {
			close(begun)
			<-commit
		}
		return nil
	}
	go func() { done <- p.Complete(ctx, flying, outcome, resultBlock) }()
	<-begun
	if d := admit(p, "lost"); d.Refusal != writ.CodeLedgerUnavailable {
		t.Fatalf("%+v", d)
	}
	w.st.reading = func() {
		w.st.reading = nil
		close(commit)
		if r := <-done; r.Code != writ.CodeLedgerUnavailable {
			t.Errorf("%+v", r)
		}
	}
	if d := admit(p, "lost"); !d.Admitted { // reads back
		t.Fatalf("%+v", d)
	}
	w.st.set(sound)
	if r := p.Complete(ctx, flying, outcome, resultBlock); !r.Accepted {
		t.Errorf("the same outcome again: %+v", r)
	}
}

// The call id of a slot is the same for ever and another one's never.
func TestToolCallID(t *testing.T) {
	seen := map[string]string{}
	for _, turn := range []string{"t", "t1", "t\x1f1"} {
		for r := range 5 {
			for a := range 5 {
				for i := range 5 {
					id, slot := admission.ToolCallID(turn, r, a, i), fmt.Sprint(turn, "/", r, "/", a, "/", i)
					if seen[id] != "" {
						t.Errorf("%s and %s are both %s", slot, seen[id], id)
					}
					seen[id] = slot
				}
			}
		}
	}
	if got := admission.ToolCallID("turn_1", 1, 1, 0); got != "tc_0e75921fc5c252ad" {
		t.Errorf("the id of a slot has changed: %s", got)
	}
}
