package mcpclient

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Backoff of the stream of notices.
const (
	minNoticeDelay = time.Second
	maxNoticeDelay = 30 * time.Second
)

// notices is the stream on which a server of an older protocol tells of changes. The SDK waits for its headers while
// it connects, and gives the session up when it breaks a few times; so it gets one that begins at once and never ends,
// behind which the real one comes, goes and comes again.
type notices struct {
	remote *remote
	req    *http.Request
	ctx    context.Context
	cancel context.CancelFunc
	once   sync.Once

	cur   *stream
	last  string
	retry time.Duration // asked for by the server
	tried sync.Once     // the first try has an end, good or bad
	delay time.Duration // before the next try; 0 = at once
}

func (r *remote) notices(req *http.Request) *http.Response {
	ctx, cancel := context.WithCancel(req.Context())
	r.hold(1)
	r.mu.Lock()
	if r.first == nil {
		r.first = make(chan struct{})
	}
	r.mu.Unlock()
	stop := context.AfterFunc(r.calls, cancel)
	n := &notices{remote: r, req: req, ctx: ctx, cancel: func() { stop(); cancel() }}
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: n, ContentLength: -1, Request: req}
}

// Read implements io.Reader.
func (n *notices) Read(p []byte) (int, error) {
	for {
		if n.ctx.Err() != nil {
			return 0, io.EOF
		}
		if n.cur == nil && !n.open() {
			continue
		}
		got, err := n.cur.Read(p)
		if got > 0 {
			n.delay = 0
			return got, nil
		}
		if err != nil {
			n.lose()
		}
	}
}

// lose notes that the stream broke, and how long to wait for another.
func (n *notices) lose() {
	if n.cur.last != "" {
		n.last = n.cur.last
	}
	if ms, err := strconv.Atoi(n.cur.retry); err == nil {
		n.retry = min(time.Duration(ms)*time.Millisecond, maxNoticeDelay)
	}
	n.cur.Close()
	n.cur = nil
	n.remote.hears(false)
	n.backOff()
}

func (n *notices) backOff() {
	n.delay = min(max(2*n.delay, minNoticeDelay, n.retry), maxNoticeDelay)
}

// open makes one try, after its delay. A server that has no such stream is left alone: the rest of the session works
// without.
func (n *notices) open() bool {
	if n.delay > 0 {
		t := time.NewTimer(n.delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-n.ctx.Done():
			return false
		}
	}
	req := n.req.Clone(n.ctx)
	if n.last != "" {
		req.Header.Set("Last-Event-ID", n.last)
	}
	defer n.tried.Do(n.remote.triedNotices)
	resp, err := n.remote.send(req, 0)
	if err != nil {
		n.backOff()
		return false
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode/100 == 2 && kind == "text/event-stream" {
		n.remote.hears(true)
		n.cur = &stream{remote: n.remote, body: resp.Body, in: newEvents(resp.Body, n.remote.cfg.MaxResult)}
		return true
	}
	n.tried.Do(n.remote.triedNotices)
	resp.Body.Close()
	if resp.StatusCode/100 == 5 || resp.StatusCode == http.StatusTooManyRequests {
		n.backOff()
		return false
	}
	<-n.ctx.Done()
	return false
}

// triedNotices says that the stream of notices is open, or that there will be none for now.
func (r *remote) triedNotices() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.first:
	default:
		close(r.first)
	}
}

// maxHearing bounds the wait for a server that answers the request for notices only once it has one.
const maxHearing = time.Second

// hearing waits until the stream of notices is open, or it is known that it is not: what the server tells before is lost.
func (r *remote) hearing(ctx context.Context) {
	r.mu.Lock()
	first := r.first
	r.mu.Unlock()
	if first == nil {
		return
	}
	t := time.NewTimer(min(r.cfg.ConnectTimeout, maxHearing))
	defer t.Stop()
	select {
	case <-first:
	case <-r.over:
	case <-t.C:
	case <-ctx.Done():
	}
}

// Close implements io.Closer.
func (n *notices) Close() error {
	n.cancel()
	n.once.Do(func() { n.remote.hold(-1) })
	return nil
}
