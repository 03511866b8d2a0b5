// Package dial opens connections to addresses that may come from anywhere. Addresses that the administrator wrote into
// the configuration are trusted; those from models, results, redirects and documents are checked after name
// resolution, at the moment of connecting: nothing private, local to the link or special is reached by them.
package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// DefaultTimeout bounds one connect, and one TLS handshake.
const DefaultTimeout = 30 * time.Second

// ErrRefused marks an address that must not be reached.
var ErrRefused = errors.New("the address is not public")

// Config says what is trusted. Zero values are the documented defaults.
type Config struct {
	// Trusted are http and https addresses of the configuration: the host and port of each may be anything.
	Trusted []string
	// Allow are IP addresses, CIDR ranges and host names that may be private, on every port.
	Allow    []string
	TLS      *tls.Config   // nil = the system's roots
	Timeout  time.Duration // 0 = 30 s
	Resolver *net.Resolver // nil = the system's
}

// Guard dials. It is safe for concurrent use.
type Guard struct {
	plain   net.Dialer
	checked net.Dialer
	tls     *tls.Config
	timeout time.Duration
	trusted map[string]bool // "host:port"
	hosts   map[string]bool
	nets    []netip.Prefix
}

// New makes a guard. It fails for an entry that is no address.
func New(cfg Config) (*Guard, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	g := &Guard{tls: cfg.TLS, timeout: cfg.Timeout, trusted: map[string]bool{}, hosts: map[string]bool{}}
	g.plain = net.Dialer{Timeout: cfg.Timeout, Resolver: cfg.Resolver}
	g.checked = g.plain
	// Control runs once per address tried, after resolution: what it saw is what is connected to, whatever the name
	// resolves to a moment later.
	g.checked.Control = func(_, address string, _ syscall.RawConn) error { return g.check(address) }
	for _, t := range cfg.Trusted {
		u, err := url.Parse(t)
		if err != nil || u.Hostname() == "" {
			return nil, fmt.Errorf("dial: %q is no http or https address", t)
		}
		g.trusted[HostPort(u)] = true
	}
	for _, a := range cfg.Allow {
		if err := g.allow(a); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *Guard) allow(entry string) error {
	if p, err := netip.ParsePrefix(entry); err == nil {
		g.nets = append(g.nets, p.Masked())
		return nil
	}
	if a, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		a = a.Unmap().WithZone("")
		g.nets = append(g.nets, netip.PrefixFrom(a, a.BitLen()))
		return nil
	}
	if !validHost(entry) {
		return fmt.Errorf("dial: %q is no IP address, CIDR range or host name", entry)
	}
	g.hosts[canonical(entry)] = true
	return nil
}

// CheckAllow reports why an entry cannot stand in [Config.Allow].
func CheckAllow(entry string) error { return (&Guard{hosts: map[string]bool{}}).allow(entry) }

func validHost(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_', r > 127:
		default:
			return false
		}
	}
	return true
}

func canonical(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// HostPort is the host and port that a URL leads to, in one spelling.
func HostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(canonical(u.Hostname()), port)
}

// check refuses an address with a resolved IP that is not public and not allowed.
func (g *Guard) check(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial: %s: %w", address, ErrRefused)
	}
	ip := ap.Addr().Unmap().WithZone("")
	for _, n := range g.nets {
		if n.Contains(ip) {
			return nil
		}
	}
	if !Public(ip) {
		return fmt.Errorf("dial: %s: %w", ip, ErrRefused)
	}
	return nil
}

// DialContext connects to "host:port". An error that says [ErrRefused] means that every address the name resolves to
// is refused or failed.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := g.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return watch(ctx, c), nil
}

func (g *Guard) connect(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	host = canonical(host)
	if g.trusted[net.JoinHostPort(host, port)] || g.hosts[host] {
		return g.plain.DialContext(ctx, network, address)
	}
	return g.checked.DialContext(ctx, network, address)
}

// DialTLSContext connects and shakes hands, HTTP/1.1 only.
func (g *Guard) DialTLSContext(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := g.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	cfg := g.tls.Clone()
	if cfg == nil {
		cfg = &tls.Config{}
	}
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(address)
	}
	cfg.NextProtos = []string{"http/1.1"}
	ctx2, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(ctx2); err != nil {
		raw.Close()
		return nil, fmt.Errorf("dial: TLS handshake with %s: %w", address, err)
	}
	return watch(ctx, c), nil
}

// Transport is an HTTP transport on the guard that sends every request once at most. net/http sends a request again
// by itself when a kept connection turns out to be dead, also one with a body when it has an Idempotency-Key; and a
// request that meets a connection the server is just closing has an outcome that nobody knows. So every request has a
// connection of its own. Proxies of the environment are not used: the guard could not see behind them.
func (g *Guard) Transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: g.DialContext, DialTLSContext: g.DialTLSContext, Protocols: protocols,
		DisableKeepAlives: true, MaxResponseHeaderBytes: 1 << 20,
	}
}
