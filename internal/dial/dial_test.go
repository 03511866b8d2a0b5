package dial

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"writ/internal/dial/dialtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPublic(t *testing.T) {
	for _, s := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.8.8.8", "169.254.169.254",
		"172.16.0.1", "172.31.255.255", "192.168.1.1", "192.0.0.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
		"255.255.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1",
		"::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "fec0::1", "100::1", "2001:db8::1", "2001::1",
		"2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1",
		"::127.0.0.1", "fd00:ec2::254",
	} {
		if Public(netip.MustParseAddr(s)) {
			t.Errorf("%s counts as public", s)
		}
	}
	for _, s := range []string{"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "169.253.1.1",
		"2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808"} {
		if !Public(netip.MustParseAddr(s)) {
			t.Errorf("%s counts as not public", s)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address counts as public")
	}
}

func listen(t *testing.T) (addr string, accepted *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = &atomic.Int32{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String(), accepted
}

func guard(t *testing.T, cfg Config) *Guard {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestOnlyTheConfigurationOpensPrivateAddresses(t *testing.T) {
	addr, accepted := listen(t)
	_, port, _ := net.SplitHostPort(addr)
	try := func(g *Guard, address string) error {
		c, err := g.DialContext(t.Context(), "tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	}
	for _, address := range []string{addr, "localhost:" + port, "[::ffff:127.0.0.1]:" + port, "0.0.0.0:" + port} {
		if err := try(guard(t, Config{Trusted: []string{"http://127.0.0.1:1", "http://localhost:1"}}), address); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if n := accepted.Load(); n != 0 {
		t.Fatalf("%d connections were made", n)
	}
	for name, g := range map[string]*Guard{
		"the address":  guard(t, Config{Trusted: []string{"http://" + addr + "/x"}}),
		"its range":    guard(t, Config{Allow: []string{"127.0.0.0/8"}}),
		"its IP":       guard(t, Config{Allow: []string{"127.0.0.1"}}),
		"mapped to v6": guard(t, Config{Allow: []string{"::ffff:127.0.0.1"}}),
	} {
		if err := try(g, addr); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := try(guard(t, Config{Allow: []string{"LocalHost."}}), "localhost:"+port); err != nil {
		t.Errorf("an allowed host: %v", err)
	}
	for _, bad := range []string{"", "a b", "10.0.0.0/99", "http://x"} {
		if _, err := New(Config{Allow: []string{bad}}); err == nil || CheckAllow(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := New(Config{Trusted: []string{"not an address"}}); err == nil {
		t.Error("a trusted address that is none")
	}
}

// TestRebinding: the name's address changes between any look and the connect; what is connected to is what is checked.
func TestRebinding(t *testing.T) {
	addr, accepted := listen(t)
	_, port, _ := net.SplitHostPort(addr)
	names := dialtest.New("127.0.0.1")
	g := guard(t, Config{Resolver: names.Resolver()})
	_, err := g.DialContext(t.Context(), "tcp", "rebind.example.com:"+port)
	if !errors.Is(err, ErrRefused) || accepted.Load() != 0 || names.Asked() == 0 {
		t.Errorf("%v, %d connections, %d questions", err, accepted.Load(), names.Asked())
	}
	g = guard(t, Config{Resolver: names.Resolver(), Trusted: []string{"http://rebind.example.com:" + port}})
	if c, err := g.DialContext(t.Context(), "tcp", "rebind.example.com:"+port); err != nil {
		t.Errorf("a host of the configuration: %v", err)
	} else {
		c.Close()
	}
}

// TestEveryRequestOnce: a server that hangs up in place of an answer sees each request once, whatever net/http thinks
// of its method, body and headers.
func TestEveryRequestOnce(t *testing.T) {
	var served atomic.Int32
	good := atomic.Bool{}
	good.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		if good.Load() {
			return
		}
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	}))
	defer server.Close()
	tr := guard(t, Config{Trusted: []string{server.URL}}).Transport()
	defer tr.CloseIdleConnections()
	do := func(method, body string) (bool, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		ctx, sent := Track(req.Context())
		resp, err := tr.RoundTrip(req.WithContext(ctx))
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return sent.Happened(), err
	}
	for range 3 { // connections that could be kept
		if sent, err := do("GET", ""); err != nil || !sent {
			t.Fatal(sent, err)
		}
	}
	good.Store(false)
	served.Store(0)
	for i, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} {
		sent, err := do(method, strings.Repeat("x", i))
		if err == nil || !sent {
			t.Errorf("%s: sent %v, %v", method, sent, err)
		}
		if n := int(served.Load()); n != i+1 {
			t.Errorf("%s: the server saw %d requests, want %d", method, n, i+1)
		}
	}
}

func TestSentIsExact(t *testing.T) {
	g := guard(t, Config{Allow: []string{"127.0.0.0/8"}})
	tr := g.Transport()
	try := func(address string) (bool, error) {
		ctx, sent := Track(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", address, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return sent.Happened(), err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	if sent, err := try("http://" + addr); err == nil || sent {
		t.Errorf("nobody listens: sent %v, %v", sent, err)
	}
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Config.ErrorLog = nil
	defer server.Close()
	if sent, err := try(server.URL); err == nil || sent {
		t.Errorf("a certificate that nobody knows: sent %v, %v", sent, err)
	}
	tls := server.Client().Transport.(*http.Transport).TLSClientConfig
	tr = guard(t, Config{Allow: []string{"127.0.0.0/8"}, TLS: tls}).Transport()
	if sent, err := try(server.URL); err != nil || !sent {
		t.Errorf("with the certificate: sent %v, %v", sent, err)
	}
}

func TestHostPort(t *testing.T) {
	for in, want := range map[string]string{"http://A.b/x": "a.b:80", "https://a": "a:443", "https://[::1]:8/": "[::1]:8", "http://a.:80": "a:80"} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := HostPort(u); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}
