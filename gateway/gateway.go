// Package gateway is an MCP server in front of MCP servers. Whatever a client asks of them that may have an effect
// (tools/call, resources/read, prompts/get) passes the admission port: it is recorded before it is sent, sent at most
// once, and settled as what really happened. Everything else is passed through as it is.
//
// A session of a client is one invocation, and has upstream sessions of its own: what a server asks or tells reaches the
// one client whose session it is, and no client shares a server's state with another.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/internal/mcpclient"
	"writ/store"
)

// Defaults of [Config].
const (
	DefaultIdle       = 30 * time.Minute
	DefaultDebounce   = 200 * time.Millisecond
	DefaultPageSize   = 1000
	DefaultConcurrent = 64
	DefaultActions    = 2000
	DefaultSessions   = 256
)

// Upstream is one MCP server behind the gateway.
type Upstream struct {
	// Connection is the agent's tool connection that governs it: what is allowed, what it means, how long it may take.
	Connection config.Connection
	// Client says how to reach the server. Label, Relay and Log are the gateway's to set.
	Client mcpclient.Config
	// Pins are the accepted definitions by tool name; nil = the connection is not pinned.
	Pins map[string]string
}

// Config is what a gateway needs. Agent, Ledger, Store and Dir are required; zero values are the documented defaults.
type Config struct {
	Agent     *config.Agent
	Upstreams []Upstream
	// Prefix makes a tool's name ALIAS__TOOL. Without it there may be one upstream only, whose names stay.
	Prefix bool

	Ledger *admission.Ledger
	Store  store.Store
	Dir    string // large results are kept in the workspaces below it
	Tenant string // empty = "local"
	Holder string // names this process in leases

	// Approval says whether a call must be approved before it runs; nil = none.
	Approval func(c *config.Connection, tool string, traits writ.Traits) *admission.Approval

	Idle       time.Duration // a session over HTTP without a request for so long ends; 0 = 30 min
	Debounce   time.Duration // changes of lists are told after so long without another; 0 = 200 ms
	PageSize   int           // items of one page of a listing; 0 = 1000
	Concurrent int           // actions of one session at once, further ones wait; 0 = 64
	Actions    int           // of one invocation: a session with more goes on with another one; 0 = 2000
	Sessions   int           // at once; each has upstream sessions of its own; 0 = 256
	Version    string
	Now        func() time.Time
	Log        *slog.Logger // nil = discarded
}

// Gateway serves any number of clients. It is safe for concurrent use.
type Gateway struct {
	cfg Config
	log *slog.Logger

	// stateful serves sessions that begin with initialize; stateless requests that stand alone.
	stateful, stateless *mcp.Server
	notify              mcp.MethodHandler // sends to a client, below the SDK's types

	life context.Context
	end  context.CancelCauseFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	opened   int // sessions, those that are just being opened or closed too
	sessions map[*mcp.ServerSession]*session
	byID     map[string]*session // HTTP: by Mcp-Session-Id
	pools    map[string]*pool    // stateless: by principal
	flights  map[string]*flight  // by action id
	live     map[string]*invocation
	// unfinished are invocations whose end could not be recorded.
	unfinished []*invocation
	held       map[string]string // calls without a key that wait for an approval: what they are → action id
	told       map[string]bool   // problems that have been logged
	keys       keyed
}

// errClosing ends what is under way when the gateway closes.
var errClosing = errors.New("the gateway is closing")

// New prepares a gateway. Nothing is started before a client comes.
func New(cfg Config) (*Gateway, error) {
	if cfg.Agent == nil || cfg.Ledger == nil || cfg.Store == nil || cfg.Dir == "" {
		return nil, errors.New("gateway: agent, ledger, store and directory are required")
	}
	if len(cfg.Upstreams) == 0 {
		return nil, fmt.Errorf("gateway: agent %s has no MCP server that can be used", cfg.Agent.ID)
	}
	if len(cfg.Upstreams) > 1 && !cfg.Prefix {
		return nil, errors.New("gateway: several upstreams need prefixed names")
	}
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	num := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&cfg.Idle, DefaultIdle)
	def(&cfg.Debounce, DefaultDebounce)
	num(&cfg.PageSize, DefaultPageSize)
	num(&cfg.Concurrent, DefaultConcurrent)
	num(&cfg.Actions, DefaultActions)
	num(&cfg.Sessions, DefaultSessions)
	cfg.Actions = max(cfg.Actions, cfg.Concurrent)
	if cfg.Tenant == "" {
		cfg.Tenant = "local"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Upstreams = slices.Clone(cfg.Upstreams)
	slices.SortFunc(cfg.Upstreams, func(a, b Upstream) int { return strings.Compare(a.Connection.Alias, b.Connection.Alias) })
	g := &Gateway{cfg: cfg, log: cfg.Log, sessions: map[*mcp.ServerSession]*session{}, byID: map[string]*session{},
		pools: map[string]*pool{}, flights: map[string]*flight{}, live: map[string]*invocation{}, held: map[string]string{}, told: map[string]bool{}}
	g.life, g.end = context.WithCancelCause(context.Background())
	legacy := slices.DeleteFunc(mcp.SupportedProtocolVersions(), func(v string) bool { return v > newestWithSessions })
	g.stateful = g.server(false, legacy)
	g.stateless = g.server(true, nil)
	return g, nil
}

// newestWithSessions is the newest protocol in which a client has a session, so that servers can ask it.
const newestWithSessions = "2025-11-25"

func (g *Gateway) server(stateless bool, versions []string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "writ-gateway", Title: "Writ gateway", Version: cmp.Or(g.cfg.Version, "0")},
		&mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler), SupportedProtocolVersions: versions, Capabilities: &mcp.ServerCapabilities{}})
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			return g.receive(ctx, stateless, next, method, req)
		}
	})
	s.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		g.notify = next // it is the same function for every server
		return next
	})
	return s
}

// Close ends every session: calls that run are interrupted and settled as unknown, what had not begun does not, and the
// history of each invocation is committed.
func (g *Gateway) Close() error {
	g.mu.Lock()
	g.closed = true
	var all []*mcp.ServerSession
	for ss := range g.sessions {
		all = append(all, ss)
	}
	g.mu.Unlock()
	g.end(errClosing)
	for _, ss := range all {
		_ = ss.Close()
	}
	g.mu.Lock()
	pools := make([]*pool, 0, len(g.pools))
	for _, p := range g.pools {
		pools = append(pools, p)
	}
	g.mu.Unlock()
	for _, p := range pools {
		p.close()
	}
	g.wg.Wait()
	return nil
}

// enter registers a session that Close waits for; the caller calls leave.
func (g *Gateway) enter() (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return nil, errClosing
	case g.opened >= g.cfg.Sessions:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the gateway has %d sessions, which is as many as it takes: end one, or wait until one is idle", g.opened)}
	}
	g.opened++
	g.wg.Add(1)
	return func() {
		g.mu.Lock()
		g.opened--
		g.mu.Unlock()
		g.wg.Done()
	}, nil
}

// problem logs what is wrong with one tool or upstream, once for each thing to say.
func (g *Gateway) problem(p writ.Problem) {
	key := p.Tool + "\x00" + p.Message
	g.mu.Lock()
	told := g.told[key]
	g.told[key] = true
	g.mu.Unlock()
	if !told {
		g.log.Warn("left out", "tool", p.Tool, "why", p.Message, "hint", p.Hint)
	}
}

// keyed is a lock for each key in use.
type keyed struct {
	mu   sync.Mutex
	each map[string]*keyLock
}

type keyLock struct {
	mu   sync.Mutex
	refs int
}

func (k *keyed) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.each == nil {
		k.each = map[string]*keyLock{}
	}
	l := k.each[key]
	if l == nil {
		l = &keyLock{}
		k.each[key] = l
	}
	l.refs++
	k.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(k.each, key)
		}
	}
}
