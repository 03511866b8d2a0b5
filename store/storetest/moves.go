package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"writ"
	"writ/store"
)

// moves: a write that moves a row changes the columns its comment names, and no other.
func moves(t *testing.T, open Open) {
	s, _ := open(t)
	ctx := context.Background()
	conv := newConversation(t, s)
	turn := store.Turn{ID: id("turn"), Conversation: conv, Agent: "main", State: store.TurnRunning, Kind: store.KindGateway, Tenant: "local",
		Owner: "me", Body: []byte("{}"), ConfigDigest: "cd", Holder: "h", Started: t0}
	held := action(conv, turn.ID, 1)
	held.State = writ.Held
	b := batch()
	b.Turns = []store.TurnWrite{{Turn: turn}}
	b.Actions = []store.ActionWrite{{Action: held}}
	apply(t, s, b)

	expect := turn.State
	for _, state := range []string{store.TurnParked, store.TurnRunning, store.TurnDraining, store.TurnFailed} {
		turn.State, turn.Reason, turn.Holder = state, "because "+state, "holder of "+state
		if state == store.TurnFailed {
			turn.Ended = t0.Add(time.Hour)
		}
		w := turn
		w.Agent, w.Kind, w.Tenant, w.Owner, w.Body, w.ConfigDigest, w.Started = "x", "x", "x", "x", []byte("x"), "x", t0.Add(time.Minute)
		b := batch()
		b.Turns = []store.TurnWrite{{Turn: w, Expect: expect}}
		apply(t, s, b)
		got, err := s.Turn(ctx, turn.ID)
		same(t, got, turn, err)
		list, err := s.OpenTurns(ctx)
		if want := state != store.TurnFailed; err != nil || (len(list) == 1) != want {
			t.Errorf("%s: open turns %v %v", state, list, err)
		}
		expect = state
	}

	w := store.Action{ID: held.ID, State: writ.Admitted, Status: "s2", Failure: "f", Evidence: []string{"e"}, ResultDigest: "r", Generation: 4,
		LeaseToken: 9, AdmittedAt: t0.Add(time.Second), DispatchedAt: t0.Add(2 * time.Second), SettledAt: t0.Add(3 * time.Second), Owner: "x", Tool: "x"}
	b = batch()
	b.Actions = []store.ActionWrite{{Action: w, Expect: writ.Held}}
	apply(t, s, b)
	got, err := s.Action(ctx, held.ID)
	want := held
	want.Seq, want.State, want.Status, want.Failure, want.Evidence, want.ResultDigest = got.Seq, w.State, w.Status, w.Failure, w.Evidence, w.ResultDigest
	want.Generation, want.LeaseToken, want.AdmittedAt, want.DispatchedAt, want.SettledAt = 4, 9, w.AdmittedAt, w.DispatchedAt, w.SettledAt
	same(t, got, want, err)
}

func fenceOfAGeneration(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	put := func(token, generation int64) *store.Batch {
		b := batch()
		b.Fence = &store.Fence{Conversation: conv, Token: token, Generation: generation}
		b.Blocks = []store.Block{{Conversation: conv, Kind: "x", Time: t0}}
		return b
	}
	apply(t, s, put(1, 0))
	b := batch()
	b.Conversations = []store.ConversationWrite{{ExpectToken: 1, Conversation: store.Conversation{ID: conv, LeaseToken: 1, Generation: 5}}}
	apply(t, s, b)
	c, err := s.Conversation(context.Background(), conv)
	if err != nil || c.Generation != 5 || c.Owner != "me" {
		t.Errorf("conversation after a reset: %+v %v", c, err)
	}
	conflict(t, s, put(1, 0), "fence")
	conflict(t, s, put(1, 6), "fence")
	conflict(t, s, put(2, 5), "fence")
	apply(t, s, put(1, 5))
	made := batch()
	made.Conversations = []store.ConversationWrite{{Create: true, Conversation: store.Conversation{ID: id("conv"), Generation: 7}}}
	apply(t, s, made)
	c, err = s.Conversation(context.Background(), made.Conversations[0].ID)
	if err != nil || c.Generation != 7 {
		t.Errorf("generation of a new conversation: %+v %v", c, err)
	}
}

func ordinals(rows []store.Action) []int {
	var n []int
	for _, a := range rows {
		n = append(n, a.Ordinal)
	}
	return n
}

func ledgerFilters(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	b := batch()
	for i := range 6 {
		a := action(conv, "turn"+conv, i+1)
		a.AdmittedAt = t0.Add(time.Duration(i%3) * time.Minute) // not in the order of admission: 0 1 2 0 1 2
		a.Owner, a.Tenant, a.Participant = fmt.Sprint("o", i%2), fmt.Sprint("t", i/3), fmt.Sprint("p", i/2)
		if i == 2 || i == 5 {
			a.State = writ.Indeterminate
		}
		b.Actions = append(b.Actions, store.ActionWrite{Action: a})
	}
	apply(t, s, b)
	minute := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Minute) }
	for _, c := range []struct {
		f    store.ActionFilter
		want []int
	}{
		{store.ActionFilter{Owner: "o1"}, []int{2, 4, 6}}, {store.ActionFilter{Owner: "none"}, nil},
		{store.ActionFilter{Tenant: "t0"}, []int{1, 2, 3}}, {store.ActionFilter{Participant: "p1"}, []int{3, 4}},
		{store.ActionFilter{Participant: "p1", Owner: "o1"}, []int{4}}, {store.ActionFilter{Tenant: "t1", Owner: "o0", Participant: "p2"}, []int{5}},
		{store.ActionFilter{Since: minute(1)}, []int{2, 3, 5, 6}}, {store.ActionFilter{Since: minute(1).Add(time.Microsecond)}, []int{3, 6}},
		{store.ActionFilter{Since: minute(1).Add(time.Nanosecond)}, []int{2, 3, 5, 6}}, // microseconds are what is kept
		{store.ActionFilter{Since: minute(3)}, nil}, {store.ActionFilter{Since: minute(1), Limit: 3}, []int{3, 5, 6}},
		{store.ActionFilter{Since: minute(1), Participant: "p2"}, []int{5, 6}}, {store.ActionFilter{Since: minute(2), Conversation: conv}, []int{3, 6}},
		{store.ActionFilter{Unresolved: true}, []int{3, 6}}, {store.ActionFilter{Unresolved: true, Limit: 1}, []int{6}},
		{store.ActionFilter{Unresolved: true, Owner: "o0"}, []int{3}}, {store.ActionFilter{Unresolved: true, Turn: "turn" + conv}, []int{3, 6}},
		{store.ActionFilter{Unresolved: true, Conversation: conv, Since: minute(1)}, []int{3, 6}},
		{store.ActionFilter{States: []writ.ActionState{writ.Admitted, writ.Held}, Owner: "o0"}, []int{1, 5}},
		{store.ActionFilter{Page: &store.ActionCursor{}}, []int{1, 2, 3, 4, 5, 6}},
		{store.ActionFilter{Page: &store.ActionCursor{Limit: 2}}, []int{1, 2}}, {store.ActionFilter{Page: &store.ActionCursor{}, Limit: 2}, []int{1, 2}},
		{store.ActionFilter{Since: minute(1), Page: &store.ActionCursor{Limit: 3}}, []int{2, 3, 5}},
		{store.ActionFilter{Unresolved: true, Page: &store.ActionCursor{Limit: 1}}, []int{3}},
	} {
		got, err := s.Actions(context.Background(), c.f)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprintf("%+v", c.f), func(t *testing.T) { same(t, ordinals(got), c.want, nil) })
	}
}

func pages(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	const rows = 1203
	for from := 0; from < rows; from += 100 {
		b := batch()
		for i := from; i < min(from+100, rows); i++ {
			a := action(conv, fmt.Sprint("turn", i%7, conv), i+1)
			a.Participant = fmt.Sprint("p", i%3)
			a.AdmittedAt = t0.Add(time.Duration(i) * time.Second)
			b.Actions = append(b.Actions, store.ActionWrite{Action: a})
		}
		apply(t, s, b)
	}
	for name, c := range map[string]struct {
		f    store.ActionFilter
		want func(i int) bool
	}{
		"all":            {store.ActionFilter{}, func(int) bool { return true }},
		"a participant":  {store.ActionFilter{Participant: "p1"}, func(i int) bool { return i%3 == 1 }},
		"a turn":         {store.ActionFilter{Turn: "turn4" + conv}, func(i int) bool { return i%7 == 4 }},
		"a conversation": {store.ActionFilter{Conversation: conv}, func(int) bool { return true }},
		"an owner":       {store.ActionFilter{Owner: "me"}, func(int) bool { return true }},
		"since":          {store.ActionFilter{Since: t0.Add(1000 * time.Second)}, func(i int) bool { return i >= 1000 }},
	} {
		t.Run(name, func(t *testing.T) {
			var got, want []int
			for i := range rows {
				if c.want(i) {
					want = append(want, i+1)
				}
			}
			cursor := store.ActionCursor{Limit: 100}
			for {
				c.f.Page = &cursor
				page, err := s.Actions(context.Background(), c.f)
				if err != nil || len(page) > cursor.Limit {
					t.Fatalf("%d rows, %v", len(page), err)
				}
				for _, a := range page {
					if a.Seq <= cursor.After {
						t.Fatalf("row %d after %d", a.Seq, cursor.After)
					}
					cursor.After = a.Seq
				}
				if got = append(got, ordinals(page)...); len(page) < cursor.Limit {
					break
				}
			}
			same(t, got, want, nil)
		})
	}
}
