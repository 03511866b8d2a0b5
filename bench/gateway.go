package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ/admission"
	"writ/config"
	"writ/gateway"
	"writ/internal/mcpclient"
)

// blobServer is an MCP server over HTTP whose one tool answers with so many bytes at once.
func blobServer(b *testing.B, size int) string {
	s := mcp.NewServer(&mcp.Implementation{Name: "blob", Version: "1"}, nil)
	answer := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("0123456789abcdef", size/16)}}}
	s.AddTool(&mcp.Tool{Name: "blob", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return answer, nil
	})
	return serveMCP(b, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
}

func serveMCP(b *testing.B, h http.Handler) string {
	s := httptest.NewServer(h)
	b.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// gatewayTo puts a gateway in front of a server.
func gatewayTo(b *testing.B, open Opener, url string) string {
	b.Helper()
	cfg, report := config.Parse("bench.yaml", []byte(`
mcp: {services: {blob: {command: "true"}}}
surfaces: {as_consumer: {agents: {main: {tools: [{kind: mcp, server_id: blob, alias: blob, allowed: ["*"]}]}}}}
`), b.TempDir())
	if !report.OK() {
		b.Fatal(report.Err())
	}
	agent, err := cfg.Agent("")
	if err != nil {
		b.Fatal(err)
	}
	st := open(b)
	g, err := gateway.New(gateway.Config{Agent: agent, Store: st, Dir: b.TempDir(), Holder: "bench",
		Ledger:    admission.New(admission.Config{Store: st, Key: []byte("0123456789abcdef")}),
		Upstreams: []gateway.Upstream{{Connection: agent.Connections[0], Client: mcpclient.Config{URL: url}}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = g.Close() })
	return serveMCP(b, g.Handler(gateway.HTTP{Authenticate: func(*http.Request) (string, bool) { return "bench", true }}))
}

// Hop calls a tool that answers at once with size bytes: directly when open is nil, else through a gateway on that store.
// So many calls are always under way, in one session over HTTP. It reports p50-µs and p99-µs of a call.
func Hop(b *testing.B, open Opener, calls, size int) {
	url := blobServer(b, size)
	if open != nil {
		url = gatewayTo(b, open, url)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer cs.Close()
	one := func() time.Duration {
		began := time.Now()
		res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "blob"})
		if err != nil || res.IsError {
			b.Errorf("%+v, %v", res, err)
		}
		return time.Since(began)
	}
	for range 2 * calls { // connections are made
		one()
	}
	took := make([]time.Duration, b.N)
	next := make(chan int)
	var wg sync.WaitGroup
	b.ResetTimer()
	for range calls {
		wg.Go(func() {
			for i := range next {
				took[i] = one()
			}
		})
	}
	for i := range b.N {
		next <- i
	}
	close(next)
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
