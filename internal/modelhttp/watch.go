// Package modelhttp is what the model adapters share of HTTP: the three timeouts of a streamed call, and the sorting of
// a provider's errors into the classes that the runtime acts on.
package modelhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// Timeouts bound one call. Zero means the default; a negative value means no limit.
type Timeouts struct {
	// Connect bounds getting a connection: name, TCP and TLS. Default 10 s.
	Connect time.Duration
	// FirstByte bounds the time from the connection to the first byte of the answer's body: a model may think long
	// before it says anything. Default 5 min.
	FirstByte time.Duration
	// Idle bounds the wait for the next byte; comments and pings count, the time that the caller takes to use what
	// came does not. Default 3 min.
	Idle time.Duration
}

// Defaults of [Timeouts].
const (
	DefaultConnect   = 10 * time.Second
	DefaultFirstByte = 5 * time.Minute
	DefaultIdle      = 3 * time.Minute
)

const never = time.Duration(1<<63 - 1)

func (t Timeouts) filled() Timeouts {
	fill := func(d *time.Duration, def time.Duration) {
		switch {
		case *d == 0:
			*d = def
		case *d < 0:
			*d = never
		}
	}
	fill(&t.Connect, DefaultConnect)
	fill(&t.FirstByte, DefaultFirstByte)
	fill(&t.Idle, DefaultIdle)
	return t
}

// TimeoutError says which timeout ended a call. The provider may still be generating; nothing of it is used.
type TimeoutError struct {
	What  string // "connect", "first byte" or "idle"
	After time.Duration
}

// Error implements error.
func (e *TimeoutError) Error() string {
	switch e.What {
	case "connect":
		return fmt.Sprintf("no connection after %s", e.After)
	case "first byte":
		return fmt.Sprintf("no byte of the answer after %s", e.After)
	}
	return fmt.Sprintf("stalled: no byte for %s", e.After)
}

// Timeout implements net.Error's method.
func (e *TimeoutError) Timeout() bool { return true }

var errRedirect = errors.New("the server redirects; credentials are not sent to another address")

// Client returns a client whose calls keep the timeouts and follow no redirect. base gives the transport; nil means a
// new one of its own. Release closes the idle connections of a transport made here.
func Client(base *http.Client, t Timeouts) (c *http.Client, release func()) {
	release = func() {}
	var next http.RoundTripper
	if base != nil {
		next = base.Transport
	}
	if next == nil {
		tr := http.DefaultTransport.(*http.Transport).Clone()
		tr.DisableCompression = true // a compressed stream arrives in lumps
		next, release = tr, tr.CloseIdleConnections
	}
	refuse := func(*http.Request, []*http.Request) error { return errRedirect }
	return &http.Client{Transport: &transport{next: next, limits: t.filled()}, CheckRedirect: refuse}, release
}

type transport struct {
	next   http.RoundTripper
	limits Timeouts
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	d := &watchdog{cancel: cancel, limits: t.limits}
	d.arm("first byte", t.limits.FirstByte)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { d.arm("connect", t.limits.Connect) },
		GotConn: func(httptrace.GotConnInfo) { d.arm("first byte", t.limits.FirstByte) },
	})
	res, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		err = cause(ctx, err)
		d.end()
		return nil, err
	}
	res.Body = &body{ReadCloser: res.Body, dog: d, ctx: ctx}
	return res, nil
}

// cause prefers the timeout that cancelled the call to what the transport says of it.
func cause(ctx context.Context, err error) error {
	var te *TimeoutError
	if errors.As(context.Cause(ctx), &te) {
		return te
	}
	return err
}

// watchdog cancels the call when its present wait lasts too long.
type watchdog struct {
	cancel context.CancelCauseFunc
	limits Timeouts

	mu      sync.Mutex
	timer   *time.Timer
	what    string
	flowing bool // bytes have come: only idle from here on
}

// arm starts a wait that is not the idle one. The transport's hooks may come late; they change nothing then.
func (d *watchdog) arm(what string, limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flowing {
		return
	}
	d.what = what
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer = time.AfterFunc(limit, func() {
		d.mu.Lock()
		late := d.flowing || d.what != what
		d.mu.Unlock()
		if !late {
			d.cancel(&TimeoutError{What: what, After: limit})
		}
	})
}

// flow ends the wait for the first byte; from here on the timer runs while a read waits.
func (d *watchdog) flow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flowing = true
	d.timer.Stop()
	d.timer = time.AfterFunc(never, func() { d.cancel(&TimeoutError{What: "idle", After: d.limits.Idle}) })
	d.timer.Stop()
}

func (d *watchdog) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flowing = true
	d.timer.Stop()
	d.cancel(nil)
}

// body watches the reads of one answer. It is read by one goroutine.
type body struct {
	io.ReadCloser
	dog  *watchdog
	ctx  context.Context
	some bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.some {
		b.dog.timer.Reset(b.dog.limits.Idle)
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case b.some:
		b.dog.timer.Stop()
	case n > 0 || err != nil:
		b.some = true
		b.dog.flow()
	}
	if err != nil && err != io.EOF {
		err = cause(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.dog.end()
	return b.ReadCloser.Close()
}
