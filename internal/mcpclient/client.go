// Package mcpclient talks to one MCP server, over stdio or streamable HTTP, and turns what it says into the words of package writ. The
// adapters tool/mcp and tool/python are thin configurations of it.
//
// Its one hard rule is honesty about calls: a call that was certainly never handed to the server is
// [writ.ErrNotStarted]; what the server answered is a result, its errors included; everything else, above all a
// connection that broke after the request was written, is a plain error, which means that nobody knows. A call is
// never sent twice: whatever the transport, one path lists, calls and reconnects.
package mcpclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	DefaultIdleCheck      = 10 * time.Second

	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	reapTime   = 200 * time.Millisecond // for an error to say how the process ended
)

// processEnded is Health.LastError until it is known how.
const processEnded = "the process ended"

// Config says how to reach a server: a Command to start, or a URL. Zero values are the documented defaults.
type Config struct {
	Label          string // names the connection in errors, for example `mcp: "jira"`
	Command        string
	Args           []string
	Env            map[string]string // added to PATH, HOME and LANG, which is all that is passed on
	Dir            string
	URL            string            // of a streamable HTTP server; it is trusted, redirects of it are not followed
	Headers        map[string]string // sent with every request to URL; never in an error or a log
	TLS            *tls.Config       // nil = the system's roots
	TrustTraits    bool              // whether traits in _meta count
	ConnectTimeout time.Duration     // start and handshake, and one listing; 0 = 30 s
	CallTimeout    time.Duration     // of one call; 0 = the caller's context alone
	IdleCheck      time.Duration     // HTTP: a session idle for longer is tried with a ping before a call; 0 = 10 s
	MaxResult      int               // bytes of one message of the server; 0 = 32 MiB
	Grace          time.Duration     // between closing stdin, SIGTERM and SIGKILL, and of ending an HTTP session; 0 = 1 s
	Log            *slog.Logger      // nil = discarded

	// AskInput says that the caller handles [*writ.InputRequired]. Without it no server is told that it may ask, and
	// one that asks all the same has answered with an error.
	AskInput bool
	// Elicit answers a question that a server of an older protocol asks in the middle of a call, with the JSON of its
	// params; the answer is {"action": "accept" | "decline" | "cancel", "content": {…}}. Nil = every one is declined.
	Elicit func(ctx context.Context, params json.RawMessage) (json.RawMessage, error)
	// Relay makes the client speak for another one; AskInput and Elicit do not matter then. Nil = it speaks for itself.
	Relay *Relay
}

// Health is what is known of the server.
type Health struct {
	Running   bool   // its process runs, or a session over HTTP is open
	PID       int    // of the running process, else 0
	Starts    int    // processes started, or sessions asked for, so far
	Failures  int    // starts that failed and processes that died, so far
	LastError string // of the last failure; empty after a success
}

// Client is one MCP server, started on demand. It is safe for concurrent use.
type Client struct {
	cfg Config
	log *slog.Logger

	life    context.Context // ends with Close; starts run in it, so that a cancelled caller spoils no other's start
	endLife context.CancelCauseFunc
	wg      sync.WaitGroup // calls, starts and watchers

	mu        sync.Mutex
	closed    bool
	cur       *session
	starting  *start
	health    Health
	streak    int       // failures since the last success; sets the backoff
	notBefore time.Time // of the next start

	progress sync.Map     // progress token → progressOf
	tags     sync.Map     // key of a relayed request → the Tag of the request it belongs to
	tokens   atomic.Int64 // progress tokens so far
	changes  atomic.Int64 // list_changed notifications so far
	listMu   chan struct{}
	listing  *listing // guarded by mu
	handed   int64    // changes when Tools last answered; guarded by mu
}

// session is one process, or one session over HTTP, with its handshake done.
type session struct {
	*mcp.ClientSession
	link   link
	notify mcp.MethodHandler // sends a notification
}

func (s *session) dead() bool { return s.link.dead() }

// link carries the messages of one session.
type link interface {
	transport() mcp.Transport
	attach(*mcp.ClientSession)                                  // after the handshake
	dead() bool                                                 // nothing can be sent any more
	await()                                                     // returns once it is dead
	clean() bool                                                // it ended in good order: no failure, no backoff
	doubtful() bool                                             // it may have ended without a word; a ping will tell
	deaf() bool                                                 // a change of the tools would not be heard of
	drop(why string)                                            // gives the session up
	cancelling(jsonrpc.ID)                                      // the SDK is telling the server to give the request up
	awaitCancels()                                              // waits until the server has been told of all, no longer than the grace
	hearing(context.Context)                                    // waits until what the server tells can be heard
	bind(context.Context) (context.Context, context.CancelFunc) // ends a request with the session, where that must be
	forget(*exchange)                                           // nobody waits for it any more
	state() string                                              // how it ended, for messages
	failed(err error) error                                     // why the handshake failed, for messages
	pid() int                                                   // of a process
	stop(grace time.Duration) error                             // ends it; safe to call many times
	finish(*mcp.ClientSession)                                  // after stop: releases what is left, and waits for it
}

// start is one attempt to start a process, shared by all who wait for it.
type start struct {
	done chan struct{}
	sess *session
	err  error
}

// New prepares a client. Nothing is started.
func New(cfg Config) (*Client, error) {
	switch {
	case cfg.Command == "" && cfg.URL == "":
		return nil, fmt.Errorf("%s: neither a command nor a URL", cfg.Label)
	case cfg.Command != "" && cfg.URL != "":
		return nil, fmt.Errorf("%s: both a command and a URL", cfg.Label)
	}
	if cfg.URL != "" {
		if err := checkRemote(&cfg); err != nil {
			return nil, fmt.Errorf("%s: %w", cfg.Label, err)
		}
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
	if cfg.IdleCheck <= 0 {
		cfg.IdleCheck = DefaultIdleCheck
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	life, end := context.WithCancelCause(context.Background())
	return &Client{cfg: cfg, log: log.With("connection", cfg.Label), life: life, endLife: end,
		listMu: make(chan struct{}, 1)}, nil
}

// Health reports the state of the server's process.
func (c *Client) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.health
	if c.cur != nil && !c.cur.dead() {
		h.Running, h.PID = true, c.cur.link.pid()
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
	params, err := c.params(call, args)
	if err != nil {
		return writ.Result{}, fmt.Errorf("%s: calling %s: %w: %w", c.cfg.Label, call.Tool, writ.ErrNotStarted, err)
	}
	defer c.expectProgress(call, params)()
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
		var asks *writ.InputRequired
		switch {
		case errors.As(err, &asks):
			return writ.Result{}, fmt.Errorf("%s: calling %s: %w", c.cfg.Label, call.Tool, err)
		case errors.Is(err, errExpired):
			// Sent, and turned away unread. It is not for this package to send it again.
			return writ.Result{}, fmt.Errorf("%s: calling %s: %w: %w", c.cfg.Label, call.Tool, writ.ErrNotStarted, err)
		case sent:
			return writ.Result{}, fmt.Errorf("%s: calling %s: the outcome is unknown: %w", c.cfg.Label, call.Tool, err)
		}
		if attempt == 0 && ctx.Err() == nil && s.dead() {
			continue
		}
		return writ.Result{}, fmt.Errorf("%s: calling %s: %w: %w", c.cfg.Label, call.Tool, writ.ErrNotStarted, err)
	}
}

// errExpired is the error of a call that the server turned away because it no longer knows the session.
var errExpired = errors.New("the server has ended the session; the next call gets a new one")

// callOnce sends the call over one session. An error with sent false means that the server saw nothing of it.
func (c *Client) callOnce(ctx context.Context, s *session, params *mcp.CallToolParams) (res writ.Result, sent bool, err error) {
	raw, sent, err := c.once(ctx, s, func(ctx context.Context) error { return send(ctx, s.ClientSession, params, maps.Clone(params.Meta)) })
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Status != "":
		return writ.ErrorResult("the server refused the call: %s", refusal.Status), true, nil
	case errors.As(err, &refusal):
		return writ.ErrorResult("the server refused the call: %s (code %d)", refusal.Message, refusal.Code), true, nil
	case err != nil:
		return res, sent, err
	}
	res, err = mapResult(raw, c.cfg.AskInput)
	return res, true, err
}

// acquire returns a live session, starting one where there is none. Its errors are [writ.ErrNotStarted].
func (c *Client) acquire(ctx context.Context) (*session, error) {
	for again := false; ; again = true {
		s, err := c.session(ctx)
		if err != nil || again || !s.link.doubtful() || c.alive(ctx, s) {
			return s, err
		}
		s.link.drop("the server no longer answers for the session")
	}
}

func (c *Client) session(ctx context.Context) (*session, error) {
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

// alive tries a session with a ping, which may be repeated as a call may not. What ended by the caller's own context
// says nothing of the session.
func (c *Client) alive(ctx context.Context, s *session) bool {
	pctx, cancel := context.WithTimeout(ctx, c.cfg.ConnectTimeout)
	defer cancel()
	pctx, release := s.link.bind(pctx)
	defer release()
	pctx, x := withExchange(pctx)
	_ = s.Ping(pctx, nil)
	s.link.forget(x)
	o := x.snapshot()
	return ctx.Err() != nil || o.answered && o.refused == "" && !o.expired
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
		c.endedLocked(c.cur)
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
		c.wg.Go(func() { _ = sess.link.stop(c.cfg.Grace) })
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
// many servers close on any other first message, then, for a server that knows only newer ones, with discovery. Over
// HTTP a message that is not understood costs nothing, so there the newest protocol of all comes first.
func (c *Client) connect() (*session, error) {
	if c.cfg.URL != "" && c.cfg.Relay == nil { // a relay's server must be able to ask
		return c.connectAs("")
	}
	sess, err := c.connectAs(legacy)
	var rpc *jsonrpc.Error
	if errors.As(err, &rpc) && (rpc.Code == mcp.CodeUnsupportedProtocolVersion || rpc.Code == jsonrpc.CodeMethodNotFound) {
		return c.connectAs("")
	}
	return sess, err
}

// legacy is the newest protocol whose handshake is initialize.
const legacy = "2025-11-25"

func (c *Client) connectAs(protocol string) (*session, error) {
	if err := c.life.Err(); err != nil {
		return nil, errors.New("closed")
	}
	ctx, cancel := context.WithTimeout(c.life, c.cfg.ConnectTimeout)
	defer cancel()
	c.mu.Lock()
	c.health.Starts++
	c.mu.Unlock()
	l, err := c.open()
	if err != nil {
		return nil, err
	}
	client, notify := c.newClient()
	cs, err := client.Connect(ctx, l.transport(), &mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err == nil {
		l.attach(cs)
		return &session{ClientSession: cs, link: l, notify: notify}, nil
	}
	if ctx.Err() != nil && c.life.Err() == nil {
		err = fmt.Errorf("no handshake within %v", c.cfg.ConnectTimeout)
	} else {
		err = l.failed(err)
	}
	_ = l.stop(c.cfg.Grace)
	l.finish(nil)
	return nil, err
}

// open makes the link of a new session.
func (c *Client) open() (link, error) {
	if c.cfg.URL != "" {
		return newRemote(c.life, &c.cfg, c.log, func() { c.changes.Add(1) }, c.hear)
	}
	p, err := startProcess(&c.cfg, c.log)
	if err != nil {
		return nil, err
	}
	return &pipes{newConn(p, c.cfg.MaxResult, c.log, c.hear), p}, nil
}

// watch ends a session whose process died, whose output ended or which the server gave up, and cleans up after it.
func (c *Client) watch(s *session) {
	s.link.await()
	c.mu.Lock()
	closing := c.closed
	if c.cur == s && !closing {
		c.endedLocked(s)
	}
	c.mu.Unlock()
	_ = s.link.stop(c.cfg.Grace)
	if r := c.cfg.Relay; r != nil && r.Ended != nil && !closing {
		r.Ended()
	}
	if !closing && !s.link.clean() {
		state := s.link.state()
		c.log.Warn("the server ended", "state", state)
		c.mu.Lock()
		if c.health.LastError == processEnded {
			c.health.LastError = state
		}
		c.mu.Unlock()
	}
	s.link.finish(s.ClientSession)
}

// endedLocked takes the current session out of use. One that died counts against the server.
func (c *Client) endedLocked(s *session) {
	c.cur = nil
	if !s.link.clean() {
		c.failedLocked(processEnded)
	}
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
// itself, and waits; calls in flight may still be answered within the grace, then their outcome is unknown. Over HTTP
// calls in flight end at once, unknown, and the server is told that the session is over.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	s := c.cur
	c.mu.Unlock()
	if s != nil {
		s.link.awaitCancels()
	}
	c.endLife(errors.New("the connection was closed"))
	var err error
	if s != nil {
		err = s.link.stop(c.cfg.Grace)
	}
	c.wg.Wait()
	if err != nil {
		return fmt.Errorf("%s: closing: %w", c.cfg.Label, err)
	}
	return nil
}
