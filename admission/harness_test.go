package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"writ"
	"writ/admission"
	"writ/participant"
	"writ/store"
	"writ/store/memory"
)

var ctx = context.Background()

const (
	affordance = "participant.behavior-specification.main.tool-affordance.desk"
	contractA  = "participant.action-contract.desk.a"
	contractB  = "participant.action-contract.desk.b"
	boundaryA  = "participant.observation-boundary.a"
	boundaryB  = "participant.observation-boundary.b"
)

var errStore = errors.New("the disk is gone")

// flaky is a store whose parts can be made to fail: writes by the seam that drivers have for it, reading back a batch
// and reading rows by two switches. It counts what was written.
type flaky struct {
	store.Fault
	blind  atomic.Bool // Applied fails
	deaf   atomic.Bool // Actions fails
	writes atomic.Int64
	// reading, when set, is called once rows have been read and before they are returned.
	reading func()

	mu   sync.Mutex
	last *store.Batch // the newest that was written
}

type counted struct {
	store.Store
	f *flaky
}

func (c counted) Apply(ctx context.Context, b *store.Batch) error {
	err := c.Store.Apply(ctx, b)
	if err == nil {
		c.f.writes.Add(1)
		c.f.mu.Lock()
		c.f.last = b
		c.f.mu.Unlock()
	}
	return err
}

func newFlaky(s store.Store) *flaky {
	f := &flaky{}
	f.Store = counted{s, f}
	return f
}

func (f *flaky) Applied(ctx context.Context, id string) (bool, error) {
	if f.blind.Load() {
		return false, errStore
	}
	return f.Fault.Applied(ctx, id)
}

func (f *flaky) Actions(ctx context.Context, q store.ActionFilter) ([]store.Action, error) {
	if f.deaf.Load() {
		return nil, errStore
	}
	rows, err := f.Fault.Actions(ctx, q)
	if f.reading != nil {
		f.reading()
	}
	return rows, err
}

// faulty is how one write goes wrong.
type faulty int

const (
	sound        faulty = iota
	refused             // an error before anything was written
	lostAnswer          // committed, ErrUnknown, found by reading back
	lostNothing         // not committed, ErrUnknown, not found by reading back
	blindWritten        // committed, ErrUnknown, and reading back fails
	blindNothing        // not committed, ErrUnknown, and reading back fails
)

// set arms the fault for all writes until the next set.
func (f *flaky) set(k faulty) {
	f.Before, f.After = nil, nil
	f.blind.Store(k == blindWritten || k == blindNothing)
	switch k {
	case refused:
		f.Before = func(*store.Batch) error { return errStore }
	case lostNothing, blindNothing:
		f.Before = func(*store.Batch) error { return store.ErrUnknown }
	case lostAnswer, blindWritten:
		f.After = func(*store.Batch) error { return store.ErrUnknown }
	}
}

// limits of a port.
type limits struct{ Total, Concurrent int }

// world is a ledger with one conversation, a clock and ids of its own.
type world struct {
	mem    *memory.Store
	st     *flaky
	ledger *admission.Ledger
	limits limits
	token  int64 // of the lease
	turns  int

	mu  sync.Mutex
	now time.Time
	ids map[string]int
}

func newWorld(lim limits) *world {
	w := &world{mem: memory.Open(), limits: lim, token: 1, now: time.Date(2026, 7, 12, 9, 0, 0, 0, time.UTC), ids: map[string]int{}}
	w.st = newFlaky(w.mem)
	w.ledger = admission.New(admission.Config{Store: w.st, Key: []byte("0123456789abcdef"), Now: w.clock, NewID: w.id})
	w.apply(&store.Batch{Conversations: []store.ConversationWrite{{Create: true, Conversation: store.Conversation{ID: "conv", LeaseToken: 1, Generation: 3}}}})
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) id(prefix string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids[prefix]++
	return fmt.Sprintf("%s%d", prefix, w.ids[prefix])
}

// apply writes past all faults.
func (w *world) apply(b *store.Batch) {
	b.ID, b.Time = w.id("direct_"), w.clock()
	if err := w.mem.Apply(ctx, b); err != nil {
		panic(err)
	}
}

// takeOver gives the conversation's lease to somebody else.
func (w *world) takeOver() {
	w.apply(&store.Batch{Conversations: []store.ConversationWrite{{ExpectToken: w.token, Conversation: store.Conversation{ID: "conv", LeaseToken: w.token + 1, Generation: 3}}}})
	w.token++
}

// turn begins a turn and returns its port, inactive.
func (w *world) turn() *admission.Port {
	w.turns++
	id := fmt.Sprint("turn", w.turns)
	inv := w.invocation(id)
	w.apply(&store.Batch{Turns: []store.TurnWrite{{Turn: inv.Turn("h", "c", w.clock())}}})
	p, err := w.ledger.Open(inv)
	if err != nil {
		panic(err)
	}
	return p
}

func (w *world) open() *admission.Port {
	p := w.turn()
	p.Activate()
	return p
}

func (w *world) invocation(turn string) admission.Invocation {
	return admission.Invocation{ID: turn, Tenant: "t", Owner: "o", Conversation: "conv", Generation: 3, LeaseToken: w.token, Observation: "conversation",
		PolicyDigest: "p", Compiled: participant.Compiled{Participant: "participant.main", Implementation: "participant.implementation.x",
			Scope: "conv", OuterContract: "participant.action-contract.outer", Total: w.limits.Total, Concurrent: w.limits.Concurrent,
			Bindings: []participant.Binding{
				{Affordance: affordance, Contract: contractA, Boundaries: []string{boundaryA}, Targets: []string{"tool.a", "tool.a2"}},
				{Affordance: affordance, Contract: contractB, Boundaries: []string{boundaryB}, Targets: []string{"tool.b"}},
			},
			Boundaries: []participant.Boundary{{Address: boundaryA, Evidence: []string{"ref:*"}}, {Address: boundaryB}},
			Offers: []participant.Offer{{ID: "a", Contract: contractA, Implementation: "participant.implementation.x"},
				{ID: "b", Contract: contractB, Implementation: "participant.implementation.x"}}}}
}

// request is a request that nothing is wrong with.
func request(p *admission.Port, call string) admission.Request {
	return p.Request(call, affordance, contractA, boundaryA, []string{"tool.a"})
}

func admit(p *admission.Port, call string) admission.Decision {
	return p.Admit(ctx, request(p, call), admission.Slot{}, callBlock)
}

func callBlock(row store.Action) []store.Block   { return block("call", row) }
func resultBlock(row store.Action) []store.Block { return block("result", row) }

func block(kind string, row store.Action) []store.Block {
	return []store.Block{{Conversation: row.Conversation, Turn: row.Turn, Kind: kind, Key: kind + ":" + row.ID, Body: []byte(row.State), Time: row.AdmittedAt}}
}

// theTurn is the turn's row.
func (w *world) theTurn(id string) store.Turn {
	t, err := w.mem.Turn(ctx, id)
	if err != nil {
		panic(err)
	}
	return t
}

// recover applies the restart rules as the runtime does: each settled row gets its result block.
func (w *world) recover(turn store.Turn) (admission.Recovered, error) {
	return w.ledger.Recover(ctx, turn, func(batch *store.Batch, _ store.Turn, _, settled []store.Action) error {
		for _, row := range settled {
			b := resultBlock(row)
			b[0].ActionID = row.ID
			batch.Blocks = append(batch.Blocks, b...)
		}
		return nil
	})
}

// end is the batch by which the owner of an invocation ends it.
func (w *world) end(turn string) *store.Batch {
	return &store.Batch{Turns: []store.TurnWrite{{Expect: store.TurnRunning, Turn: store.Turn{ID: turn, State: store.TurnAnswered, Ended: w.clock()}}}}
}

// rows are all rows of the ledger, past all faults.
func (w *world) rows() []store.Action {
	rows, err := w.mem.Actions(ctx, store.ActionFilter{})
	if err != nil {
		panic(err)
	}
	return rows
}

func (w *world) blocks() []store.Block {
	b, err := w.mem.Blocks(ctx, "conv", 0, 0)
	if err != nil {
		panic(err)
	}
	return b
}

// everything is the whole store, for comparing.
func (w *world) everything() string {
	c, err := w.mem.Conversation(ctx, "conv")
	if err != nil {
		panic(err)
	}
	open, err := w.mem.OpenTurns(ctx)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%+v\n%+v\n%+v\n%+v", c, open, w.rows(), w.blocks())
}

// state is what the store says of a row; "" when there is none.
func (w *world) state(id string) writ.ActionState {
	row, err := w.mem.Action(ctx, id)
	if err != nil {
		return ""
	}
	return row.State
}
