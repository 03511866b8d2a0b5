package server

import (
	"context"
	"sync"
	"time"

	"writ"
	"writ/admission"
)

// invocation is one that has an open port in this process.
type invocation struct {
	port   *admission.Port
	id     string
	served *served
	token  string    // id of the API token that opened it
	until  time.Time // it cannot be renewed beyond

	mu       sync.Mutex
	lease    time.Time
	due      time.Time // when the keeper looks again
	draining bool
	closed   bool
	ending   admission.Ending // what its harness has said of it; zero = nothing
}

// live are the invocations with an open port.
type live struct {
	mu       sync.Mutex
	byID     map[string]*invocation
	byToken  map[string]int // how many of them each token has opened, and is opening
	stopping bool
}

func (l *live) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopping = true
}

func (l *live) draining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopping
}

// reserve takes a place for one more invocation of the token. The caller gives it back, or adds the invocation.
func (l *live) reserve(token string, most int) *Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopping:
		return fault(FaultShuttingDown, "try again", "the server is stopping and opens nothing more")
	case l.byToken[token] >= most:
		return fault(FaultTooMany, "close one, or wait until a lease ends", "this token has %d invocations open, which is as many as it may", most)
	}
	l.byToken[token]++
	return nil
}

func (l *live) giveBack(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byToken[token]--; l.byToken[token] == 0 {
		delete(l.byToken, token)
	}
}

func (l *live) add(in *invocation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byID[in.id] = in
}

func (l *live) remove(in *invocation) {
	l.mu.Lock()
	_, there := l.byID[in.id]
	delete(l.byID, in.id)
	l.mu.Unlock()
	if there {
		l.giveBack(in.token)
	}
}

// find returns nil for an invocation that is over.
func (l *live) find(id string) *invocation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[id]
}

func (l *live) all() []*invocation {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*invocation, 0, len(l.byID))
	for _, in := range l.byID {
		out = append(out, in)
	}
	return out
}

// retry is how long the keeper waits when the store did not answer.
const retry = 5 * time.Second

// keep ends what is over: leases that nobody renewed, and then outcomes that nobody reported.
func (s *Server) keep() {
	for {
		timer := time.NewTimer(s.soonest())
		select {
		case <-timer.C:
		case <-s.nudge:
		case <-s.stop:
			timer.Stop()
			return
		}
		timer.Stop()
		for _, in := range s.live.all() {
			s.look(in)
		}
	}
}

// wake makes the keeper look again, because something may be due sooner.
func (s *Server) wake() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// awaits makes the keeper look when the outcome of a dispatched action is overdue.
func (s *Server) awaits(in *invocation, due time.Time) {
	in.mu.Lock()
	sooner := due.Before(in.due)
	if sooner {
		in.due = due
	}
	in.mu.Unlock()
	if sooner {
		s.wake()
	}
}

// soonest is how long until something is due.
func (s *Server) soonest() time.Duration {
	wait := time.Hour
	for _, in := range s.live.all() {
		in.mu.Lock()
		wait = min(wait, in.due.Sub(s.cfg.Now()))
		in.mu.Unlock()
	}
	return max(wait, 0)
}

// look does what is due of an invocation: an action whose outcome is overdue is given up; when its lease is over nothing more is admitted and what was never started is
// withheld; when the last outcome is in, or overdue, it is closed.
func (s *Server) look(in *invocation) {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := s.cfg.Now()
	if in.closed || now.Before(in.due) {
		return
	}
	ctx := context.Background() // it is recorded whoever has gone
	next := in.port.Overdue(ctx, nil)
	if !in.draining && now.Before(in.lease) {
		in.due = in.lease
		if !next.IsZero() && next.Before(in.due) {
			in.due = next
		}
		return
	}
	in.draining, in.due = true, now.Add(retry)
	last, err := in.port.Expire(ctx, nil)
	switch {
	case err != nil:
		s.cfg.Log.Error("the end of a lease could not be recorded; it is tried again", "invocation", in.id, "error", err)
	case now.Before(last):
		in.due = last
	default:
		_ = s.end(ctx, in)
	}
}

// end closes the invocation. The caller holds in.mu.
func (s *Server) end(ctx context.Context, in *invocation) error {
	if err := in.port.End(ctx, in.ending, nil); err != nil {
		in.draining, in.due = true, s.cfg.Now().Add(retry)
		s.cfg.Log.Error("the end of an invocation could not be recorded; it is tried again", "invocation", in.id, "error", err)
		s.wake()
		return err
	}
	in.closed = true
	s.live.remove(in)
	return nil
}

// leave closes the invocations whose actions have all been settled, and counts the others.
func (s *Server) leave(ctx context.Context) (left int, err error) {
	for _, in := range s.live.all() {
		in.mu.Lock()
		in.port.Drain()
		open := false
		for _, row := range in.port.Rows() {
			open = open || !row.State.Settled()
		}
		switch {
		case in.closed:
		case open:
			left++
		default:
			if e := s.end(ctx, in); e != nil {
				left, err = left+1, e
			}
		}
		in.mu.Unlock()
	}
	return left, err
}

// unsettled reports whether the port awaits an outcome.
func (in *invocation) unsettled() bool {
	for _, row := range in.port.Rows() {
		if row.State == writ.Dispatched {
			return true
		}
	}
	return false
}
