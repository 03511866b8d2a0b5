package gateway

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage bounds one message of a client.
const maxMessage = 32 << 20

// ServeStdio serves one client over a pair of streams: one session, until the client closes its end or ctx ends. It
// returns when the session's end is recorded.
func (g *Gateway) ServeStdio(ctx context.Context, in io.ReadCloser, out io.Writer, principal string) error {
	return g.Serve(ctx, lingering{&mcp.IOTransport{Reader: in, Writer: keepOpen{out}, MaxLineLength: maxMessage}}, principal)
}

// Serve serves one client over a transport that lasts as long as its session.
func (g *Gateway) Serve(ctx context.Context, t mcp.Transport, principal string) error {
	ss, err := g.stateful.Connect(WithPrincipal(context.WithoutCancel(ctx), principal), tagging{t}, nil)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		g.mu.Lock()
		s := g.sessions[ss]
		g.mu.Unlock()
		if s != nil {
			s.end(context.Cause(ctx)) // the SDK waits for what runs
		}
		_ = ss.Close()
	})
	defer stop()
	err = ss.Wait()
	g.mu.Lock()
	s := g.sessions[ss]
	g.mu.Unlock()
	if s != nil {
		<-s.over
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// keepOpen is a writer that the transport cannot close: it is the process's.
type keepOpen struct{ io.Writer }

// Close implements io.Closer.
func (keepOpen) Close() error { return nil }

// linger is how long a client that has closed its end may still get answers to what it has asked: somebody may have
// written the requests into a pipe. A client that died looks the same until it is written to, so it is not longer.
const linger = 2 * time.Second

// lingering is a transport whose end is told when its requests are answered.
type lingering struct{ mcp.Transport }

// Connect implements [mcp.Transport].
func (l lingering) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := l.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &lingeringConn{Connection: c, settled: make(chan struct{})}, nil
}

type lingeringConn struct {
	mcp.Connection

	mu      sync.Mutex
	open    int  // requests without an answer
	ended   bool // nothing more will be read
	settled chan struct{}
	once    sync.Once
}

// settle ends the waiting.
func (c *lingeringConn) settle() { c.once.Do(func() { close(c.settled) }) }

func (c *lingeringConn) count(n int, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	c.ended = c.ended || ended
	if c.ended && c.open == 0 {
		c.settle()
	}
}

// Read implements [mcp.Connection].
func (c *lingeringConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if req, ok := msg.(*jsonrpc.Request); ok && err == nil && req.IsCall() {
		c.count(1, false)
	}
	if err != nil {
		c.count(0, true)
		timer := time.NewTimer(linger)
		defer timer.Stop()
		select {
		case <-c.settled:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return msg, err
}

// Write implements [mcp.Connection].
func (c *lingeringConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if _, ok := msg.(*jsonrpc.Response); ok {
		c.count(-1, false)
	}
	if err != nil { // nobody reads
		c.settle()
	}
	return err
}

// Close implements [mcp.Connection].
func (c *lingeringConn) Close() error {
	c.settle()
	return c.Connection.Close()
}
