// Package server is Writ over HTTP. It begins with the admission port for outside harnesses: a harness opens an
// invocation of a configured participant, has each of its tool actions admitted before it has any effect, and says what
// became of it. What the port refuses is an answer; an HTTP error is what never reached the port.
//
// docs/http.md tells it from the outside; /openapi.json is made from the handlers.
package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"writ/admission"
	"writ/participant"
	"writ/store"
)

// Defaults of [Config].
const (
	DefaultLease   = 5 * time.Minute
	MaxLease       = time.Hour
	DefaultLife    = 24 * time.Hour
	DefaultOpen    = 64
	DefaultLate    = 7 * 24 * time.Hour
	maxBody        = 1 << 20
	maxID          = 256
	maxObservation = 2048
)

// Config is what a server needs. Store, Key and Holder are required; zero values are the documented defaults.
type Config struct {
	Store        store.Store
	Key          []byte                 // of the tenant: digests, and the tokens of invocations
	Holder       string                 // names this process in leases and turns
	Participants []participant.Compiled // whose invocations harnesses may open
	Opaque       []participant.Opaque   // who have no port, so that an answer can say why
	Tenant       string                 // empty = "local"
	Owner        string                 // whom the per-start token acts for; empty = "local"

	// StartToken is the token of this start: it opens invocations of every participant, on behalf of Owner. Empty = there is
	// none, and API tokens are needed.
	StartToken string

	Loopback bool     // only loopback addresses and localhost are good for a Host header
	Hosts    []string // further names that are

	Life    time.Duration // how long an invocation can be renewed for in all; 0 = 24 h
	Open    int           // invocations that one token may have open at once; 0 = 64
	Late    time.Duration // how long after its life an invocation's token is good for reading and late reports; 0 = 7 days
	Version string
	Now     func() time.Time // nil = time.Now
	NewID   func(prefix string) string
	Log     *slog.Logger // nil = discarded

	StartWithin, Grace time.Duration // of the ledger; 0 = its defaults
}

// Server answers requests. It is safe for concurrent use.
type Server struct {
	cfg     Config
	ledger  *admission.Ledger
	byName  map[string]*served
	opaque  map[string]participant.Opaque
	names   []string // of both, sorted
	mux     *routed
	api     huma.API
	openapi []byte

	live  live
	nudge chan struct{} // wakes the keeper
	stop  chan struct{} // ends it
	kept  sync.WaitGroup
	once  sync.Once
}

// served is a participant with the document of its bounds.
type served struct {
	participant.Compiled
	digest   string
	document []byte
}

// New prepares a server and starts what ends leases. Close must be called.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil || len(cfg.Key) < 16 || cfg.Holder == "" {
		return nil, errors.New("server: store, a key of at least 16 bytes, and a holder are required")
	}
	cfg.defaults()
	s := &Server{cfg: cfg, byName: map[string]*served{}, opaque: map[string]participant.Opaque{}, nudge: make(chan struct{}, 1), stop: make(chan struct{}),
		live: live{byID: map[string]*invocation{}, byToken: map[string]int{}}}
	s.ledger = admission.New(admission.Config{Store: cfg.Store, Key: cfg.Key, Now: cfg.Now, NewID: cfg.NewID, StartWithin: cfg.StartWithin, Grace: cfg.Grace})
	for _, p := range cfg.Participants {
		if s.byName[p.Name] != nil || p.Name == "" || p.Name == Everybody {
			return nil, fmt.Errorf("server: participant %q: names must be different and none is %q", p.Name, Everybody)
		}
		b, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("server: participant %s: %w", p.Name, err)
		}
		sum := sha256.Sum256(b)
		s.byName[p.Name] = &served{p, hex.EncodeToString(sum[:]), b}
		s.names = append(s.names, p.Name)
	}
	for _, p := range cfg.Opaque {
		s.opaque[p.Name] = p
		s.names = append(s.names, p.Name)
	}
	slices.Sort(s.names)
	if err := s.routes(); err != nil {
		return nil, err
	}
	s.kept.Go(s.keep)
	return s, nil
}

func (c *Config) defaults() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Life, DefaultLife}, {&c.Late, DefaultLate}, {&c.StartWithin, admission.DefaultStartWithin}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.Tenant == "" {
		c.Tenant = "local"
	}
	if c.Owner == "" {
		c.Owner = "local"
	}
	if c.Open == 0 {
		c.Open = DefaultOpen
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = admission.RandomID
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Drain makes the server refuse new invocations. What is open goes on.
func (s *Server) Drain() { s.live.drain() }

// Close ends the server after its last request. Invocations whose actions have all been settled are closed, as ones that
// returned nothing; the others are left to the next start, which settles them. It returns how many those are.
func (s *Server) Close(ctx context.Context) (left int, err error) {
	s.once.Do(func() {
		s.live.drain()
		close(s.stop)
		s.kept.Wait()
		left, err = s.leave(ctx)
	})
	return left, err
}
