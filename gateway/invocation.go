package gateway

import (
	"context"
	"fmt"
	"slices"

	"writ"
	"writ/admission"
	"writ/internal/timeline"
	"writ/store"
)

// invocation is one port of a session. A session has one at a time; it goes on with another one when that is full, or
// when an upstream offers what the port is not bound to.
type invocation struct {
	port    *admission.Port
	bound   map[string]bool // tool ids
	users   int             // guarded by session.mu
	retired bool            // guarded by session.mu: the last user ends it
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
	inv := &invocation{port: port, bound: bound}
	g.mu.Lock()
	g.live[port.Invocation().ID] = inv
	g.mu.Unlock()
	return inv, nil
}

// use returns the invocation for an action of the callable; the caller calls done when it has settled. full is an
// invocation that has no room.
func (s *session) use(ctx context.Context, c *callable, full *invocation) (inv *invocation, done func(), err error) {
	unlock := s.g.keys.lock("session " + s.id) // one new invocation at a time
	defer unlock()
	s.mu.Lock()
	inv = s.inv
	if inv != nil && inv != full && inv.bound[c.id()] && !s.stateless {
		inv.users++
		s.mu.Unlock()
		return inv, func() { s.leave(inv) }, nil
	}
	s.mu.Unlock()
	if err := s.life.Err(); err != nil {
		return nil, nil, context.Cause(s.life)
	}
	next, err := s.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	next.users++
	if s.stateless { // a request is an invocation
		next.retired = true
		return next, func() { s.leave(next) }, nil
	}
	s.mu.Lock()
	s.inv = next
	s.mu.Unlock()
	if inv != nil {
		s.retire(ctx, inv)
	}
	return next, func() { s.leave(next) }, nil
}

// retire ends an invocation once nobody uses it.
func (s *session) retire(ctx context.Context, inv *invocation) {
	s.mu.Lock()
	inv.retired = true
	last := inv.users == 0
	s.mu.Unlock()
	if last {
		s.g.finish(ctx, inv)
	}
}

func (s *session) leave(inv *invocation) {
	s.mu.Lock()
	inv.users--
	last := inv.retired && inv.users == 0
	s.mu.Unlock()
	if last {
		s.g.finish(s.base, inv)
	}
}

// finish ends an invocation and commits its history. One with held actions is parked.
func (g *Gateway) finish(ctx context.Context, inv *invocation) {
	id := inv.port.Invocation()
	var end []store.Block
	if !slices.ContainsFunc(inv.port.Rows(), func(row store.Action) bool { return row.State == writ.Held }) {
		end = append(end, timeline.New(id.Conversation, id.ID, timeline.KindTurnEnd, g.cfg.Now(), timeline.TurnEnd{State: store.TurnAnswered}))
	}
	if err := inv.port.End(context.WithoutCancel(ctx), admission.Ending{Status: admission.StatusSucceeded}, g.closingBlock, end...); err != nil {
		g.log.Error("a session's end could not be recorded; the next start does it", "invocation", id.ID, "error", err)
	}
	g.mu.Lock()
	delete(g.live, id.ID)
	g.mu.Unlock()
}

// resume opens a port on a parked invocation, for one held action that has been approved.
func (s *session) resume(ctx context.Context, row store.Action) (*invocation, error) {
	g := s.g
	compiled, bound := s.bindings()
	port, err := g.cfg.Ledger.Resume(ctx, admission.Invocation{ID: row.Turn, Tenant: row.Tenant, Owner: row.Owner, Conversation: row.Conversation,
		Agent: g.cfg.Agent.ID, Observation: row.Observation, PolicyDigest: g.cfg.Agent.Digest, Settled: g.closingBlock, Compiled: compiled}, g.cfg.Holder, nil)
	if err != nil {
		return nil, fmt.Errorf("gateway: going on with a held action: %w", err)
	}
	inv := &invocation{port: port, bound: bound, retired: true}
	g.mu.Lock()
	g.live[row.Turn] = inv
	g.mu.Unlock()
	return inv, nil
}
