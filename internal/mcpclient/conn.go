package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// exchange is what happened to one request, exactly: whether any byte of it reached the server's pipe, and what the
// server answered, byte for byte. It travels in the request's context to the connection. Its fields are settled
// when the SDK's call has returned.
type exchange struct {
	mu       sync.Mutex
	id       jsonrpc.ID
	sent     bool            // the server may have seen the request
	answered bool            // by the server itself
	result   json.RawMessage // of a success
	rpcErr   *jsonrpc.Error  // of a JSON-RPC error
	unread   string          // why the answer was not kept: too large, too deep
}

type exchangeKey struct{}

func withExchange(ctx context.Context) (context.Context, *exchange) {
	x := &exchange{}
	return context.WithValue(ctx, exchangeKey{}, x), x
}

// snapshot returns a copy that does not change any more.
func (x *exchange) snapshot() (sent, answered bool, result json.RawMessage, rpcErr *jsonrpc.Error, unread string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sent, x.answered, x.result, x.rpcErr, x.unread
}

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

	mu      sync.Mutex
	pending map[jsonrpc.ID]*exchange
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

func newConn(p *process, limit int, log *slog.Logger) *conn {
	c := &conn{
		proc: p, log: log, in: newLineReader(p.stdout, limit),
		out: make(chan outgoing), done: make(chan struct{}), ended: make(chan struct{}),
		pending: map[jsonrpc.ID]*exchange{},
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

func (x *exchange) setSent(v bool) {
	if x != nil {
		x.mu.Lock()
		x.sent = v
		x.mu.Unlock()
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
		c.mu.Lock()
		x.id = req.ID
		c.pending[req.ID] = x
		c.mu.Unlock()
	}
	return x
}

// forget drops an exchange that nobody waits for any more.
func (c *conn) forget(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[x.id] == x {
		delete(c.pending, x.id)
	}
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
			return c.receive(&jsonrpc.Response{ID: l.id, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
				Message: "the answer " + l.why}}, "the answer "+l.why), nil
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
		return msg, nil
	}
}

// skip logs the first pieces of garbage and counts the rest.
func (c *conn) skip(what string) {
	if c.garbage++; c.garbage <= 5 {
		c.log.Warn("the server wrote to stdout what is not the protocol; skipped", "what", what)
	}
}

// receive keeps an answer for its exchange. The SDK gets a success that it can always decode, because the exchange
// holds the real one.
func (c *conn) receive(resp *jsonrpc.Response, unread string) jsonrpc.Message {
	c.mu.Lock()
	x := c.pending[resp.ID]
	delete(c.pending, resp.ID)
	c.mu.Unlock()
	if x == nil {
		return resp
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered, x.unread = true, unread
	if e, ok := resp.Error.(*jsonrpc.Error); ok && unread == "" {
		x.rpcErr = e
	}
	if resp.Error != nil {
		return resp
	}
	x.result = bytes.Clone(resp.Result)
	return &jsonrpc.Response{ID: resp.ID, Result: json.RawMessage(`{"content":[],"tools":[]}`)}
}
