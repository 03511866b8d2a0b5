package dial

import (
	"context"
	"net"
	"sync/atomic"
)

// Sent tells whether any byte of a request may have reached the other side. The handshake of TLS does not count: it
// carries nothing of the request.
type Sent struct{ n atomic.Int64 }

// Happened reports whether a byte of the request was handed to the network. While a write is under way it says yes.
func (s *Sent) Happened() bool { return s.n.Load() > 0 }

type sentKey struct{}

// Track returns a context for one request; the connection dialled for it reports to the Sent. It is exact because a
// connection of [Guard.Transport] serves one request only.
func Track(ctx context.Context) (context.Context, *Sent) {
	s := &Sent{}
	return context.WithValue(ctx, sentKey{}, s), s
}

func watch(ctx context.Context, c net.Conn) net.Conn {
	if s, ok := ctx.Value(sentKey{}).(*Sent); ok {
		return &watched{c, s}
	}
	return c
}

type watched struct {
	net.Conn
	sent *Sent
}

// Write implements net.Conn. It counts before it writes, so that a look from outside never comes too early, and takes
// the count back when not one byte went out.
func (w *watched) Write(p []byte) (int, error) {
	w.sent.n.Add(1)
	n, err := w.Conn.Write(p)
	if n == 0 && err != nil {
		w.sent.n.Add(-1)
	}
	return n, err
}
