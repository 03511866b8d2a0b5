package gateway

//lint:file-ignore SA1019 what newer protocols drop is passed through for the clients and servers that use it

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ/admission"
)

// session is one client with its upstream sessions. In the stateless mode it is one principal, and each request is an
// invocation of its own.
type session struct {
	g         *Gateway
	id        string // part of each call's id
	principal string
	stateless bool
	ss        *mcp.ServerSession // nil in the stateless mode
	base      context.Context    // of what is told outside of any request: it must not be part of one
	life      context.Context
	end       context.CancelCauseFunc
	over      chan struct{} // closed when its end is recorded
	wg        sync.WaitGroup
	ups       []*upstream // sorted by alias

	changes chan change
	calls   sync.WaitGroup // that run
	quiet   *time.Timer    // fires when nothing was asked for a while; nil in the stateless mode

	mu      sync.Mutex
	catalog *catalog
	inv     *invocation
	owners  map[string]*upstream // resources by URI, where there are several upstreams
}

// change says that listings may have changed.
type change struct {
	kinds []kind
	again bool // an upstream is back: nobody has said that anything changed
}

type principalKey struct{}

// WithPrincipal says on whose behalf a connection acts.
func WithPrincipal(ctx context.Context, principal string) context.Context {
	return context.WithValue(ctx, principalKey{}, principal)
}

func principalOf(ctx context.Context) string {
	p, _ := ctx.Value(principalKey{}).(string)
	return p
}

// openSession connects to the upstreams on behalf of a client with these capabilities. An upstream that cannot be
// reached is left out until it can.
func (g *Gateway) openSession(ctx context.Context, ss *mcp.ServerSession, principal string, stateless bool, caps *mcp.ClientCapabilities) (*session, error) {
	if principal == "" {
		return nil, errors.New("gateway: nobody says who the client is")
	}
	s := &session{g: g, principal: principal, stateless: stateless, ss: ss, changes: make(chan change, 16), over: make(chan struct{}),
		base: context.Background()}
	s.id = admission.RandomID("mcp_")
	if ss != nil && ss.ID() != "" {
		sum := sha256.Sum256([]byte(ss.ID())) // the id itself opens the session
		s.id = "mcp_" + hex.EncodeToString(sum[:10])
	}
	s.life, s.end = context.WithCancelCause(g.life)
	for _, u := range g.cfg.Upstreams {
		up, err := s.newUpstream(u, caps)
		if err != nil {
			return nil, fmt.Errorf("gateway: connection %s: %w", u.Connection.Alias, err)
		}
		s.ups = append(s.ups, up)
	}
	s.greetAll(ctx)
	for _, up := range s.ups {
		s.wg.Go(up.restore)
	}
	s.wg.Go(s.announce)
	if _, err := s.current(ctx); err != nil { // the catalog
		s.shut()
		return nil, err
	}
	if stateless {
		return s, nil
	}
	inv, err := s.begin(ctx)
	if err != nil {
		s.shut()
		return nil, err
	}
	s.inv = inv
	s.quiet = time.AfterFunc(g.cfg.Idle, s.rest)
	return s, nil
}

// greetAll connects to all upstreams at once.
func (s *session) greetAll(ctx context.Context) {
	var wg sync.WaitGroup
	for _, up := range s.ups {
		wg.Go(func() {
			if err := up.greet(ctx); err != nil {
				s.g.log.Warn("an upstream cannot be reached; its tools are absent until it can", "connection", up.alias, "error", err)
				up.lost()
			}
		})
	}
	wg.Wait()
}

// close ends the session: calls that run are interrupted, then the invocation ends, which commits its history.
func (s *session) close() {
	defer close(s.over)
	s.mu.Lock() // a call is either registered now, or refused
	s.end(errors.New("the client's session is over"))
	s.mu.Unlock()
	s.calls.Wait()
	s.mu.Lock()
	inv := s.inv
	s.inv = nil
	s.mu.Unlock()
	if s.quiet != nil {
		s.quiet.Stop()
	}
	if inv != nil {
		s.g.retire(inv)
	}
	s.shut()
}

// shut ends the upstream sessions.
func (s *session) shut() {
	s.end(errClosing)
	var wg sync.WaitGroup
	for _, up := range s.ups {
		wg.Go(func() {
			if err := up.client.Close(); err != nil {
				s.g.log.Warn("closing an upstream", "connection", up.alias, "error", err)
			}
		})
	}
	wg.Wait()
	s.wg.Wait()
}

// tellTimeout bounds a notification to a client that does not read.
const tellTimeout = 10 * time.Second

// tellDuring sends a notification with the answer to a request, or by itself.
func (s *session) tellDuring(f *flight, method string, params json.RawMessage) {
	on, ss := s.base, s.ss
	if f != nil {
		on, ss = f.ctx, f.ss
	}
	if ss == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(on), tellTimeout)
	defer cancel()
	_, err := s.g.tell(ctx, ss, method, params)
	if err != nil && f != nil && !s.stateless { // the request's own stream is gone
		_, err = s.g.tell(context.WithoutCancel(s.base), ss, method, params)
	}
	if err != nil {
		s.g.log.Debug("a client was not told", "method", method, "error", err)
	}
}

// changed notes that listings may have changed. It never waits: the upstream's reader calls it.
func (s *session) changed(c change) {
	select {
	case s.changes <- c:
	case <-s.life.Done():
	default: // as many are waiting as say the same; each kind is told once
		go func() {
			select {
			case s.changes <- c:
			case <-s.life.Done():
			}
		}()
	}
}

// announce tells the client of changes, a while after the last one.
func (s *session) announce() {
	said := [kinds]bool{}
	maybe := [kinds]bool{}
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case c := <-s.changes:
			for _, k := range c.kinds {
				said[k] = said[k] || !c.again
				maybe[k] = true
			}
			timer.Reset(s.g.cfg.Debounce)
		case <-timer.C:
			for k := range kinds {
				if maybe[k] && (s.refreshed(k) || said[k]) && s.ss != nil {
					s.tellDuring(nil, listings[k].changed, nil)
				}
				said[k], maybe[k] = false, false
			}
		}
	}
}

// refreshed lists a kind anew and reports whether anything differs.
func (s *session) refreshed(k kind) bool {
	if k == tools {
		s.mu.Lock()
		before := s.catalog
		s.mu.Unlock()
		after, err := s.current(s.life)
		return err == nil && (before == nil || !sameItems(before.items, after.items))
	}
	differs := false
	for _, up := range s.ups {
		up.mu.Lock()
		before := up.lists[k]
		up.mu.Unlock()
		if has, _ := up.offers(k); has && before.known && !sameItems(before.items, up.list(s.life, k)) {
			differs = true
		}
	}
	return differs
}

// capabilities are what the upstreams offer together. The list of tools may always change: an upstream may come later.
func (s *session) capabilities() *mcp.ServerCapabilities {
	out := &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}}
	for _, up := range s.ups {
		c := up.caps()
		if c.Logging != nil {
			out.Logging = c.Logging
		}
		if c.Completions != nil {
			out.Completions = c.Completions
		}
		if p := c.Prompts; p != nil {
			if out.Prompts == nil {
				out.Prompts = &mcp.PromptCapabilities{}
			}
			out.Prompts.ListChanged = out.Prompts.ListChanged || p.ListChanged
		}
		if r := c.Resources; r != nil {
			if out.Resources == nil {
				out.Resources = &mcp.ResourceCapabilities{}
			}
			out.Resources.ListChanged = out.Resources.ListChanged || r.ListChanged
			out.Resources.Subscribe = out.Resources.Subscribe || r.Subscribe && !s.stateless
		}
	}
	return out
}

// instructions are those of the upstreams, each under its name where there are several.
func (s *session) instructions() string {
	var parts []string
	for _, up := range s.ups {
		up.mu.Lock()
		info := up.info
		up.mu.Unlock()
		if info == nil || strings.TrimSpace(info.Instructions) == "" {
			continue
		}
		if s.g.cfg.Prefix {
			parts = append(parts, fmt.Sprintf("## %s\n\nNames of its tools and prompts begin with %s__.\n\n%s", up.alias, up.alias, info.Instructions))
		} else {
			parts = append(parts, info.Instructions)
		}
	}
	return strings.Join(parts, "\n\n")
}
