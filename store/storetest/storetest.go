// Package storetest is the contract of a store driver as a function. Every driver passes it.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"writ"
	"writ/store"
)

// Open gives an empty store; reopen, when not nil, closes it and opens what it left.
type Open func(t *testing.T) (s store.Store, reopen func() store.Store)

var t0 = time.Date(2026, 7, 12, 9, 0, 0, 123000, time.UTC)

// Run runs the contract.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		fn   func(*testing.T, Open)
	}{
		{"round trip", roundTrip}, {"all or nothing", allOrNothing}, {"transitions", transitions}, {"slots", slots},
		{"fence", fence}, {"fence of a generation", fenceOfAGeneration}, {"moves write what they say", moves}, {"blocks are numbered without gaps", numbering}, {"hostile bytes", hostileBytes},
		{"conflicts do not hurt neighbours", neighbours}, {"concurrent writers", concurrent}, {"filters", filters},
		{"filters of the ledger", ledgerFilters}, {"pages", pages}, {"a refused batch writes nothing", refused},
		{"parts are checked in order", partOrder}, {"twice within a batch", twice}, {"the full batch reads back", fullReadsBack},
		{"claims", claims}, {"approvals", approvals}, {"operations", operations}, {"schedules", schedules}, {"tokens", tokens},
		{"quarantine comes and goes", quarantine}, {"quarantine by hand", quarantineByHand}, {"quarantine is of a key", quarantineKeys},
		{"unresolved", unresolved}, {"history is a chain", history}, {"history of concurrent batches", historyConcurrent},
		{"heads", heads}, {"tips are sealed", tips},
		{"invalid batches", invalid}, {"cancelled", cancelled}, {"survives reopening", survives}, {"closed", closed}, {"fault seam", faultSeam},
	} {
		t.Run(c.name, func(t *testing.T) { c.fn(t, open) })
	}
}

var ids struct {
	sync.Mutex
	n int
}

func id(prefix string) string {
	ids.Lock()
	defer ids.Unlock()
	ids.n++
	return fmt.Sprintf("%s%06d", prefix, ids.n)
}

func batch() *store.Batch { return &store.Batch{ID: id("b"), Time: t0} }

func apply(t *testing.T, s store.Store, b *store.Batch) {
	t.Helper()
	if err := s.Apply(context.Background(), b); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

func conflict(t *testing.T, s store.Store, b *store.Batch, part string) {
	t.Helper()
	err := s.Apply(context.Background(), b)
	var c *store.Conflict
	if !errors.As(err, &c) || !errors.Is(err, store.ErrConflict) || c.Part != part {
		t.Fatalf("apply: %v, want a conflict of %s", err, part)
	}
	if ok, err := s.Applied(context.Background(), b.ID); err != nil || ok && part != "batch" {
		t.Fatalf("a refused batch counts as applied: %v %v", ok, err)
	}
}

func newConversation(t *testing.T, s store.Store) string {
	t.Helper()
	c := id("conv")
	b := batch()
	b.Conversations = []store.ConversationWrite{{Create: true, Conversation: store.Conversation{ID: c, Tenant: "local", Owner: "me", Agent: "main", LeaseToken: 1, Holder: "h"}}}
	apply(t, s, b)
	return c
}

func action(conv, turn string, n int) store.Action {
	return store.Action{ID: id("act"), Tenant: "local", Owner: "me", Conversation: conv, Turn: turn, Ordinal: n, Round: 1, Attempt: 1, Index: n - 1,
		Tool: "probe.add", ToolCallID: id("tc"), Fingerprint: "fp", RequestDigest: "rd", ArgumentDigest: "ad", Participant: "p",
		Implementation: "i", Affordance: "a", Contract: "c", Boundary: "b", Targets: []string{"t1", "t2"}, Scope: conv, Generation: 3,
		LeaseToken: 1, Strategy: "neutral", Execution: "x", Effect: "once", PolicyDigest: "pd", IdempotencyKey: "k", Observation: "o",
		Early: true, Offer: "of", Timeout: 90 * time.Second, AdmittedAt: t0, State: writ.Admitted, Status: "st"}
}

func roundTrip(t *testing.T, open Open) {
	s, _ := open(t)
	ctx := context.Background()
	conv := newConversation(t, s)
	turn := store.Turn{ID: id("turn"), Conversation: conv, Agent: "main", State: store.TurnRunning, Kind: store.KindHTTP, Tenant: "local",
		Owner: "me", Body: []byte(`{"i":1}`), ConfigDigest: "cd", Holder: "h", Started: t0}
	a := action(conv, turn.ID, 1)
	b := batch()
	b.Turns = []store.TurnWrite{{Turn: turn}}
	b.Actions = []store.ActionWrite{{Action: a}}
	b.Blocks = []store.Block{{Conversation: conv, Key: "k1", Turn: turn.ID, Kind: "user", ActionID: a.ID, Body: []byte(`{"x":1}`), Time: t0}}
	b.Documents = []store.Document{{Digest: "d" + conv, Body: []byte("doc")}}
	apply(t, s, b)
	if b.Blocks[0].Seq != 1 {
		t.Errorf("seq %d, want 1", b.Blocks[0].Seq)
	}
	gotTurn, err := s.Turn(ctx, turn.ID)
	same(t, gotTurn, turn, err)
	gotAction, err := s.Action(ctx, a.ID)
	a.Seq = gotAction.Seq
	if a.Seq < 1 {
		t.Errorf("a row of the ledger without a number")
	}
	same(t, gotAction, a, err)
	blocks, err := s.Blocks(ctx, conv, 0, 0)
	same(t, blocks, []store.Block{b.Blocks[0]}, err)
	doc, err := s.Document(ctx, "d"+conv)
	same(t, string(doc), "doc", err)
	c, err := s.Conversation(ctx, conv)
	same(t, c, store.Conversation{ID: conv, Tenant: "local", Owner: "me", Agent: "main", LeaseToken: 1, Holder: "h", Created: t0, Changed: t0}, err)
	if ok, err := s.Applied(ctx, b.ID); !ok || err != nil {
		t.Errorf("applied: %v %v", ok, err)
	}
	for what, err := range map[string]error{
		"conversation": second(s.Conversation(ctx, "none")), "turn": second(s.Turn(ctx, "none")),
		"action": second(s.Action(ctx, "none")), "document": second(s.Document(ctx, "none")),
		"claim": second(s.Claim(ctx, "none", "none")), "approval": second(s.Approval(ctx, "none")), "operation": second(s.Operation(ctx, "none")),
		"schedule": second(s.Schedule(ctx, "none")), "token": second(s.Token(ctx, "none")),
	} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("absent %s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func same[T any](t *testing.T, got, want T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("came back different (-want +got):\n%s", d)
	}
}

func allOrNothing(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	a := action(conv, "turn1", 1)
	b := batch()
	b.Actions = []store.ActionWrite{{Action: a}}
	b.Blocks = []store.Block{{Conversation: conv, Kind: "x", Time: t0, Key: "same"}, {Conversation: conv, Kind: "x", Time: t0, Key: "same"}}
	conflict(t, s, b, "block")
	if _, err := s.Action(context.Background(), a.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("half of a refused batch is there: %v", err)
	}
	if bl, _ := s.Blocks(context.Background(), conv, 0, 0); len(bl) != 0 {
		t.Errorf("blocks of a refused batch: %v", bl)
	}
	ok := batch()
	ok.Blocks = []store.Block{{Conversation: conv, Kind: "x", Time: t0}}
	apply(t, s, ok)
	if ok.Blocks[0].Seq != 1 {
		t.Errorf("a refused batch used up a number: next is %d", ok.Blocks[0].Seq)
	}
	again := &store.Batch{ID: ok.ID, Time: t0, Blocks: []store.Block{{Conversation: conv, Kind: "x", Time: t0}}}
	conflict(t, s, again, "batch")
}

func transitions(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	a := action(conv, "turn1", 1)
	step := func(expect, to writ.ActionState) *store.Batch {
		b := batch()
		w := a
		w.State = to
		if to == writ.Succeeded {
			w.ResultDigest, w.Evidence, w.SettledAt = "res", []string{"e"}, t0.Add(time.Second)
		}
		b.Actions = []store.ActionWrite{{Action: w, Expect: expect}}
		return b
	}
	conflict(t, s, step(writ.Admitted, writ.Dispatched), "action")
	apply(t, s, step("", writ.Admitted))
	conflict(t, s, step("", writ.Admitted), "action")
	apply(t, s, step(writ.Admitted, writ.Dispatched))
	conflict(t, s, step(writ.Admitted, writ.Dispatched), "action")
	conflict(t, s, step(writ.Admitted, writ.Withheld), "action")
	done := step(writ.Dispatched, writ.Succeeded)
	done.Actions[0].Tool = "never.changes"
	apply(t, s, done)
	conflict(t, s, step(writ.Dispatched, writ.Indeterminate), "action")
	got, err := s.Action(context.Background(), a.ID)
	want := a
	want.Seq = got.Seq
	want.State, want.ResultDigest, want.Evidence, want.SettledAt = writ.Succeeded, "res", []string{"e"}, t0.Add(time.Second)
	same(t, got, want, err)

	turn := store.Turn{ID: id("turn"), Conversation: conv, State: store.TurnRunning, Started: t0}
	b := batch()
	b.Turns = []store.TurnWrite{{Turn: turn}}
	apply(t, s, b)
	open1, err := s.OpenTurns(context.Background())
	if err != nil || len(open1) != 1 {
		t.Fatalf("open turns %v %v", open1, err)
	}
	end := func() *store.Batch {
		b := batch()
		e := turn
		e.State, e.Ended = store.TurnAnswered, t0
		b.Turns = []store.TurnWrite{{Turn: e, Expect: store.TurnRunning}}
		return b
	}
	apply(t, s, end())
	conflict(t, s, end(), "turn")
	if o, _ := s.OpenTurns(context.Background()); len(o) != 0 {
		t.Errorf("an ended turn is open: %v", o)
	}
}

func slots(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	a := action(conv, "turn1", 1)
	b := batch()
	b.Actions = []store.ActionWrite{{Action: a}}
	apply(t, s, b)
	for name, mend := range map[string]func(*store.Action){
		"slot":    func(x *store.Action) { x.Ordinal, x.Index = 2, a.Index },
		"call id": func(x *store.Action) { x.Ordinal, x.Index, x.ToolCallID = 2, 5, a.ToolCallID },
		"ordinal": func(x *store.Action) { x.Ordinal, x.Index = a.Ordinal, 5 },
	} {
		x := action(conv, "turn1", 2)
		mend(&x)
		b := batch()
		b.Actions = []store.ActionWrite{{Action: x}}
		if err := s.Apply(context.Background(), b); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s taken twice: %v", name, err)
		}
	}
	next := action(conv, "turn1", 2)
	next.Index, next.Attempt = 0, 2 // the same slot in a later attempt is another row
	ok := batch()
	ok.Actions = []store.ActionWrite{{Action: next}}
	apply(t, s, ok)
}

func fence(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	put := func(token int64) *store.Batch {
		b := batch()
		b.Fence = &store.Fence{Conversation: conv, Token: token}
		b.Blocks = []store.Block{{Conversation: conv, Kind: "x", Time: t0}}
		return b
	}
	apply(t, s, put(1))
	take := func(expect int64) *store.Batch {
		b := batch()
		b.Conversations = []store.ConversationWrite{{ExpectToken: expect, Conversation: store.Conversation{ID: conv, LeaseToken: expect + 1, Holder: "other", LeaseUntil: t0.Add(time.Minute)}}}
		return b
	}
	apply(t, s, take(1))
	conflict(t, s, put(1), "fence")
	conflict(t, s, take(1), "conversation")
	apply(t, s, put(2))
	c, err := s.Conversation(context.Background(), conv)
	if err != nil || c.LeaseToken != 2 || c.Holder != "other" || !c.LeaseUntil.Equal(t0.Add(time.Minute)) || c.Agent != "main" {
		t.Errorf("conversation after takeover: %+v %v", c, err)
	}
	dup := batch()
	dup.Conversations = []store.ConversationWrite{{Create: true, Conversation: store.Conversation{ID: conv}}}
	conflict(t, s, dup, "conversation")
	none := batch()
	none.Fence = &store.Fence{Conversation: "none", Token: 0}
	conflict(t, s, none, "fence")
}

func numbering(t *testing.T, open Open) {
	s, _ := open(t)
	c1, c2 := newConversation(t, s), newConversation(t, s)
	b := batch()
	for i := range 6 {
		conv := c1
		if i%3 == 2 {
			conv = c2
		}
		b.Blocks = append(b.Blocks, store.Block{Conversation: conv, Kind: "x", Time: t0, Body: []byte{byte('0' + i)}})
	}
	apply(t, s, b)
	more := batch()
	more.Blocks = []store.Block{{Conversation: c1, Kind: "x", Time: t0, Body: []byte("z")}}
	apply(t, s, more)
	var got []string
	for _, conv := range []string{c1, c2} {
		bl, err := s.Blocks(context.Background(), conv, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range bl {
			got = append(got, fmt.Sprintf("%d%s", x.Seq, x.Body))
		}
	}
	same(t, got, []string{"10", "21", "33", "44", "5z", "12", "25"}, nil)
	tail, err := s.Blocks(context.Background(), c1, 3, 1)
	if err != nil || len(tail) != 1 || tail[0].Seq != 4 {
		t.Errorf("tail %v %v", tail, err)
	}
	orphan := batch()
	orphan.Blocks = []store.Block{{Conversation: "none", Kind: "x", Time: t0}}
	conflict(t, s, orphan, "block")
}

func hostileBytes(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	bodies := [][]byte{{}, {0}, []byte("a\x00b"), {0xed, 0xa0, 0x80}, []byte("\"\\ud800\""), bytes.Repeat([]byte("x"), 8<<20), []byte("日本\u2028")}
	b := batch()
	for _, body := range bodies {
		b.Blocks = append(b.Blocks, store.Block{Conversation: conv, Kind: "x", Time: t0, Body: body})
	}
	apply(t, s, b)
	got, err := s.Blocks(context.Background(), conv, 0, 0)
	if err != nil || len(got) != len(bodies) {
		t.Fatalf("%d blocks, %v", len(got), err)
	}
	for i := range bodies {
		if !bytes.Equal(got[i].Body, bodies[i]) {
			t.Errorf("body %d came back different", i)
		}
	}
}

func neighbours(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	const n = 64
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		b := batch()
		b.Blocks = []store.Block{{Conversation: conv, Kind: "x", Time: t0, Key: fmt.Sprint("k", i/2)}} // every second one conflicts
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = s.Apply(context.Background(), b)
		}()
	}
	wg.Wait()
	for i := 0; i < n; i += 2 {
		if (errs[i] == nil) == (errs[i+1] == nil) {
			t.Errorf("pair %d: %v, %v: exactly one must be written", i/2, errs[i], errs[i+1])
		}
	}
	bl, err := s.Blocks(context.Background(), conv, 0, 0)
	if err != nil || len(bl) != n/2 || bl[len(bl)-1].Seq != n/2 {
		t.Errorf("%d blocks, %v", len(bl), err)
	}
}

func concurrent(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	a := action(conv, "turn1", 1)
	b := batch()
	b.Actions = []store.ActionWrite{{Action: a}}
	apply(t, s, b)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 32 {
		b := batch()
		w := a
		w.State = writ.Dispatched
		b.Actions = []store.ActionWrite{{Action: w, Expect: writ.Admitted}}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if s.Apply(context.Background(), b) == nil {
				mu.Lock()
				won++
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d of 32 dispatches were granted, want exactly one", won)
	}
}

func filters(t *testing.T, open Open) {
	s, _ := open(t)
	c1, c2 := newConversation(t, s), newConversation(t, s)
	b := batch()
	for i := range 6 {
		conv, turn := c1, "turnA"+c1
		if i >= 4 {
			conv, turn = c2, "turnB"+c2
		}
		a := action(conv, turn, i+1)
		a.Round = i%2 + 1
		if i == 3 {
			a.State, a.Tool = writ.Withheld, "other.tool"
		}
		b.Actions = append(b.Actions, store.ActionWrite{Action: a})
	}
	apply(t, s, b)
	for _, c := range []struct {
		f    store.ActionFilter
		want []int
	}{
		{store.ActionFilter{}, []int{1, 2, 3, 4, 5, 6}}, {store.ActionFilter{Limit: 2}, []int{5, 6}},
		{store.ActionFilter{Conversation: c1}, []int{1, 2, 3, 4}}, {store.ActionFilter{Turn: "turnB" + c2}, []int{5, 6}},
		{store.ActionFilter{Turn: "turnA" + c1, Round: 2}, []int{2, 4}}, {store.ActionFilter{Tool: "other.tool"}, []int{4}},
		{store.ActionFilter{States: []writ.ActionState{writ.Withheld, writ.Held}}, []int{4}}, {store.ActionFilter{Turn: "none"}, nil},
	} {
		got, err := s.Actions(context.Background(), c.f)
		if err != nil {
			t.Fatal(err)
		}
		var n []int
		for _, a := range got {
			n = append(n, a.Ordinal)
		}
		if d := cmp.Diff(c.want, n); d != "" {
			t.Errorf("%+v: %s", c.f, d)
		}
	}
	list, err := s.Conversations(context.Background(), 1)
	if err != nil || len(list) != 1 {
		t.Errorf("conversations %v %v", list, err)
	}
}

func invalid(t *testing.T, open Open) {
	s, _ := open(t)
	for name, b := range map[string]*store.Batch{
		"no id": {Time: t0}, "no time": {ID: "x"},
		"action without state": {ID: "x", Time: t0, Actions: []store.ActionWrite{{Action: store.Action{ID: "a"}}}},
		"block without kind":   {ID: "x", Time: t0, Blocks: []store.Block{{Conversation: "c"}}},
	} {
		if err := s.Apply(context.Background(), b); err == nil || errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func cancelled(t *testing.T, open Open) {
	s, _ := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := batch()
	if err := s.Apply(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("apply under a cancelled context: %v", err)
	}
	if ok, _ := s.Applied(context.Background(), b.ID); ok {
		t.Error("a cancelled batch was written")
	}
}

func survives(t *testing.T, open Open) {
	s, reopen := open(t)
	if reopen == nil {
		return // the driver forgets by design
	}
	conv := newConversation(t, s)
	b := batch()
	b.Blocks = []store.Block{{Conversation: conv, Kind: "x", Time: t0, Body: []byte("kept")}}
	apply(t, s, b)
	s = reopen()
	bl, err := s.Blocks(context.Background(), conv, 0, 0)
	if err != nil || len(bl) != 1 || string(bl[0].Body) != "kept" {
		t.Errorf("after reopening: %v %v", bl, err)
	}
	if ok, err := s.Applied(context.Background(), b.ID); !ok || err != nil {
		t.Errorf("after reopening the batch id is gone: %v", err)
	}
}

func closed(t *testing.T, open Open) {
	s, _ := open(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(context.Background(), batch()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("apply after close: %v", err)
	}
}

func faultSeam(t *testing.T, open Open) {
	s, _ := open(t)
	boom := errors.New("boom")
	b1, b2 := batch(), batch()
	f := &store.Fault{Store: s, Before: func(b *store.Batch) error {
		if b == b1 {
			return boom
		}
		return nil
	}, After: func(*store.Batch) error { return store.ErrUnknown }}
	if err := f.Apply(context.Background(), b1); !errors.Is(err, boom) {
		t.Errorf("before: %v", err)
	}
	if err := f.Apply(context.Background(), b2); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("after: %v", err)
	}
	one, _ := s.Applied(context.Background(), b1.ID)
	two, _ := s.Applied(context.Background(), b2.ID)
	if one || !two {
		t.Errorf("written: before %v, after %v; want false, true", one, two)
	}
}
