package storetest

import (
	"context"
	"testing"
	"time"

	"writ"
	"writ/store"
)

// nextHead is the head that follows the last one.
func nextHead(t *testing.T, s store.Store, tips ...store.Tip) store.Head {
	t.Helper()
	last, err := s.Heads(context.Background(), -1)
	if err != nil || len(last) > 1 {
		t.Fatalf("last head: %v %v", last, err)
	}
	h := store.Head{N: 1, Time: t0, Tips: tips}
	if len(last) == 1 {
		h.N, h.Prev = last[0].N+1, last[0].Hash
	}
	h.Hash = store.HeadHash(&h)
	return h
}

// full is a batch with every part, all of which can be written.
func full(t *testing.T, s store.Store, conv string) *store.Batch {
	t.Helper()
	b := batch()
	b.Fence = &store.Fence{Conversation: conv, Token: 1}
	other := id("conv")
	b.Conversations = []store.ConversationWrite{{Create: true, Conversation: store.Conversation{ID: other, Tenant: "local", LeaseToken: 3, Generation: 2}}}
	turn := id("turn")
	b.Turns = []store.TurnWrite{{Turn: store.Turn{ID: turn, Conversation: conv, State: store.TurnRunning, Body: []byte("body"), Started: t0}}}
	gone := action(conv, turn, 2)
	gone.State, gone.Targets = writ.Indeterminate, []string{"gone" + turn}
	b.Actions = []store.ActionWrite{{Action: action(conv, turn, 1)}, {Action: gone}}
	b.Blocks = []store.Block{{Conversation: conv, Key: id("key"), Kind: "x", Body: []byte("x"), Time: t0}, {Conversation: other, Kind: "x", Time: t0}}
	b.Documents = []store.Document{{Digest: "the document", Body: []byte("doc")}}
	b.Claims = []store.Claim{{Scope: "s", Key: id("key"), Digest: "d", Subject: "sub", Time: t0}}
	b.Approvals = []store.ApprovalWrite{{Approval: approval(conv, turn)}}
	b.Operations = []store.Operation{{ID: id("op"), Kind: store.OperationReport, Parent: "the parent", Tenant: "local", Actor: "me", Once: id("once"),
		Body: []byte(`{"r":1}`), Time: t0}}
	b.History = []store.Event{{Conversation: conv, Participant: "p", Turn: turn, Action: gone.ID, Type: "x", Body: []byte(`{}`), Time: t0}}
	b.Heads = []store.Head{nextHead(t, s, store.Tip{Conversation: conv, Seq: 1, Hash: "x"})}
	b.Schedules = []store.ScheduleWrite{{Schedule: store.Schedule{ID: id("sched"), Tenant: "local", State: store.ScheduleRunning, Revision: 1, Changed: t0}}}
	b.Tokens = []store.TokenWrite{{Token: token(store.TokenAPI)}}
	b.Free = []store.Key{{Tenant: "local", Owner: "me", Target: "free"}}
	b.Quarantine = []store.Quarantine{{Tenant: "local", Owner: "me", Target: "barred", Action: gone.ID}}
	return b
}

// dump reads everything the batches of full write.
type dump struct {
	Conversations []store.Conversation
	Turns         []store.Turn
	Blocks        []store.Block
	Actions       []store.Action
	Document      string
	Approvals     []store.Approval
	Operations    []store.Operation
	Quarantine    []store.Quarantine
	History       []store.Event
	Tips, Open    []store.Tip
	Heads         []store.Head
	Schedules     []store.Schedule
	Tokens        []store.Token
}

func dumpOf(t *testing.T, s store.Store, conv string) (d dump) {
	t.Helper()
	ctx := context.Background()
	var errs [14]error
	d.Conversations, errs[0] = s.Conversations(ctx, 1000)
	d.Turns, errs[1] = s.OpenTurns(ctx)
	d.Blocks, errs[2] = s.Blocks(ctx, conv, 0, 0)
	d.Actions, errs[3] = s.Actions(ctx, store.ActionFilter{})
	doc, err := s.Document(ctx, "the document")
	d.Document, errs[4] = string(doc), err
	d.Approvals, errs[5] = s.Approvals(ctx, store.ApprovalFilter{})
	d.Operations, errs[6] = s.Operations(ctx, "the parent")
	d.Quarantine, errs[7] = s.Quarantined(ctx)
	d.History, errs[8] = s.History(ctx, conv, 0, 0)
	d.Tips, errs[9] = s.Tips(ctx, false)
	d.Open, errs[10] = s.Tips(ctx, true)
	d.Heads, errs[11] = s.Heads(ctx, 0)
	d.Schedules, errs[12] = s.Schedules(ctx)
	d.Tokens, errs[13] = s.Tokens(ctx, store.TokenAPI)
	for i, err := range errs {
		if err != nil {
			t.Fatalf("read %d: %v", i, err)
		}
	}
	return d
}

// parts says, in the order of checking, how each part can fail to find what it expects. first is a batch of full that
// was written.
var parts = []struct {
	part string
	ways map[string]func(b, first *store.Batch)
}{
	{"batch", map[string]func(b, first *store.Batch){"id": func(b, first *store.Batch) { b.ID = first.ID }}},
	{"fence", map[string]func(b, first *store.Batch){
		"token":      func(b, _ *store.Batch) { b.Fence.Token++ },
		"generation": func(b, _ *store.Batch) { b.Fence.Generation++ },
		"absent":     func(b, _ *store.Batch) { b.Fence.Conversation = "none" },
	}},
	{"quarantine", map[string]func(b, first *store.Batch){
		"barred by hand": func(b, _ *store.Batch) {
			b.Free = append(b.Free, store.Key{Tenant: "local", Owner: "me", Target: "barred"})
		},
		"barred by an outcome": func(b, first *store.Batch) { b.Free[0].Target = first.Actions[1].Targets[0] },
	}},
	{"conversation", map[string]func(b, first *store.Batch){
		"exists": func(b, first *store.Batch) { b.Conversations[0].ID = first.Conversations[0].ID },
		"token": func(b, first *store.Batch) {
			b.Conversations = append(b.Conversations, store.ConversationWrite{ExpectToken: 2, Conversation: store.Conversation{ID: first.Conversations[0].ID, LeaseToken: 4}})
		},
		"absent": func(b, _ *store.Batch) {
			b.Conversations = append(b.Conversations, store.ConversationWrite{Conversation: store.Conversation{ID: "none"}})
		},
	}},
	{"turn", map[string]func(b, first *store.Batch){
		"exists":          func(b, first *store.Batch) { b.Turns[0].ID = first.Turns[0].ID },
		"no conversation": func(b, _ *store.Batch) { b.Turns[0].Conversation = "none" },
		"state":           func(b, first *store.Batch) { b.Turns[0].ID, b.Turns[0].Expect = first.Turns[0].ID, store.TurnParked },
		"absent":          func(b, _ *store.Batch) { b.Turns[0].Expect = store.TurnRunning },
	}},
	{"action", map[string]func(b, first *store.Batch){
		"exists": func(b, first *store.Batch) { b.Actions[1].ID = first.Actions[0].ID },
		"slot":   func(b, _ *store.Batch) { b.Actions[1].Index = b.Actions[0].Index },
		"state": func(b, first *store.Batch) {
			b.Actions[1].ID, b.Actions[1].Expect = first.Actions[0].ID, writ.Dispatched
		},
		"absent": func(b, _ *store.Batch) { b.Actions[1].Expect = writ.Dispatched },
	}},
	{"block", map[string]func(b, first *store.Batch){
		"key":             func(b, first *store.Batch) { b.Blocks[0].Key = first.Blocks[0].Key },
		"no conversation": func(b, _ *store.Batch) { b.Blocks[1].Conversation = "none" },
	}},
	{"claim", map[string]func(b, first *store.Batch){"key": func(b, first *store.Batch) { b.Claims[0].Key = first.Claims[0].Key }}},
	{"approval", map[string]func(b, first *store.Batch){
		"exists": func(b, first *store.Batch) { b.Approvals[0].Action = first.Approvals[0].Action },
		"state": func(b, first *store.Batch) {
			b.Approvals[0].Action, b.Approvals[0].Expect = first.Approvals[0].Action, store.ApprovalApproved
		},
		"absent": func(b, _ *store.Batch) { b.Approvals[0].Expect = store.ApprovalPending },
	}},
	{"operation", map[string]func(b, first *store.Batch){
		"exists": func(b, first *store.Batch) { b.Operations[0].ID = first.Operations[0].ID },
		"once":   func(b, first *store.Batch) { b.Operations[0].Once = first.Operations[0].Once },
	}},
	{"head", map[string]func(b, first *store.Batch){
		"gap":   func(b, _ *store.Batch) { h := &b.Heads[0]; h.N++; h.Hash = store.HeadHash(h) },
		"again": func(b, first *store.Batch) { b.Heads[0] = first.Heads[0] },
		"prev":  func(b, _ *store.Batch) { h := &b.Heads[0]; h.Prev += "x"; h.Hash = store.HeadHash(h) },
		"hash":  func(b, _ *store.Batch) { b.Heads[0].Time = b.Heads[0].Time.Add(time.Second) },
	}},
	{"schedule", map[string]func(b, first *store.Batch){
		"exists":   func(b, first *store.Batch) { b.Schedules[0].ID = first.Schedules[0].ID },
		"revision": func(b, _ *store.Batch) { b.Schedules[0].Revision = 2 },
		"another": func(b, first *store.Batch) {
			b.Schedules[0].ID, b.Schedules[0].Expect, b.Schedules[0].Revision = first.Schedules[0].ID, 2, 3
		},
		"absent": func(b, _ *store.Batch) { b.Schedules[0].Expect, b.Schedules[0].Revision = 1, 2 },
	}},
	{"token", map[string]func(b, first *store.Batch){
		"exists": func(b, first *store.Batch) { b.Tokens[0].ID = first.Tokens[0].ID },
		"hash":   func(b, first *store.Batch) { b.Tokens[0].Hash = first.Tokens[0].Hash },
		"absent": func(b, _ *store.Batch) { b.Tokens[0].Update = true },
	}},
}

func refused(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	first := full(t, s, conv)
	apply(t, s, first)
	before := dumpOf(t, s, conv)
	for _, p := range parts {
		for name, way := range p.ways {
			t.Run(p.part+" "+name, func(t *testing.T) {
				b := full(t, s, conv)
				way(b, first)
				conflict(t, s, b, p.part)
				same(t, dumpOf(t, s, conv), before, nil)
				if _, err := s.Claim(context.Background(), "s", b.Claims[0].Key); p.part != "claim" && err == nil {
					t.Error("the claim of a refused batch is there")
				}
			})
		}
	}
	apply(t, s, full(t, s, conv)) // nothing of the refused ones is in the way
	after := dumpOf(t, s, conv)
	if h := after.History; len(h) != 2 || h[1].Seq != 2 || after.Blocks[1].Seq != 2 || len(after.Heads) != 2 {
		t.Errorf("a refused batch used up a number: %+v", after)
	}
}

func partOrder(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	first := full(t, s, conv)
	apply(t, s, first)
	for i, p := range parts {
		for _, later := range parts[i+1:] {
			b := full(t, s, conv)
			for _, ways := range []map[string]func(b, first *store.Batch){p.ways, later.ways} {
				for _, name := range []string{"id", "token", "barred by hand", "exists", "key", "again"} { // one each
					if way := ways[name]; way != nil {
						way(b, first)
						break
					}
				}
			}
			conflict(t, s, b, p.part)
		}
	}
}

// twice: what a batch has written itself counts for its later entries.
func twice(t *testing.T, open Open) {
	s, _ := open(t)
	conv := newConversation(t, s)
	for part, double := range map[string]func(b *store.Batch){
		"conversation": func(b *store.Batch) { b.Conversations = append(b.Conversations, b.Conversations[0]) },
		"turn":         func(b *store.Batch) { b.Turns = append(b.Turns, b.Turns[0]) },
		"action":       func(b *store.Batch) { b.Actions = append(b.Actions, b.Actions[0]) },
		"block":        func(b *store.Batch) { b.Blocks = append(b.Blocks, b.Blocks[0]) },
		"claim":        func(b *store.Batch) { b.Claims = append(b.Claims, b.Claims[0]) },
		"approval":     func(b *store.Batch) { b.Approvals = append(b.Approvals, b.Approvals[0]) },
		"operation":    func(b *store.Batch) { b.Operations = append(b.Operations, b.Operations[0]) },
		"head":         func(b *store.Batch) { b.Heads = append(b.Heads, b.Heads[0]) },
		"schedule":     func(b *store.Batch) { b.Schedules = append(b.Schedules, b.Schedules[0]) },
		"token":        func(b *store.Batch) { b.Tokens = append(b.Tokens, b.Tokens[0]) },
	} {
		b := full(t, s, conv)
		double(b)
		conflict(t, s, b, part)
	}
	b := full(t, s, conv)
	answered := b.Turns[0]
	answered.State, answered.Expect = store.TurnAnswered, store.TurnRunning
	b.Turns = append(b.Turns, answered)
	dispatched := b.Actions[0]
	dispatched.State, dispatched.Expect = writ.Dispatched, writ.Admitted
	b.Actions = append(b.Actions, dispatched)
	head := store.Head{N: 2, Time: t0, Prev: b.Heads[0].Hash}
	head.Hash = store.HeadHash(&head)
	b.Heads = append(b.Heads, head)
	apply(t, s, b)
	turn, err := s.Turn(context.Background(), answered.ID)
	same(t, turn.State, store.TurnAnswered, err)
	a, err := s.Action(context.Background(), dispatched.ID)
	same(t, a.State, writ.Dispatched, err)
}

func fullReadsBack(t *testing.T, open Open) {
	s, reopen := open(t)
	conv := newConversation(t, s)
	var written []*store.Batch
	for range 3 {
		b := full(t, s, conv)
		apply(t, s, b)
		written = append(written, b)
	}
	before := dumpOf(t, s, conv)
	for i, b := range written {
		same(t, before.Approvals[i], b.Approvals[0].Approval, nil)
		same(t, before.Operations[i], b.Operations[0], nil)
		same(t, before.History[i], b.History[0], nil)
		same(t, before.Heads[i], b.Heads[0], nil)
		same(t, before.Schedules[i], b.Schedules[0].Schedule, nil)
		same(t, before.Tokens[i], b.Tokens[0].Token, nil)
		same(t, string(before.Turns[i].Body), "body", nil)
	}
	if reopen != nil {
		same(t, dumpOf(t, reopen(), conv), before, nil)
	}
}
