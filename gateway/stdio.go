package gateway

import (
	"context"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage bounds one message of a client.
const maxMessage = 32 << 20

// ServeStdio serves one client over a pair of streams: one session, until the client closes its end or ctx ends. It
// returns when the session's end is recorded.
func (g *Gateway) ServeStdio(ctx context.Context, in io.ReadCloser, out io.Writer, principal string) error {
	return g.Serve(ctx, &mcp.IOTransport{Reader: in, Writer: keepOpen{out}, MaxLineLength: maxMessage}, principal)
}

// Serve serves one client over a transport that lasts as long as its session.
func (g *Gateway) Serve(ctx context.Context, t mcp.Transport, principal string) error {
	ss, err := g.stateful.Connect(WithPrincipal(context.WithoutCancel(ctx), principal), tagging{t}, nil)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		g.mu.Lock()
		s := g.sessions[ss]
		g.mu.Unlock()
		if s != nil {
			s.end(context.Cause(ctx)) // the SDK waits for what runs
		}
		_ = ss.Close()
	})
	defer stop()
	err = ss.Wait()
	g.mu.Lock()
	s := g.sessions[ss]
	g.mu.Unlock()
	if s != nil {
		<-s.over
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// keepOpen is a writer that the transport cannot close: it is the process's.
type keepOpen struct{ io.Writer }

// Close implements io.Closer.
func (keepOpen) Close() error { return nil }
