package gateway

import (
	"context"
	"sync"
	"time"
)

// pool is what the stateless requests of one principal share: the upstream sessions. Each request is an invocation of
// its own. It is closed when nobody has asked for so long as a session may be idle.
type pool struct {
	g         *Gateway
	principal string

	open    sync.Mutex // while its session is opened
	session *session   // nil before and after; guarded by open

	mu    sync.Mutex
	users int
	timer *time.Timer
	gone  bool
}

// pooled returns the principal's session; the caller calls done.
func (g *Gateway) pooled(ctx context.Context, principal string) (*session, func(), error) {
	for {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			return nil, nil, errClosing
		}
		p := g.pools[principal]
		if p == nil {
			p = &pool{g: g, principal: principal}
			g.pools[principal] = p
		}
		g.mu.Unlock()
		if !p.use() {
			continue // it is just being closed
		}
		p.open.Lock()
		if p.session == nil {
			s, err := g.openSession(WithPrincipal(context.WithoutCancel(ctx), principal), nil, principal, true, nil)
			if err != nil {
				p.open.Unlock()
				p.leave()
				return nil, nil, err
			}
			p.session = s
		}
		s := p.session
		p.open.Unlock()
		return s, p.leave, nil
	}
}

func (p *pool) use() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	p.users++
	if p.timer != nil {
		p.timer.Stop()
	}
	return true
}

func (p *pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 && !p.gone {
		p.timer = time.AfterFunc(p.g.cfg.Idle, p.expire)
	}
}

func (p *pool) expire() {
	p.mu.Lock()
	busy := p.users > 0
	p.mu.Unlock()
	if !busy {
		p.close()
	}
}

// close ends the pool's session; requests under way are interrupted.
func (p *pool) close() {
	p.mu.Lock()
	again := p.gone
	p.gone = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	if again {
		return
	}
	p.g.mu.Lock()
	if p.g.pools[p.principal] == p {
		delete(p.g.pools, p.principal)
	}
	p.g.mu.Unlock()
	p.open.Lock()
	defer p.open.Unlock()
	if p.session != nil {
		p.session.close()
		p.session = nil
	}
}
