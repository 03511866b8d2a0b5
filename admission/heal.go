package admission

import (
	"context"

	"writ"
	"writ/participant"
	"writ/store"
)

// heal reads the rows back when the port may be behind the store. The caller holds p.admit; methods on other actions
// may be in the middle of a write, so a row is only ever moved forward.
func (p *Port) heal(ctx context.Context) bool {
	lost := p.lost.Load() // before reading: what is lost from here on needs another reading
	if p.healed.Load() == lost {
		return true
	}
	rows, err := p.l.cfg.Store.Actions(context.WithoutCancel(ctx), store.ActionFilter{Turn: p.inv.ID})
	if err != nil {
		return false
	}
	for _, row := range rows {
		rec := p.find(row.ID)
		if rec == nil { // an admission whose answer got lost: equal requests now get its decision
			rec = &record{row: row, digest: row.RequestDigest}
			p.keep(rec)
		}
		rec.mu.Lock()
		if age(row.State) > age(rec.row.State) {
			rec.row = row
		}
		switch rec.row.State {
		case writ.Held:
		case writ.Admitted, writ.Dispatched: // it may have been held when it was last seen
			p.mu.Lock()
			p.count(rec)
			p.mu.Unlock()
		default:
			p.release(rec)
		}
		rec.mu.Unlock()
	}
	p.healed.Store(lost)
	return true
}

// age orders the states of one row's life.
func age(s writ.ActionState) int {
	switch {
	case s.Settled():
		return 4
	case s == writ.Dispatched:
		return 3
	case s == writ.Admitted:
		return 2
	case s == writ.Held:
		return 1
	}
	return 0
}

// keep takes a durable row into the port's books.
func (p *Port) keep(rec *record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[rec.row.ToolCallID], p.actions[rec.row.ID] = rec, rec
	p.order = append(p.order, rec)
	if rec.row.State == writ.Admitted || rec.row.State == writ.Dispatched {
		p.count(rec)
	}
}

// count gives an action a place of the concurrency limits. The caller holds p.mu.
func (p *Port) count(rec *record) {
	if !rec.counts {
		rec.counts = true
		p.unsettled++
		p.busy[rec.row.Offer]++
	}
}

// take counts a held action as running, if there is room.
func (p *Port) take(rec *record) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var offer *participant.Offer
	for i := range p.inv.Offers {
		if p.inv.Offers[i].ID == rec.row.Offer {
			offer = &p.inv.Offers[i]
		}
	}
	if p.full(offer) {
		return false
	}
	p.count(rec)
	return true
}

// release gives the place of a settled action back, once, and wakes who waits for one.
func (p *Port) release(rec *record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rec.counts {
		rec.counts = false
		p.unsettled--
		p.busy[rec.row.Offer]--
		p.wake()
	}
}

// wake tells those who wait on Decision.Freed to ask again. The caller holds p.mu.
func (p *Port) wake() {
	close(p.freed)
	p.freed = make(chan struct{})
}
