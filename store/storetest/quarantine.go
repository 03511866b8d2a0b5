package storetest

import (
	"context"
	"fmt"
	"testing"

	"writ"
	"writ/store"
)

func move(a store.Action, expect, to writ.ActionState) *store.Batch {
	b := batch()
	a.State = to
	b.Actions = []store.ActionWrite{{Action: a, Expect: expect}}
	return b
}

func wants(keys ...store.Key) *store.Batch {
	b := batch()
	b.Free = keys
	return b
}

func resolve(action string) *store.Batch {
	b := batch()
	b.Operations = []store.Operation{{ID: id("op"), Kind: store.OperationResolution, Parent: action, Once: "resolve " + action, Time: t0}}
	return b
}

func barred(t *testing.T, s store.Store, want []store.Quarantine, keys ...store.Key) {
	t.Helper()
	got, err := s.Quarantined(context.Background(), keys...)
	same(t, got, want, err)
}

func quarantine(t *testing.T, open Open) {
	s, reopen := open(t)
	conv := newConversation(t, s)
	key := func(target string) store.Key { return store.Key{Tenant: "local", Owner: "me", Target: target} }
	entry := func(target, action string) store.Quarantine {
		return store.Quarantine{Tenant: "local", Owner: "me", Target: target, Action: action}
	}
	apply(t, s, wants(key("t1"), key("t2")))

	// An unknown outcome bars its targets, as the row has them, whatever the write that moves it carries.
	a := action(conv, "turn", 1)
	apply(t, s, move(a, "", writ.Admitted))
	apply(t, s, move(a, writ.Admitted, writ.Dispatched))
	apply(t, s, wants(key("t1")))
	apply(t, s, move(store.Action{ID: a.ID, Targets: []string{"other"}, Owner: "other"}, writ.Dispatched, writ.Indeterminate))
	barred(t, s, []store.Quarantine{entry("t1", a.ID), entry("t2", a.ID)})
	conflict(t, s, wants(key("free"), key("t2")), "quarantine")
	apply(t, s, wants(key("other")))

	// One that is inserted as unknown does too, and each action lifts only its own.
	b := action(conv, "turn", 2)
	b.Targets = []string{"t2", "t3"}
	apply(t, s, move(b, "", writ.Indeterminate))
	barred(t, s, []store.Quarantine{entry("t1", a.ID), entry("t2", a.ID), entry("t2", b.ID), entry("t3", b.ID)})
	if reopen != nil {
		s = reopen()
	}
	apply(t, s, resolve(a.ID))
	conflict(t, s, resolve(a.ID), "operation")
	barred(t, s, []store.Quarantine{entry("t2", b.ID), entry("t3", b.ID)})
	apply(t, s, wants(key("t1")))
	conflict(t, s, wants(key("t2")), "quarantine")

	// What else is done about an action lifts nothing.
	late := resolve(b.ID)
	late.Operations[0].Kind, late.Operations[0].Once = store.OperationReport, ""
	apply(t, s, late)
	conflict(t, s, wants(key("t2")), "quarantine")
	apply(t, s, resolve(b.ID))
	barred(t, s, nil)
	apply(t, s, wants(key("t1"), key("t2"), key("t3")))

	// The row of an unknown outcome and its resolution in one batch: in the order of the parts.
	c := action(conv, "turn", 3)
	both := move(c, "", writ.Indeterminate)
	both.Operations = resolve(c.ID).Operations
	apply(t, s, both)
	barred(t, s, nil)

	// No targets, no entries.
	d := action(conv, "turn", 4)
	d.Targets = nil
	apply(t, s, move(d, "", writ.Indeterminate))
	barred(t, s, nil)
}

// quarantineByHand: keys of an action that may be running are barred until it settles.
func quarantineByHand(t *testing.T, open Open) {
	s, reopen := open(t)
	conv := newConversation(t, s)
	key := store.Key{Tenant: "local", Owner: "me", Target: "t1"}
	for i, end := range []writ.ActionState{writ.Succeeded, writ.Failed, writ.Withheld} {
		a := action(conv, "turn", i+1)
		b := move(a, "", writ.Dispatched)
		b.Quarantine = []store.Quarantine{{Tenant: "local", Owner: "me", Target: "t1", Action: a.ID}}
		b.Free = []store.Key{key} // it is free before, and the batch's own entry is not in its way
		apply(t, s, b)
		again := batch()
		again.Quarantine = b.Quarantine // entering twice is fine
		apply(t, s, again)
		barred(t, s, b.Quarantine)
		conflict(t, s, wants(key), "quarantine")
		refused := move(a, writ.Dispatched, end) // a settlement that is refused lifts nothing
		refused.Claims = []store.Claim{{Key: "k"}, {Key: "k"}}
		conflict(t, s, refused, "claim")
		barred(t, s, b.Quarantine)
		if reopen != nil && i == 1 {
			s = reopen()
		}
		apply(t, s, move(a, writ.Dispatched, end))
		barred(t, s, nil)
		apply(t, s, wants(key))
	}
	// One whose outcome stays unknown keeps them, besides its own.
	a := action(conv, "turn", 9)
	b := move(a, "", writ.Dispatched)
	b.Quarantine = []store.Quarantine{{Tenant: "local", Owner: "me", Target: "more", Action: a.ID}}
	apply(t, s, b)
	apply(t, s, move(a, writ.Dispatched, writ.Indeterminate))
	if list, err := s.Quarantined(context.Background()); err != nil || len(list) != 3 {
		t.Errorf("quarantined %v %v", list, err)
	}
	apply(t, s, resolve(a.ID))
	barred(t, s, nil)
}

func quarantineKeys(t *testing.T, open Open) {
	s, _ := open(t)
	b := batch()
	var all []store.Quarantine
	for _, tenant := range []string{"", "a", "b"} {
		for _, owner := range []string{"", "a", "b"} {
			for _, target := range []string{"", "a", "a\x00b", "b", "\xff"} {
				all = append(all, store.Quarantine{Tenant: tenant, Owner: owner, Target: target, Action: "act"})
			}
		}
	}
	b.Quarantine = all[1:] // all but ("", "", "")
	apply(t, s, b)
	list, err := s.Quarantined(context.Background())
	if err != nil || len(list) != len(all)-1 {
		t.Errorf("%d of %d, %v", len(list), len(all)-1, err)
	}
	apply(t, s, wants(store.Key{}))
	for _, q := range all[1:] {
		conflict(t, s, wants(store.Key{}, store.Key{Tenant: q.Tenant, Owner: q.Owner, Target: q.Target}), "quarantine")
	}
	for _, k := range []store.Key{{Tenant: "c"}, {Tenant: "a", Owner: "c"}, {Tenant: "a", Owner: "a", Target: "c"}, {Tenant: "a", Owner: "a", Target: "a\x00"}} {
		apply(t, s, wants(k))
		barred(t, s, nil, k)
	}
	k := store.Key{Tenant: "a", Owner: "b", Target: "a"}
	barred(t, s, []store.Quarantine{{Tenant: "a", Owner: "b", Target: "a", Action: "act"}}, k, store.Key{Target: "none"}, k)

	// A row's targets and a key meet whatever their bytes are; and many keys can be asked for at once.
	conv := newConversation(t, s)
	a := action(conv, "turn", 1)
	a.Tenant, a.Targets = "hostile", []string{"\xff\xfe<&>", "nul\x00", "quote\"\\"}
	apply(t, s, move(a, "", writ.Indeterminate))
	var keys []store.Key
	for i := range 2500 {
		keys = append(keys, store.Key{Tenant: "none", Target: fmt.Sprint(i)})
	}
	for _, target := range a.Targets {
		k := store.Key{Tenant: "hostile", Owner: "me", Target: target}
		conflict(t, s, wants(k), "quarantine")
		keys = append(keys, k)
	}
	if list, err := s.Quarantined(context.Background(), keys...); err != nil || len(list) != 3 {
		t.Errorf("of many keys: %v %v", list, err)
	}
}

func unresolved(t *testing.T, open Open) {
	s, reopen := open(t)
	conv := newConversation(t, s)
	var acts []store.Action
	for i := range 4 {
		a := action(conv, "turn", i+1)
		acts = append(acts, a)
		apply(t, s, move(a, "", writ.Dispatched))
		if i < 3 {
			apply(t, s, move(a, writ.Dispatched, writ.Indeterminate))
		}
	}
	list := func(want ...int) {
		t.Helper()
		got, err := s.Actions(context.Background(), store.ActionFilter{Unresolved: true})
		same(t, ordinals(got), want, err)
	}
	list(1, 2, 3)
	apply(t, s, resolve(acts[1].ID))
	list(1, 3)
	report := resolve(acts[0].ID)
	report.Operations[0].Kind = store.OperationReport
	report.Operations[0].Once = ""
	apply(t, s, report)
	list(1, 3)
	refused := resolve(acts[0].ID)
	refused.Claims = []store.Claim{{Key: "k"}, {Key: "k"}}
	conflict(t, s, refused, "claim")
	list(1, 3)
	apply(t, s, resolve(acts[0].ID))
	apply(t, s, resolve(acts[2].ID))
	if reopen != nil {
		s = reopen()
	}
	list()
	// One that came before the outcome was lost is a resolution too; it lifts nothing of what comes after it.
	apply(t, s, resolve(acts[3].ID))
	apply(t, s, move(acts[3], writ.Dispatched, writ.Indeterminate))
	list()
	if q, err := s.Quarantined(context.Background()); err != nil || len(q) != 2 {
		t.Errorf("quarantined %v %v", q, err)
	}
	// The row of a resolved action does not change by it.
	a, err := s.Action(context.Background(), acts[1].ID)
	same(t, a.State, writ.Indeterminate, err)
}
