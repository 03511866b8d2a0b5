package mcpclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// conn is an [mcp.Connection] over a process's pipes. It exists beside the SDK's own because it must know whether
// a request was ever handed over (an unsent call is certainly without effect, a sent one is not), must keep the
// answers as they came (one malformed tool may not spoil a listing), and must outlive garbage on stdout.
type conn struct {
	proc *process
	log  *slog.Logger
	in   *lineReader

	out      chan outgoing
	done     chan struct{} // closed by Close
	ended    chan struct{} // closed when the reader met its end
	eof      atomic.Bool   // the end was the server's doing, not ours
	doneOnce sync.Once
	endOnce  sync.Once

	exchanges
	hear    func(jsonrpc.Message, *exchange) jsonrpc.Message // takes every message that is no answer, as it is read
	garbage int
}

type outgoing struct {
	data   []byte
	result chan written
}

type written struct {
	n   int
	err error
}

var (
	_ mcp.Connection = (*conn)(nil)
	_ mcp.Transport  = transport{}
)

// transport hands a ready connection to the SDK.
type transport struct{ c *conn }

// Connect implements [mcp.Transport].
func (t transport) Connect(context.Context) (mcp.Connection, error) { return t.c, nil }

func newConn(p *process, limit int, log *slog.Logger, hear func(jsonrpc.Message, *exchange) jsonrpc.Message) *conn {
	c := &conn{
		proc: p, log: log, hear: hear, in: newLineReader(p.stdout, limit),
		out: make(chan outgoing), done: make(chan struct{}), ended: make(chan struct{}),
	}
	p.wg.Go(c.writeLoop)
	return c
}

// SessionID implements [mcp.Connection].
func (c *conn) SessionID() string { return "" }

// Close implements [mcp.Connection]. The SDK calls it under its lock, so it only lets go; ending the process is the
// owner's work.
func (c *conn) Close() error {
	c.doneOnce.Do(func() {
		close(c.done)
		_ = c.proc.stdin.Close()
		_ = c.proc.stdout.Close()
	})
	return nil
}

// writeLoop is the only writer of stdin, so that a cancelled call need not wait for a server that does not read.
func (c *conn) writeLoop() {
	for {
		select {
		case o := <-c.out:
			n, err := c.proc.stdin.Write(o.data)
			// After an error the loop goes on and every later write fails too: the reader may still find answers.
			o.result <- written{n, err}
		case <-c.done:
			return
		}
	}
}

// Write implements [mcp.Connection].
func (c *conn) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	data = append(data, '\n')
	// A select would choose by chance, and a call whose context has ended must not go out.
	if err := ctx.Err(); err != nil {
		return err
	}
	x := c.track(ctx, msg)
	o := outgoing{data: data, result: make(chan written, 1)}
	select {
	case c.out <- o:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return io.ErrClosedPipe
	}
	select {
	case w := <-o.result:
		// Not one byte: the server cannot know of it. Part of a line: nobody can swear that it did not act on it.
		x.setSent(w.n > 0 || w.err == nil)
		return w.err
	case <-ctx.Done():
		x.setSent(true)
		return ctx.Err()
	}
}

// track notes which exchange a request belongs to before the server can answer it.
func (c *conn) track(ctx context.Context, msg jsonrpc.Message) *exchange {
	req, ok := msg.(*jsonrpc.Request)
	if !ok || !req.IsCall() {
		return nil
	}
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	if x != nil {
		c.expect(req.ID, x)
	}
	return x
}

// Read implements [mcp.Connection]. What is not a JSON-RPC message is skipped: many servers print a banner.
func (c *conn) Read(context.Context) (jsonrpc.Message, error) {
	for {
		l, err := c.in.next()
		if err != nil {
			c.endOnce.Do(func() {
				select {
				case <-c.done:
				default:
					c.eof.Store(true)
				}
				close(c.ended)
			})
			return nil, io.EOF
		}
		if l.data == nil && l.why != "" {
			if !l.id.IsValid() {
				c.skip("a message that " + l.why)
				continue
			}
			return c.unreadable(l.id, "the answer "+l.why), nil
		}
		if len(bytes.TrimSpace(l.data)) == 0 {
			continue
		}
		msg, err := jsonrpc.DecodeMessage(l.data)
		if err != nil {
			c.skip(fmt.Sprintf("a line that is no JSON-RPC message: %.200q", l.data))
			continue
		}
		if resp, ok := msg.(*jsonrpc.Response); ok {
			return c.receive(resp, ""), nil
		}
		return c.hear(msg, nil), nil
	}
}

// skip logs the first pieces of garbage and counts the rest.
func (c *conn) skip(what string) {
	if c.garbage++; c.garbage <= 5 {
		c.log.Warn("the server wrote to stdout what is not the protocol; skipped", "what", what)
	}
}

// pipes are the link to a process.
type pipes struct {
	conn *conn
	proc *process
}

func (p *pipes) transport() mcp.Transport  { return transport{p.conn} }
func (p *pipes) attach(*mcp.ClientSession) {}
func (p *pipes) forget(x *exchange)        { p.conn.forget(x) }
func (p *pipes) pid() int                  { return p.proc.pid }
func (p *pipes) clean() bool               { return false }
func (p *pipes) deaf() bool                { return false }
func (p *pipes) doubtful() bool            { return false }
func (p *pipes) drop(string)               {}
func (p *pipes) hearing(context.Context)   {}
func (p *pipes) cancelling(jsonrpc.ID)     {} // the end of its input tells a process too
func (p *pipes) awaitCancels()             {}

func (p *pipes) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (p *pipes) dead() bool {
	select {
	case <-p.conn.ended:
		return true
	case <-p.proc.exited:
		return true
	default:
		return false
	}
}

func (p *pipes) await() {
	select {
	case <-p.conn.ended:
	case <-p.proc.exited:
	}
}

func (p *pipes) state() string {
	// Give the waiter a moment to reap, so that it can be said how the process ended.
	p.proc.gone(reapTime)
	return p.proc.state()
}

func (p *pipes) failed(err error) error {
	if p.conn.eof.Load() {
		return fmt.Errorf("no handshake: %s", p.state())
	}
	return fmt.Errorf("handshake: %w", err)
}

func (p *pipes) stop(grace time.Duration) error { return p.proc.stop(grace) }

func (p *pipes) finish(s *mcp.ClientSession) {
	if s != nil {
		<-p.conn.ended
		_ = s.Close()
	}
	p.conn.Close()
	p.proc.wait()
}
