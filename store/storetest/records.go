package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"writ/store"
)

func claims(t *testing.T, open Open) {
	s, _ := open(t)
	c := store.Claim{Scope: "scope", Key: "key", Digest: "d", Subject: "act", Time: t0}
	put := func(c store.Claim) *store.Batch {
		b := batch()
		b.Claims = []store.Claim{c}
		return b
	}
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		b := put(c)
		wg.Go(func() { errs[i] = s.Apply(context.Background(), b) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		var conflict *store.Conflict
		switch {
		case err == nil:
			won++
		case !errors.As(err, &conflict) || conflict.Part != "claim":
			t.Errorf("a claim that lost: %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d claims of one key were granted, want exactly one", won, len(errs))
	}
	got, err := s.Claim(context.Background(), "scope", "key")
	same(t, got, c, err)
	c.Scope = "another"
	apply(t, s, put(c))
	if _, err := s.Claim(context.Background(), "scope", "another"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a key nobody claimed: %v", err)
	}
}

func approval(conv, turn string) store.Approval {
	return store.Approval{Action: id("act"), Tenant: "local", Owner: "me", Conversation: conv, Turn: turn, Agent: "main", Tool: "probe.add",
		Approver: "owner", ArgumentDigest: "ad", PolicyDigest: "pd", State: store.ApprovalPending, Created: t0, Expires: t0.Add(time.Hour)}
}

func approvals(t *testing.T, open Open) {
	s, _ := open(t)
	ctx := context.Background()
	var all []store.Approval
	b := batch()
	for i := range 5 {
		a := approval([]string{"c0", "c1"}[i%2], []string{"t0", "t1", "t2"}[i%3])
		all = append(all, a)
		b.Approvals = append(b.Approvals, store.ApprovalWrite{Approval: a})
	}
	apply(t, s, b)
	decide := func(a store.Approval, expect string) *store.Batch {
		b := batch()
		b.Approvals = []store.ApprovalWrite{{Approval: a, Expect: expect}}
		return b
	}
	all[1].State, all[1].Actor, all[1].Note, all[1].Decided = store.ApprovalApproved, "me", "fine", t0.Add(time.Minute)
	w := all[1]
	w.Owner, w.Tool, w.Turn, w.ArgumentDigest, w.Expires = "x", "x", "x", "x", t0 // these stay
	apply(t, s, decide(w, store.ApprovalPending))
	conflict(t, s, decide(w, store.ApprovalPending), "approval") // decided once
	all[3].State = store.ApprovalVoid
	apply(t, s, decide(all[3], store.ApprovalPending))
	for _, want := range all {
		got, err := s.Approval(ctx, want.Action)
		same(t, got, want, err)
	}
	for _, c := range []struct {
		f    store.ApprovalFilter
		want []int
	}{
		{store.ApprovalFilter{}, []int{0, 1, 2, 3, 4}}, {store.ApprovalFilter{Limit: 2}, []int{0, 1}},
		{store.ApprovalFilter{Conversation: "c1"}, []int{1, 3}}, {store.ApprovalFilter{Turn: "t1"}, []int{1, 4}},
		{store.ApprovalFilter{Turn: "t1", Conversation: "c0"}, []int{4}}, {store.ApprovalFilter{Turn: "none"}, nil},
		{store.ApprovalFilter{States: []string{store.ApprovalPending}}, []int{0, 2, 4}},
		{store.ApprovalFilter{States: []string{store.ApprovalVoid, store.ApprovalApproved}}, []int{1, 3}},
		{store.ApprovalFilter{Conversation: "c0", States: []string{store.ApprovalPending}, Limit: 1}, []int{0}},
	} {
		var want []store.Approval
		for _, i := range c.want {
			want = append(want, all[i])
		}
		got, err := s.Approvals(ctx, c.f)
		same(t, got, want, err)
	}
}

func operations(t *testing.T, open Open) {
	s, _ := open(t)
	ctx := context.Background()
	put := func(o store.Operation) *store.Batch {
		b := batch()
		b.Operations = []store.Operation{o}
		return b
	}
	one := store.Operation{ID: id("op"), Kind: store.OperationApproval, Parent: "p", Tenant: "local", Actor: "me", Body: []byte("{\"a\": \x00 1}"), Time: t0}
	two := one
	two.ID = id("op") // without a Once the same may be done again
	apply(t, s, put(one))
	apply(t, s, put(two))
	three := one
	three.ID, three.Once, three.Parent, three.Body = id("op"), "once", "q", nil
	apply(t, s, put(three))
	for _, want := range []store.Operation{one, two, three} {
		got, err := s.Operation(ctx, want.ID)
		same(t, got, want, err)
	}
	got, err := s.Operations(ctx, "p")
	same(t, got, []store.Operation{one, two}, err)
	got, err = s.Operations(ctx, "none")
	same(t, got, nil, err)
	again := three
	again.ID = id("op")
	conflict(t, s, put(again), "operation")
	conflict(t, s, put(one), "operation")
}

func schedules(t *testing.T, open Open) {
	s, _ := open(t)
	ctx := context.Background()
	put := func(c store.Schedule, expect int64) *store.Batch {
		b := batch()
		b.Schedules = []store.ScheduleWrite{{Schedule: c, Expect: expect}}
		return b
	}
	c := store.Schedule{ID: "b", Tenant: "local", Owner: "me", Agent: "main", Conversation: "c", Generation: 1, Revision: 1, State: store.ScheduleRunning,
		Reason: "r", PolicyDigest: "pd", Next: t0, Attempted: 6, Succeeded: 3, Failed: 2, InFlight: 1, Holder: "h", LeaseToken: 4, LeaseUntil: t0, Changed: t0}
	apply(t, s, put(c, 0))
	conflict(t, s, put(c, 0), "schedule")
	first := store.Schedule{ID: "a", Revision: 1, State: store.SchedulePaused}
	apply(t, s, put(first, 0))
	next := store.Schedule{ID: "b", Revision: 2, Generation: 2, State: store.ScheduleDone, Conversation: "d"} // every field is replaced
	apply(t, s, put(next, 1))
	conflict(t, s, put(next, 1), "schedule")
	c.Revision = 4
	conflict(t, s, put(c, 2), "schedule") // a revision is not skipped
	conflict(t, s, put(c, 3), "schedule")
	got, err := s.Schedule(ctx, "b")
	same(t, got, next, err)
	list, err := s.Schedules(ctx)
	same(t, list, []store.Schedule{first, next}, err)
}

func token(kind string) store.Token {
	return store.Token{ID: id("tok"), Kind: kind, Hash: id("hash"), Tenant: "local", Owner: "me", Subject: "*", Name: "n", Created: t0, Expires: t0.Add(time.Hour)}
}

func tokens(t *testing.T, open Open) {
	s, _ := open(t)
	ctx := context.Background()
	one, two, other := token(store.TokenAPI), token(store.TokenAPI), token(store.TokenInvocation)
	b := batch()
	b.Tokens = []store.TokenWrite{{Token: one}, {Token: other}, {Token: two}}
	apply(t, s, b)
	two.Revoked, two.Expires = t0.Add(time.Minute), time.Time{}
	revoke := batch()
	revoke.Tokens = []store.TokenWrite{{Token: store.Token{ID: two.ID, Revoked: two.Revoked}, Update: true}} // the other fields stay
	apply(t, s, revoke)
	for _, want := range []store.Token{one, two, other} {
		got, err := s.Token(ctx, want.Hash)
		same(t, got, want, err)
	}
	list, err := s.Tokens(ctx, store.TokenAPI)
	same(t, list, []store.Token{one, two}, err)
	list, err = s.Tokens(ctx, "none")
	same(t, list, nil, err)
}
