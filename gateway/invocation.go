package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"writ"
	"writ/admission"
	"writ/internal/timeline"
	"writ/participant"
	"writ/store"
)

// invocation is one port of a session. A session has one at a time; it goes on with another one when that is full, or
// when an upstream offers what the port is not bound to.
//
// It may have users of other sessions: a held action is released by whoever of its principal asks for it again.
type invocation struct {
	port  *admission.Port
	bound map[string]bool // tool ids
	over  chan struct{}   // closed when its end is recorded; a parked one may then be resumed

	mu      sync.Mutex
	users   int
	retired bool // the last user ends it
}

// take registers a user, who calls [Gateway.leave]; false when it ends or has ended.
func (inv *invocation) take() bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if inv.retired && inv.users == 0 {
		return false
	}
	inv.users++
	return true
}

// idle reports whether nobody uses it.
func (inv *invocation) idle() bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.users == 0
}

// retire ends an invocation once nobody uses it. Once is enough.
func (g *Gateway) retire(inv *invocation) {
	inv.mu.Lock()
	last := inv.users == 0 && !inv.retired
	inv.retired = true
	inv.mu.Unlock()
	if last {
		g.finish(inv)
	}
}

func (g *Gateway) leave(inv *invocation) {
	inv.mu.Lock()
	inv.users--
	last := inv.retired && inv.users == 0
	inv.mu.Unlock()
	if last {
		g.finish(inv)
	}
}

// enlist makes an invocation known to those who go on with its held actions.
func (g *Gateway) enlist(port *admission.Port, bound map[string]bool) *invocation {
	inv := &invocation{port: port, bound: bound, over: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live[port.Invocation().ID] = inv
	return inv
}

// begin makes a new invocation durable.
func (s *session) begin(ctx context.Context) (*invocation, error) {
	g := s.g
	compiled, bound := s.bindings()
	port, err := g.cfg.Ledger.Begin(ctx, admission.Start{Kind: store.KindGateway, Tenant: g.cfg.Tenant, Owner: s.principal, Agent: g.cfg.Agent.ID,
		Holder: g.cfg.Holder, Compiled: compiled, PolicyDigest: g.cfg.Agent.Digest, ConfigDigest: g.cfg.Agent.Digest, Settled: g.closingBlock,
		Documents: []store.Document{{Digest: g.cfg.Agent.Digest, Body: g.cfg.Agent.Effective()}}})
	if err != nil {
		return nil, fmt.Errorf("gateway: beginning a session: %w", err)
	}
	return g.enlist(port, bound), nil
}

// use returns the invocation for an action of the callable; the caller calls done when it has settled. full is an
// invocation that has no room.
func (s *session) use(ctx context.Context, c *callable, full *invocation) (inv *invocation, done func(), err error) {
	unlock := s.g.keys.lock("session " + s.id) // one new invocation at a time
	defer unlock()
	s.mu.Lock()
	inv = s.inv
	s.mu.Unlock()
	if inv != nil && inv != full && inv.bound[c.id()] && !s.stateless && inv.take() {
		return inv, func() { s.g.leave(inv) }, nil
	}
	if s.life.Err() != nil {
		return nil, nil, context.Cause(s.life)
	}
	next, err := s.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	next.users = 1
	done = func() { s.g.leave(next) }
	if s.stateless { // a request is an invocation
		next.retired = true
		return next, done, nil
	}
	s.mu.Lock()
	s.inv = next
	s.mu.Unlock()
	if inv != nil {
		s.g.retire(inv)
	}
	return next, done, nil
}

// rest ends the invocation of a session that has asked nothing for a while. The session stays; its next action begins
// another invocation.
func (s *session) rest() {
	if !s.enter() {
		return
	}
	defer s.calls.Done()
	defer s.g.keys.lock("session " + s.id)()
	s.mu.Lock()
	inv := s.inv
	if inv == nil || !inv.idle() {
		s.mu.Unlock()
		return
	}
	s.inv = nil
	s.mu.Unlock()
	s.g.retire(inv)
}

// finish ends an invocation. When that cannot be recorded, [Gateway.Tidy] tries again, and at last the next start.
func (g *Gateway) finish(inv *invocation) {
	defer close(inv.over)
	err := g.commit(inv)
	if err != nil {
		g.log.Error("a session's end could not be recorded yet", "invocation", inv.port.Invocation().ID, "error", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live, inv.port.Invocation().ID)
	if err != nil {
		g.unfinished = append(g.unfinished, inv)
	}
}

// commit records the end of an invocation with its history. One with held actions is parked. It may be called again.
func (g *Gateway) commit(inv *invocation) error {
	id := inv.port.Invocation()
	var end []store.Block
	if !slices.ContainsFunc(inv.port.Rows(), func(row store.Action) bool { return row.State == writ.Held }) {
		end = append(end, timeline.New(id.Conversation, id.ID, timeline.KindTurnEnd, g.cfg.Now(), timeline.TurnEnd{State: store.TurnAnswered}))
	}
	return inv.port.End(context.Background(), admission.Ending{Status: admission.StatusSucceeded}, g.closingBlock, end...)
}

// resume opens a port on a parked invocation, for one of its rows; the caller is its one user. It stands for what it was
// begun as: only the bounds are today's.
func (g *Gateway) resume(ctx context.Context, row store.Action, compiled participant.Compiled, bound map[string]bool) (*invocation, error) {
	compiled.Participant, compiled.Implementation = row.Participant, row.Implementation
	port, err := g.cfg.Ledger.Resume(ctx, admission.Invocation{ID: row.Turn, Tenant: row.Tenant, Owner: row.Owner, Conversation: row.Conversation,
		Agent: g.cfg.Agent.ID, Observation: row.Observation, PolicyDigest: g.cfg.Agent.Digest, Settled: g.closingBlock, Compiled: compiled}, g.cfg.Holder, nil)
	if err != nil {
		return nil, fmt.Errorf("gateway: going on with a held action: %w", err)
	}
	inv := g.enlist(port, bound)
	inv.users, inv.retired = 1, true
	return inv, nil
}
