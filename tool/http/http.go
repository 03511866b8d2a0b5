// Package http offers the operations of an OpenAPI 3.0 or 3.1 document as a [writ.Toolset].
//
// Its hard rule is that of every adapter: what the service answered is a result, an error status included; a request
// of which no byte left this machine is [writ.ErrNotStarted]; everything else is a plain error, which means that
// nobody knows. A request is never sent twice: not by this package, and not by net/http on its behalf.
package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"writ"
	"writ/internal/dial"
)

// Defaults of [Config].
const (
	DefaultMaxBody = 32 << 20
)

// Config names a service. Zero values are the documented defaults.
type Config struct {
	Alias   string // the connection's name, for messages and logs
	Spec    string // path of the OpenAPI document, YAML or JSON; it may refer to files in its own folder and below
	BaseURL string // where the service is; empty = the first of the document's servers, which is not trusted
	// Headers go with every request to BaseURL, and nowhere else; they never reach an error, a log or a result. An
	// operation's own parameter of the same name is not offered.
	Headers map[string]string
	// AllowPrivate are IP addresses, CIDR ranges and host names that redirects and the document's servers may lead to
	// although they are private. The host and port of BaseURL need no entry.
	AllowPrivate []string
	Timeout      time.Duration // of one call; 0 = the caller's context alone
	MaxBody      int           // bytes of a response; 0 = 32 MiB
	TLS          *tls.Config   // nil = the system's roots
	Log          *slog.Logger  // nil = discarded

	resolver *net.Resolver // for tests
}

// Tools are the operations of one document. They are safe for concurrent use.
//
// GET, HEAD and OPTIONS declare exploration, every other method exploitation; the configuration may say otherwise.
type Tools struct {
	cfg      Config
	log      *slog.Logger
	base     *base
	ops      map[string]*operation
	specs    []writ.ToolSpec
	problems []writ.Problem
	send     *http.Transport
	secrets  [][]byte

	life context.Context
	end  context.CancelFunc
	mu   sync.Mutex // guards closed and, with it, wg.Add
	done bool
	wg   sync.WaitGroup
}

var _ writ.Toolset = (*Tools)(nil)

// Open reads the document. Nothing is connected to.
func Open(cfg Config) (*Tools, error) {
	fail := func(err error) (*Tools, error) { return nil, fmt.Errorf("http: %q: opening: %w", cfg.Alias, err) }
	if cfg.Spec == "" {
		return fail(errors.New("no OpenAPI document"))
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = DefaultMaxBody
	}
	t := &Tools{cfg: cfg, log: cfg.Log, ops: map[string]*operation{}}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.log = t.log.With("connection", cfg.Alias)
	doc, err := load(cfg.Spec)
	if err != nil {
		return fail(err)
	}
	if t.base, err = baseOf(&cfg, doc); err != nil {
		return fail(err)
	}
	if t.secrets, err = checkHeaders(cfg.Headers); err != nil {
		return fail(err)
	}
	guard := dial.Config{Allow: cfg.AllowPrivate, TLS: cfg.TLS, Resolver: cfg.resolver}
	if t.base.trusted {
		guard.Trusted = []string{t.base.url.String()}
	}
	g, err := dial.New(guard)
	if err != nil {
		return fail(err)
	}
	t.send = g.Transport()
	t.read(doc)
	t.life, t.end = context.WithCancel(context.Background())
	return t, nil
}

// Tools implements [writ.Toolset]. The returned slices are the caller's.
func (t *Tools) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	return slices.Clone(t.specs), slices.Clone(t.problems), nil
}

// Close implements [writ.Toolset]. Calls in flight end; their outcome is unknown.
func (t *Tools) Close() error {
	t.mu.Lock()
	t.done = true
	t.mu.Unlock()
	t.end()
	t.wg.Wait()
	t.send.CloseIdleConnections()
	return nil
}

// enter registers a call that Close waits for.
func (t *Tools) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return false
	}
	t.wg.Add(1)
	return true
}
