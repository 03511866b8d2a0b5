package gateway

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/store"
)

// TestASessionGoesOn: a session with more actions than one invocation may have goes on with another.
func TestASessionGoesOn(t *testing.T) {
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, nil)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	w.cfg.Actions, w.cfg.Concurrent = 3, 2
	g, stop := w.start()
	cs := dial(t, g, "local:1", nil)
	for range 10 {
		wantText(t, call(t, cs, "do", nil), false, "done")
	}
	cs.Close()
	stop()
	turns := map[string]int{}
	for _, row := range w.rows() {
		turns[row.Turn]++
	}
	if len(turns) != 4 {
		t.Errorf("%v", turns)
	}
	for id := range turns {
		if turn, err := w.store.Turn(t.Context(), id); err != nil || turn.State != store.TurnAnswered {
			t.Errorf("%+v, %v", turn, err)
		}
	}
}

// TestConcurrencyWaits: more calls than may run at once wait for one another.
func TestConcurrencyWaits(t *testing.T) {
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, nil)
	w := newWorld(t, peer{alias: "peer", reach: reach, yaml: "limits: {do: {concurrency: 1}}\n"})
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	results := make(chan error, 16)
	for range cap(results) {
		go func() {
			res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "do"})
			if err == nil && res.IsError {
				t.Error(jsonOf(res))
			}
			results <- err
		}()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := effects(t, dir, "do"); n != cap(results) {
		t.Errorf("%d effects", n)
	}
}

func decide(t *testing.T, w *world, id, state string) {
	t.Helper()
	a, err := w.store.Approval(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	before := a.State
	a.State, a.Actor, a.Decided = state, "op", time.Now()
	b := &store.Batch{ID: "b_" + id + state, Time: time.Now(), Approvals: []store.ApprovalWrite{{Approval: a, Expect: before}}}
	if state == store.ApprovalDeclined {
		row, err := w.store.Action(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		row.State, row.Failure, row.SettledAt = writ.Withheld, admission.FailureDeclined, time.Now()
		b.Actions = []store.ActionWrite{{Action: row, Expect: writ.Held}}
		g := &Gateway{cfg: Config{Now: time.Now}}
		blocks := g.closingBlock(row)
		blocks[0].ActionID = row.ID
		b.Blocks = blocks
	}
	if err := store.Commit(t.Context(), w.store, b); err != nil {
		t.Fatal(err)
	}
}

// TestHeldCalls: a call that needs an approval is answered at once; the same request after the approval runs it, once,
// whatever became of its session meanwhile.
func TestHeldCalls(t *testing.T) {
	for _, c := range []struct {
		name         string
		meta         map[string]any
		newSession   bool
		newGateway   bool
		decline      bool
		concurrently bool
	}{
		{name: "with a key", meta: key("k")}, {name: "without a key"}, {name: "another session", meta: key("k"), newSession: true},
		{name: "after a restart", meta: key("k"), newGateway: true}, {name: "declined", meta: key("k"), decline: true},
		{name: "declined after a restart", meta: key("k"), decline: true, newGateway: true}, {name: "at once", meta: key("k"), concurrently: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			reach, _ := inProcess(t, dir, nil)
			w := newWorld(t, peer{alias: "peer", reach: reach})
			w.cfg.Approval = func(_ *config.Connection, tool string, _ writ.Traits) *admission.Approval {
				if tool == "do" {
					return &admission.Approval{Approver: admission.ByOwner}
				}
				return nil
			}
			g, stop := w.start()
			cs := dial(t, g, "local:1", nil)
			args := map[string]any{"what": "x"}
			for range 2 {
				wantText(t, call(t, cs, "do", args, c.meta), true, "waits for an approval", "writ approve act_")
			}
			row := w.one("peer.do")
			if row.State != writ.Held || effects(t, dir, "do") != 0 {
				t.Fatalf("%+v", row)
			}
			if c.newSession || c.newGateway {
				cs.Close()
				if c.newGateway {
					stop()
					g, _ = w.start()
				}
				until(t, "the invocation is parked", func() bool {
					turn, err := w.store.Turn(context.Background(), row.Turn)
					return err == nil && turn.State == store.TurnParked
				})
				cs = dial(t, g, "local:1", nil)
				wantText(t, call(t, cs, "do", args, c.meta), true, "waits for an approval")
			}
			if c.decline {
				decide(t, w, row.ID, store.ApprovalDeclined)
				wantText(t, call(t, cs, "do", args, c.meta), true, "not executed")
				if effects(t, dir, "do") != 0 {
					t.Error("it ran")
				}
				return
			}
			decide(t, w, row.ID, store.ApprovalApproved)
			if c.concurrently {
				other := dial(t, g, "local:1", nil)
				done := make(chan struct{})
				go func() {
					defer close(done)
					wantText(t, call(t, other, "do", args, c.meta), false, "done x, 1 times")
				}()
				wantText(t, call(t, cs, "do", args, c.meta), false, "done x, 1 times")
				<-done
			} else {
				wantText(t, call(t, cs, "do", args, c.meta), false, "done x, 1 times")
			}
			res := call(t, cs, "do", args, c.meta)
			if c.meta != nil {
				wantText(t, res, false, "done x, 1 times")
			} else {
				wantText(t, res, true, "waits for an approval") // a new action
			}
			if row, err := w.store.Action(t.Context(), row.ID); err != nil || row.State != writ.Succeeded {
				t.Errorf("%+v, %v", row, err)
			}
			if n := effects(t, dir, "do"); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// TestTidy: a parked session ends once nothing of it can run any more, and not before.
func TestTidy(t *testing.T) {
	for _, c := range []struct {
		name     string
		decide   string // before the session has gone
		later    time.Duration
		row      writ.ActionState
		failure  string
		turn     string
		approval string
	}{
		{"waits", "", 0, writ.Held, "", store.TurnParked, store.ApprovalPending},
		{"approved and waits for its client", store.ApprovalApproved, 0, writ.Held, "", store.TurnParked, store.ApprovalApproved},
		{"not decided in time", "", 2 * time.Hour, writ.Withheld, admission.FailureApprovalExpired, store.TurnAnswered, store.ApprovalExpired},
		{"not asked for in time", store.ApprovalApproved, 2 * time.Hour, writ.Withheld, admission.FailureApprovalExpired, store.TurnAnswered, store.ApprovalExpired},
		{"declined", store.ApprovalDeclined, 0, writ.Withheld, admission.FailureDeclined, store.TurnAnswered, store.ApprovalDeclined},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			reach, _ := inProcess(t, dir, nil)
			w := newWorld(t, peer{alias: "peer", reach: reach})
			w.cfg.Approval = func(*config.Connection, string, writ.Traits) *admission.Approval {
				return &admission.Approval{Approver: admission.ByOwner, Within: time.Hour}
			}
			now := func() time.Time { return time.Now().Add(c.later) }
			g, stop := w.start()
			cs := dial(t, g, "local:1", nil)
			wantText(t, call(t, cs, "do", nil, key("k")), true, "waits for an approval")
			row := w.one("peer.do")
			cs.Close()
			stop()
			if c.decide != "" {
				decide(t, w, row.ID, c.decide)
			}
			w.cfg.Now = now
			w.cfg.Ledger = admission.New(admission.Config{Store: w.store, Key: []byte(strings.Repeat("k", 32)), Now: now})
			g, _ = w.start()
			for range 2 { // again is nothing
				if err := g.Tidy(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			row = w.one("peer.do")
			turn, err := w.store.Turn(t.Context(), row.Turn)
			a, aerr := w.store.Approval(t.Context(), row.ID)
			if err != nil || aerr != nil || row.State != c.row || row.Failure != c.failure || turn.State != c.turn || a.State != c.approval {
				t.Errorf("%s %s, %s, %s; %v, %v", row.State, row.Failure, turn.State, a.State, err, aerr)
			}
			events, err := w.store.History(t.Context(), row.Conversation, 0, 0)
			if ended := turn.State == store.TurnAnswered; err != nil || (len(events) == 6) != ended {
				t.Errorf("%d events, %v", len(events), err)
			}
			if turn.State == store.TurnAnswered {
				wantText(t, call(t, dial(t, g, "local:1", nil), "do", nil, key("k")), true, "not executed")
			}
		})
	}
}

// TestAnEndIsRecordedLater: a ledger that does not answer when a session ends has its end when it answers again.
func TestAnEndIsRecordedLater(t *testing.T) {
	for _, held := range []bool{false, true} {
		dir := t.TempDir()
		reach, _ := inProcess(t, dir, nil)
		w := newWorld(t, peer{alias: "peer", reach: reach})
		var broken atomic.Bool
		w.over(&store.Fault{Store: w.store, Before: func(*store.Batch) error {
			if broken.Load() {
				return errors.New("the disk is full")
			}
			return nil
		}})
		want := store.TurnAnswered
		if held {
			want = store.TurnParked
			w.cfg.Approval = func(*config.Connection, string, writ.Traits) *admission.Approval {
				return &admission.Approval{Approver: admission.ByOwner}
			}
		}
		g, _ := w.start()
		cs, cut := dialCut(t, g, "local:1", nil)
		call(t, cs, "do", nil, key("k"))
		broken.Store(true)
		cut()
		until(t, "it was tried", func() bool { return strings.Contains(w.log.String(), "could not be recorded yet") })
		if turn, err := w.store.Turn(t.Context(), w.one("peer.do").Turn); err != nil || turn.State != store.TurnRunning {
			t.Errorf("%+v, %v", turn, err)
		}
		if err := g.Tidy(t.Context()); err != nil {
			t.Error(err)
		}
		broken.Store(false)
		until(t, "its end is recorded", func() bool {
			if err := g.Tidy(context.Background()); err != nil {
				t.Error(err)
			}
			turn, err := w.store.Turn(context.Background(), w.one("peer.do").Turn)
			return err == nil && turn.State == want
		})
	}
}

// TestACrashIsUnknown: what was dispatched when the process died is unknown under its key for ever.
func TestACrashIsUnknown(t *testing.T) {
	hung := make(chan string, 4)
	dir := t.TempDir()
	reach, _ := inProcess(t, dir, hung)
	w := newWorld(t, peer{alias: "peer", reach: reach})
	g, _ := w.start()
	cs := dial(t, g, "local:1", nil)
	go func() {
		_, _ = cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "hang", Meta: key("k")})
	}()
	if <-hung != "begun" {
		t.Fatal()
	}
	// Another process takes the data over, as after a crash of this one.
	turn, err := w.store.Turn(t.Context(), w.one("peer.hang").Turn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.cfg.Ledger.Recover(t.Context(), turn, nil); err != nil {
		t.Fatal(err)
	}
	next, _ := w.start()
	again := dial(t, next, "local:1", nil)
	wantText(t, call(t, again, "hang", nil, key("k")), true, "it may have happened")
	if n := effects(t, dir, "hang"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

func TestNothingStaysBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	w := newWorld(t, peer{alias: "a", reach: process(t, dir)}, peer{alias: "b", reach: process(t, dir)})
	g, stop := w.start()
	here, there := mcp.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- g.Serve(context.Background(), here, "local:1") }()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, call(t, cs, "a__die", nil), true, "unknown")
	wantText(t, call(t, cs, "a__do", nil), false, "done")
	cs.Close()
	<-served
	stop()
	if s := w.log.String(); strings.Contains(s, "could not be recorded") {
		t.Error(s)
	}
}
