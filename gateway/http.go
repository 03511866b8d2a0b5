package gateway

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// HTTP is how the gateway is served over streamable HTTP.
type HTTP struct {
	// Authenticate says on whose behalf a request acts; false refuses it. Required.
	Authenticate func(r *http.Request) (principal string, ok bool)
	// Hosts are names that requests may be sent to besides localhost and addresses: what a browser was made to believe is
	// another's address is not among them.
	Hosts []string
	// Remote says that others than this machine's can reach it: then any address may be its, else loopback ones only.
	Remote bool
	// Stateless serves requests that stand alone, without sessions (protocol 2026-07-28, and older ones without
	// initialize). Servers can then not ask the client anything.
	Stateless bool
}

// maxBody bounds the body of one request.
const maxBody = maxMessage

// Handler serves clients over HTTP. Each request is authenticated; a session belongs to the principal that opened it, and
// for others it does not exist.
func (g *Gateway) Handler(cfg HTTP) http.Handler {
	server := g.stateful
	if cfg.Stateless {
		server = g.stateless
	}
	sdk := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		Stateless: cfg.Stateless, SessionTimeout: g.cfg.Idle, MaxRequestBodyBytes: maxBody, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true, // it would know no other names; ours is stricter
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !cfg.here(r.Host) {
			http.Error(w, "this host is not served here", http.StatusForbidden)
			return
		}
		if o := r.Header.Get("Origin"); o != "" && !cfg.ours(o, r.Host) {
			http.Error(w, "requests from other origins are not served", http.StatusForbidden)
			return
		}
		principal, ok := cfg.Authenticate(r)
		if !ok || principal == "" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="writ"`)
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
			return
		}
		if id := r.Header.Get("Mcp-Session-Id"); id != "" && !cfg.Stateless && !g.owns(principal, id) {
			http.Error(w, "session not found", http.StatusNotFound)
			return
		}
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
			var large *http.MaxBytesError
			switch {
			case errors.As(err, &large):
				http.Error(w, fmt.Sprintf("a request has at most %d bytes", large.Limit), http.StatusRequestEntityTooLarge)
				return
			case err != nil:
				http.Error(w, "the request could not be read", http.StatusBadRequest)
				return
			}
			body = tagBody(body)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		sdk.ServeHTTP(w, r.WithContext(WithPrincipal(r.Context(), principal)))
	})
}

// owns reports whether the session is the principal's.
func (g *Gateway) owns(principal, id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.byID[id]
	return s != nil && s.principal == principal
}

// here reports whether a request that names the host may be meant for us. An address needs no look-up, so no other
// name can be made to point to it.
func (cfg HTTP) here(host string) bool {
	name := hostOnly(host)
	if _, err := netip.ParseAddr(name); err == nil && cfg.Remote {
		return true
	}
	return cfg.named(name)
}

func (cfg HTTP) named(name string) bool {
	return loopbackName(name) || slices.ContainsFunc(cfg.Hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// ours reports whether a page of the origin may send requests: one of this machine's, or of the host that the request is
// sent to.
func (cfg HTTP) ours(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && (strings.EqualFold(u.Host, host) || cfg.named(hostOnly(u.Host)))
}

func hostOnly(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

func loopbackName(name string) bool {
	if name == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.Unmap().IsLoopback()
}

// Loopback reports whether an address to listen on is reached from this machine only.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && loopbackName(strings.ToLower(host))
}

// tokenFile holds the token of the running process.
const tokenFile = "gateway.token"

// NewToken makes a bearer token for this start, and keeps it in a file of the data directory that only the user can
// read.
func NewToken(dir string) (token, path string, err error) {
	token, path = "writ_gw_"+rand.Text(), filepath.Join(dir, tokenFile)
	tmp := path + ".new"
	_ = os.Remove(tmp) // of a start that died here
	if err := os.WriteFile(tmp, []byte(token+"\n"), 0o600); err != nil {
		return "", "", fmt.Errorf("gateway: keeping the token: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return "", "", fmt.Errorf("gateway: keeping the token: %w", err)
	}
	return token, path, nil
}

// Bearer authenticates requests that carry the token as the principal.
func Bearer(token, principal string) func(*http.Request) (string, bool) {
	return func(r *http.Request) (string, bool) {
		got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return principal, ok && subtle.ConstantTimeCompare([]byte(got), []byte(token)) == 1
	}
}
