package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"writ"
	"writ/admission"
	"writ/participant"
	"writ/store"
)

// Tidy withholds what was not approved in time, ends the parked sessions of this agent that wait for nothing any more,
// which commits their history, and records ends that could not be recorded at their time. It may be called at any time;
// who serves a gateway calls it now and then.
func (g *Gateway) Tidy(ctx context.Context) error {
	g.again()
	turns, err := g.cfg.Store.OpenTurns(ctx)
	if err != nil {
		return fmt.Errorf("gateway: listing sessions: %w", err)
	}
	for _, t := range turns {
		if t.Kind != store.KindGateway || t.Agent != g.cfg.Agent.ID || t.Tenant != g.cfg.Tenant {
			continue
		}
		if _, err := g.cfg.Ledger.Expire(ctx, store.ApprovalFilter{Turn: t.ID}, g.closingBlock); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
		if t.State != store.TurnParked {
			continue
		}
		if err := g.unpark(ctx, t); err != nil && !errors.Is(err, store.ErrConflict) { // a conflict: somebody goes on with it
			return err
		}
	}
	return nil
}

// unpark ends a parked session, unless something of it may still run.
func (g *Gateway) unpark(ctx context.Context, t store.Turn) error {
	defer g.keys.lock("release " + t.ID)()
	rows, err := g.cfg.Store.Actions(ctx, store.ActionFilter{Turn: t.ID})
	if err != nil || len(rows) == 0 {
		return err
	}
	held := slices.DeleteFunc(slices.Clone(rows), func(row store.Action) bool { return row.State != writ.Held })
	for _, row := range held {
		a, err := g.cfg.Store.Approval(ctx, row.ID)
		if err != nil {
			return err
		}
		if g.cfg.Now().Before(a.Expires) {
			return nil
		}
	}
	g.mu.Lock()
	_, live := g.live[t.ID]
	g.mu.Unlock()
	if live {
		return nil
	}
	compiled := participant.Derive(g.cfg.Agent.ID, "", len(rows), 1, nil) // nothing is admitted
	inv, err := g.resume(ctx, rows[0], compiled, nil)
	if err != nil {
		return err
	}
	defer g.leave(inv)
	for _, row := range held { // approved, and nobody came in time
		if _, r := inv.port.Dispatch(ctx, row.ID); r.Accepted {
			inv.port.Abandon(ctx, row.ID, admission.FailureApprovalExpired, g.closingBlock)
		}
	}
	return nil
}

// again tries to record the ends that could not be recorded.
func (g *Gateway) again() {
	g.mu.Lock()
	list := g.unfinished
	g.unfinished = nil
	g.mu.Unlock()
	for _, inv := range list {
		if err := g.commit(inv); err != nil {
			g.mu.Lock()
			g.unfinished = append(g.unfinished, inv)
			g.mu.Unlock()
		}
	}
}
