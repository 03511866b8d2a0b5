// Package mcpclient runs one MCP server over stdio and turns what it says into the words of package writ. The
// adapters tool/mcp and tool/python are thin configurations of it.
//
// Its one hard rule is honesty about calls: a call that was certainly never handed to the server is
// [writ.ErrNotStarted]; what the server answered is a result, its errors included; everything else, above all a
// connection that broke after the request was written, is a plain error, which means that nobody knows. A call is
// never sent twice.
package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
)

// Defaults of [Config].
const (
	DefaultConnectTimeout = 30 * time.Second
	DefaultMaxResult      = 32 << 20
	DefaultGrace          = time.Second

	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	reapTime   = 200 * time.Millisecond // for an error to say how the process ended
)

// processEnded is Health.LastError until it is known how.
const processEnded = "the process ended"

// Config says how to start a server. Zero values are the documented defaults.
type Config struct {
	Label          string // names the connection in errors, for example `mcp: "jira"`
	Command        string
	Args           []string
	Env            map[string]string // added to PATH, HOME and LANG, which is all that is passed on
	Dir            string
	TrustTraits    bool          // whether traits in _meta count
	ConnectTimeout time.Duration // start and handshake, and one listing; 0 = 30 s
	CallTimeout    time.Duration // of one call; 0 = the caller's context alone
	MaxResult      int           // bytes of one message of the server; 0 = 32 MiB
	Grace          time.Duration // between closing stdin, SIGTERM and SIGKILL; 0 = 1 s
	Log            *slog.Logger  // nil = discarded
}

// Health is what is known of the server's process.
type Health struct {
	Running   bool
	PID       int    // of the running process, else 0
	Starts    int    // processes started so far
	Failures  int    // starts that failed and processes that died, so far
	LastError string // of the last failure; empty after a success
}

// Client is one MCP server, started on demand. It is safe for concurrent use.
type Client struct {
	cfg Config
	log *slog.Logger

	life    context.Context // ends with Close; starts run in it, so that a cancelled caller spoils no other's start
	endLife context.CancelFunc
	wg      sync.WaitGroup // calls, starts and watchers

	mu        sync.Mutex
	closed    bool
	cur       *session
	starting  *start
	health    Health
	streak    int       // failures since the last success; sets the backoff
	notBefore time.Time // of the next start

	changes atomic.Int64 // list_changed notifications so far
	listMu  chan struct{}
	listing *listing // guarded by mu
	handed  int64    // changes when Tools last answered; guarded by mu
}

// session is one process with its handshake done.
type session struct {
	*mcp.ClientSession
	conn *conn
	proc *process
}

func (s *session) dead() bool {
	select {
	case <-s.conn.ended:
		return true
	case <-s.proc.exited:
		return true
	default:
		return false
	}
}

// start is one attempt to start a process, shared by all who wait for it.
type start struct {
	done chan struct{}
	sess *session
	err  error
}

// New prepares a client. Nothing is started.
func New(cfg Config) (*Client, error) {
	if cfg.Command == "" {
		return nil, fmt.Errorf("%s: no command", cfg.Label)
	}
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = DefaultConnectTimeout
	}
	if cfg.MaxResult <= 0 {
		cfg.MaxResult = DefaultMaxResult
	}
	if cfg.Grace <= 0 {
		cfg.Grace = DefaultGrace
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	life, end := context.WithCancel(context.Background())
	return &Client{cfg: cfg, log: log.With("connection", cfg.Label), life: life, endLife: end,
		listMu: make(chan struct{}, 1)}, nil
}

// Health reports the state of the server's process.
func (c *Client) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.health
	if c.cur != nil && !c.cur.dead() {
		h.Running, h.PID = true, c.cur.proc.pid
	}
	return h
}

// Changed reports whether the server announced another tool list since Tools last answered. Any number of
// announcements costs one listing.
func (c *Client) Changed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes.Load() != c.handed
}

// enter registers one operation that Close waits for.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%s: closed: %w", c.cfg.Label, writ.ErrNotStarted)
	}
	c.wg.Add(1)
	return nil
}

// Call implements [writ.Toolset]. A request that was never handed over because the process had just died goes to a
// fresh process; one that was is never repeated.
func (c *Client) Call(ctx context.Context, call writ.Call) (writ.Result, error) {
	if err := c.enter(); err != nil {
		return writ.Result{}, err
	}
	defer c.wg.Done()
	args := call.Params
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if t := bytes.TrimSpace(args); len(t) == 0 || t[0] != '{' || !json.Valid(t) {
		return writ.Result{}, fmt.Errorf("%s: calling %s: the arguments are no JSON object: %w", c.cfg.Label, call.Tool, writ.ErrNotStarted)
	}
	if c.cfg.CallTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.CallTimeout)
		defer cancel()
	}
	params := &mcp.CallToolParams{Name: call.Tool, Arguments: args, Meta: mcp.Meta{}}
	if call.IdempotencyKey != "" {
		params.Meta["writ/key"] = call.IdempotencyKey
	}
	if call.ToolCallID != "" {
		params.Meta["writ/tool_call_id"] = call.ToolCallID
	}
	for attempt := 0; ; attempt++ {
		s, err := c.acquire(ctx)
		if err != nil {
			return writ.Result{}, err
		}
		if c.vanished(ctx, s, call.Tool) {
			return writ.Result{}, fmt.Errorf("%s: calling %s: %w", c.cfg.Label, call.Tool, writ.ErrVanished)
		}
		res, sent, err := c.callOnce(ctx, s, params)
		if err == nil {
			c.succeeded()
			return res, nil
		}
		if sent {
			return writ.Result{}, fmt.Errorf("%s: calling %s: the outcome is unknown: %w", c.cfg.Label, call.Tool, err)
		}
		if attempt == 0 && ctx.Err() == nil && s.dead() {
			continue
		}
		return writ.Result{}, fmt.Errorf("%s: calling %s: %w: %w", c.cfg.Label, call.Tool, writ.ErrNotStarted, err)
	}
}

// callOnce sends the call over one session. An error with sent false means that the server saw nothing of it.
func (c *Client) callOnce(ctx context.Context, s *session, params *mcp.CallToolParams) (res writ.Result, sent bool, err error) {
	ctx, x := withExchange(ctx)
	_, err = s.CallTool(ctx, params)
	s.conn.forget(x)
	sent, answered, result, rpcErr, unread := x.snapshot()
	switch {
	case answered && unread != "":
		// Whether it was a success is in the answer that could not be kept.
		return res, true, fmt.Errorf("the tool answered, but it could not be kept: %s (limit %d bytes, %d levels)", unread, c.cfg.MaxResult, maxDepth)
	case answered && rpcErr != nil:
		return writ.ErrorResult("the server refused the call: %s (code %d)", rpcErr.Message, rpcErr.Code), true, nil
	case answered:
		res, err = mapResult(result)
		return res, true, err
	case ctx.Err() != nil:
		return res, sent, context.Cause(ctx)
	case err == nil:
		return res, true, errors.New("the call ended without an answer")
	case s.dead():
		// Give the waiter a moment to reap, so that the error can say how the process ended.
		s.proc.gone(reapTime)
		return res, sent, errors.New(s.proc.state())
	}
	return res, sent, err
}

// acquire returns a live session, starting a process where there is none. Its errors are [writ.ErrNotStarted].
func (c *Client) acquire(ctx context.Context) (*session, error) {
	st, sess, err := c.startOrCurrent()
	if sess != nil || err != nil {
		return sess, err
	}
	select {
	case <-st.done:
		if st.err != nil {
			return nil, fmt.Errorf("%s: starting: %w: %w", c.cfg.Label, st.err, writ.ErrNotStarted)
		}
		return st.sess, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: starting: %w: %w", c.cfg.Label, context.Cause(ctx), writ.ErrNotStarted)
	}
}

func (c *Client) startOrCurrent() (*start, *session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, nil, fmt.Errorf("%s: closed: %w", c.cfg.Label, writ.ErrNotStarted)
	case c.cur != nil && !c.cur.dead():
		return nil, c.cur, nil
	case c.starting != nil:
		return c.starting, nil, nil
	}
	if c.cur != nil {
		// Found dead before its watcher said so: the backoff counts from now all the same.
		c.cur = nil
		c.failedLocked(processEnded)
	}
	st := &start{done: make(chan struct{})}
	c.starting = st
	c.wg.Go(func() { c.run(st, c.notBefore) })
	return st, nil, nil
}

// run makes one start attempt, after its backoff.
func (c *Client) run(st *start, notBefore time.Time) {
	if d := time.Until(notBefore); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.life.Done():
		}
	}
	sess, err := c.connect()
	c.mu.Lock()
	c.starting = nil
	switch {
	case err != nil:
		c.failedLocked(err.Error())
	case c.closed:
		// Close did not see this session; end it here.
		err = errors.New("closed")
		c.wg.Go(func() { c.watch(sess) })
		c.wg.Go(func() { _ = sess.proc.stop(c.cfg.Grace) })
		sess = nil
	default:
		c.cur = sess
		c.wg.Go(func() { c.watch(sess) })
	}
	c.mu.Unlock()
	st.sess, st.err = sess, err
	close(st.done)
}

// connect starts a process and shakes hands: first with the newest protocol that begins with initialize, because
// many servers close on any other first message, then, for a server that knows only newer ones, with discovery.
func (c *Client) connect() (*session, error) {
	sess, err := c.connectAs("2025-11-25")
	var rpc *jsonrpc.Error
	if errors.As(err, &rpc) && (rpc.Code == mcp.CodeUnsupportedProtocolVersion || rpc.Code == jsonrpc.CodeMethodNotFound) {
		return c.connectAs("")
	}
	return sess, err
}

func (c *Client) connectAs(protocol string) (*session, error) {
	if err := c.life.Err(); err != nil {
		return nil, errors.New("closed")
	}
	ctx, cancel := context.WithTimeout(c.life, c.cfg.ConnectTimeout)
	defer cancel()
	c.mu.Lock()
	c.health.Starts++
	c.mu.Unlock()
	p, err := startProcess(&c.cfg, c.log)
	if err != nil {
		return nil, err
	}
	cn := newConn(p, c.cfg.MaxResult, c.log)
	cs, err := c.newClient().Connect(ctx, transport{cn}, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err == nil {
		return &session{ClientSession: cs, conn: cn, proc: p}, nil
	}
	switch {
	case ctx.Err() != nil && c.life.Err() == nil:
		err = fmt.Errorf("no handshake within %v", c.cfg.ConnectTimeout)
	case cn.eof.Load():
		p.gone(reapTime)
		err = fmt.Errorf("no handshake: %s", p.state())
	default:
		err = fmt.Errorf("handshake: %w", err)
	}
	_ = p.stop(c.cfg.Grace)
	cn.Close()
	p.wait()
	return nil, err
}

// newClient offers the server nothing: no roots, no sampling, no elicitation.
func (c *Client) newClient() *mcp.Client {
	client := mcp.NewClient(&mcp.Implementation{Name: "writ", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		// The SDK would answer an input request by sending the call again.
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			c.changes.Add(1)
		},
	})
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			switch method {
			case "roots/list", "sampling/createMessage", "elicitation/create":
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " is not offered"}
			}
			return next(ctx, method, req)
		}
	})
	return client
}

// watch ends a session whose process died or whose output ended, and cleans up after it.
func (c *Client) watch(s *session) {
	select {
	case <-s.conn.ended:
	case <-s.proc.exited:
	}
	c.mu.Lock()
	closing := c.closed
	if c.cur == s && !closing {
		c.cur = nil
		c.failedLocked(processEnded)
	}
	c.mu.Unlock()
	_ = s.proc.stop(c.cfg.Grace)
	if !closing {
		state := s.proc.state()
		c.log.Warn("the server ended", "state", state)
		c.mu.Lock()
		if c.health.LastError == processEnded {
			c.health.LastError = state
		}
		c.mu.Unlock()
	}
	<-s.conn.ended
	_ = s.Close()
	s.conn.Close()
	s.proc.wait()
}

func (c *Client) failedLocked(why string) {
	c.health.Failures++
	c.health.LastError = why
	delay := min(minBackoff<<min(c.streak, 16), maxBackoff)
	c.streak++
	c.notBefore = time.Now().Add(delay)
}

func (c *Client) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streak, c.health.LastError = 0, ""
}

// Close implements [writ.Toolset]: it closes the server's stdin, ends its process group when it does not leave by
// itself, and waits. Calls in flight may still be answered within the grace; then their outcome is unknown.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	s := c.cur
	c.mu.Unlock()
	c.endLife()
	var err error
	if s != nil {
		err = s.proc.stop(c.cfg.Grace)
	}
	c.wg.Wait()
	if err != nil {
		return fmt.Errorf("%s: closing: %w", c.cfg.Label, err)
	}
	return nil
}
