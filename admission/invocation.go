package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"writ"
	"writ/participant"
	"writ/store"
)

// ErrBusy means that the episode has another invocation under way.
var ErrBusy = errors.New("admission: the episode has another invocation")

// ErrOther means that the episode belongs to somebody else.
var ErrOther = errors.New("admission: the episode belongs to another participant")

// Start begins an invocation of a harness that is not the runtime.
type Start struct {
	ID      string // of the invocation; empty = a new one
	Kind    string // store.KindHTTP or store.KindGateway
	Tenant  string
	Owner   string
	Agent   string // name of the participant, for people
	Episode string // to go on with; empty = a new one
	Holder  string
	Lease   time.Time // until when the invocation may admit; zero = as long as its port is open

	Compiled     participant.Compiled
	Observation  string // empty = the invocation's id
	PolicyDigest string
	ConfigDigest string
	Settled      Block

	Claim     *store.Claim       // an idempotency key; Subject is set to the invocation
	Tokens    []store.TokenWrite // Subject is set to the invocation
	Documents []store.Document
	Blocks    func(conversation, turn string) []store.Block
}

// Begin makes an invocation durable, with its episode and its lease, and opens its port. One episode has one invocation
// at a time: ErrBusy. A key that was used before is a *store.Conflict of part "claim".
func (l *Ledger) Begin(ctx context.Context, s Start) (*Port, error) {
	p, b, err := l.prepare(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := l.begin(ctx, p, b); err != nil {
		return nil, err
	}
	return p, nil
}

// begin makes a prepared invocation durable and opens its port.
func (l *Ledger) begin(ctx context.Context, p *Port, b *store.Batch) error {
	if err := l.commit(ctx, b); err != nil {
		return fmt.Errorf("admission: beginning invocation: %w", err)
	}
	p.Activate()
	return nil
}

// prepare makes the inactive port of a new invocation and the batch that begins it.
func (l *Ledger) prepare(ctx context.Context, s Start) (*Port, *store.Batch, error) {
	fail := func(err error) (*Port, *store.Batch, error) {
		return nil, nil, fmt.Errorf("admission: beginning invocation: %w", err)
	}
	now := l.cfg.Now()
	b := &store.Batch{Documents: s.Documents}
	conv, err := l.episode(ctx, s, b)
	if err != nil {
		return fail(err)
	}
	if s.ID == "" {
		s.ID = l.cfg.NewID("inv_")
	}
	if s.Observation == "" {
		s.Observation = s.ID
	}
	inv := Invocation{ID: s.ID, Kind: s.Kind, Tenant: s.Tenant, Owner: s.Owner, Conversation: conv.ID, Agent: s.Agent, Generation: conv.Generation,
		LeaseToken: conv.LeaseToken, Observation: s.Observation, PolicyDigest: s.PolicyDigest, Compiled: s.Compiled, Settled: s.Settled}
	p, err := l.Open(inv)
	if err != nil {
		return fail(err)
	}
	b.Turns = []store.TurnWrite{{Turn: p.inv.Turn(s.Holder, s.ConfigDigest, now)}}
	if s.Claim != nil {
		c := *s.Claim
		c.Subject, c.Time = s.ID, now
		b.Claims = []store.Claim{c}
	}
	for _, t := range s.Tokens {
		t.Subject = s.ID
		b.Tokens = append(b.Tokens, t)
	}
	if s.Blocks != nil {
		b.Blocks = s.Blocks(conv.ID, s.ID)
	}
	return p, b, nil
}

// episode reads or makes the conversation and takes its lease in the batch.
func (l *Ledger) episode(ctx context.Context, s Start, b *store.Batch) (store.Conversation, error) {
	id := s.Episode
	if id == "" {
		id = l.cfg.NewID("conv_")
	}
	conv, err := l.cfg.Store.Conversation(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		conv = store.Conversation{ID: id, Tenant: s.Tenant, Owner: s.Owner, Agent: s.Agent, LeaseToken: 1, Holder: s.Holder, LeaseUntil: s.Lease}
		b.Conversations = []store.ConversationWrite{{Create: true, Conversation: conv}}
		return conv, nil
	case err != nil:
		return conv, err
	case conv.Tenant != s.Tenant || conv.Owner != s.Owner || conv.Agent != s.Agent:
		return conv, ErrOther
	}
	turns, err := l.cfg.Store.OpenTurns(ctx)
	if err != nil {
		return conv, err
	}
	for _, t := range turns {
		if t.Conversation == id {
			return conv, ErrBusy
		}
	}
	w := store.ConversationWrite{Conversation: conv, ExpectToken: conv.LeaseToken}
	w.LeaseToken, w.Holder, w.LeaseUntil = conv.LeaseToken+1, s.Holder, s.Lease
	b.Conversations = []store.ConversationWrite{w}
	return w.Conversation, nil
}

// Resume opens a new port on an invocation that is parked: under a new lease, with the rows it has. extra starts the
// batch, which takes the lease and moves the turn back to running. inv says who resumes it and within which bounds; its
// identity must be the invocation's.
func (l *Ledger) Resume(ctx context.Context, inv Invocation, holder string, extra *store.Batch) (*Port, error) {
	fail := func(err error) (*Port, error) {
		return nil, fmt.Errorf("admission: resuming invocation %s: %w", inv.ID, err)
	}
	turn, err := l.cfg.Store.Turn(ctx, inv.ID)
	if err != nil {
		return fail(err)
	}
	conv, err := l.cfg.Store.Conversation(ctx, turn.Conversation)
	if err != nil {
		return fail(err)
	}
	if turn.State != store.TurnParked {
		return fail(&store.Conflict{Part: "turn", ID: turn.ID, Why: "it is " + turn.State + ", not parked"})
	}
	if turn.Tenant != inv.Tenant || turn.Owner != inv.Owner || turn.Conversation != inv.Conversation {
		return fail(ErrOther)
	}
	inv.Kind, inv.LeaseToken, inv.Generation = turn.Kind, conv.LeaseToken+1, conv.Generation
	rows, err := l.cfg.Store.Actions(ctx, store.ActionFilter{Turn: turn.ID})
	if err != nil {
		return fail(err)
	}
	inv.Total += len(rows) // what was admitted before parking is not taken from the new bounds
	p, err := l.Open(inv)
	if err != nil {
		return fail(err)
	}
	for _, row := range rows {
		p.keep(&record{row: row, digest: row.RequestDigest})
	}
	b := &store.Batch{}
	if extra != nil {
		*b = *extra
	}
	w := store.ConversationWrite{Conversation: conv, ExpectToken: conv.LeaseToken}
	w.LeaseToken, w.Holder = inv.LeaseToken, holder
	b.Conversations = append(b.Conversations, w)
	turn.State, turn.Reason, turn.Holder = store.TurnRunning, "", holder
	b.Turns = append(b.Turns, store.TurnWrite{Turn: turn, Expect: store.TurnParked})
	if err := l.commit(ctx, b); err != nil {
		return fail(err)
	}
	p.Activate()
	return p, nil
}

// End ends the invocation of a harness that is not the runtime: the port closes with the end of the turn. A gateway's
// invocation with held actions is parked instead. blocks are written with it.
func (p *Port) End(ctx context.Context, end Ending, block Block, blocks ...store.Block) error {
	now := p.l.cfg.Now()
	turn := store.Turn{ID: p.inv.ID, State: store.TurnAnswered, Ended: now}
	switch {
	case !end.valid():
		turn.State, turn.Reason = store.TurnFailed, "the harness returned no valid outcome"
	case end.Status != StatusSucceeded:
		turn.State, turn.Reason = store.TurnFailed, end.Failure
	}
	b := &store.Batch{Blocks: blocks}
	p.Drain()
	if p.inv.Kind == store.KindGateway && p.held() {
		turn.State, turn.Reason, turn.Ended = store.TurnParked, "waits for approvals", time.Time{}
		b.Turns = []store.TurnWrite{{Turn: turn, Expect: store.TurnRunning}}
		for _, row := range p.Rows() { // what runs still has its deadline; a closing session does not wait for it
			switch reason := string(writ.CodeInvocationClosed); {
			case row.State == writ.Admitted:
				p.Cancel(ctx, row.ID, reason, block)
			case row.State == writ.Dispatched && row.Effect == writ.EffectNone.String():
				p.Complete(ctx, row.ID, Outcome{State: writ.Failed, Failure: reason}, block)
			case row.State == writ.Dispatched:
				p.ReportUnknown(ctx, row.ID, reason, block)
			}
		}
		return p.Park(ctx, b)
	}
	b.Turns = []store.TurnWrite{{Turn: turn, Expect: store.TurnRunning}}
	return p.Close(ctx, end, b, block)
}

func (p *Port) held() bool {
	for _, row := range p.Rows() {
		if row.State == writ.Held {
			return true
		}
	}
	return false
}
