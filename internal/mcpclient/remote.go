package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ/internal/dial"
)

// remote is the link to a server over streamable HTTP. The SDK's transport speaks the protocol; remote stands under it
// as its round tripper, because it must know what was sent, must keep the answers as they came, and must not let one
// bad answer, slow stream or odd status end the session of all other calls.
type remote struct {
	exchanges
	cfg  *Config
	log  *slog.Logger
	base http.RoundTripper
	lost func()                                           // a change of the tools may not have been heard of
	hear func(jsonrpc.Message, *exchange) jsonrpc.Message // takes every message that is no answer, as it is read

	calls context.Context // of every request but the farewell
	end   context.CancelCauseFunc

	over     chan struct{} // closed when the session is
	overOnce sync.Once
	stopOnce sync.Once

	mu        sync.Mutex
	sess      *mcp.ClientSession
	why       string                       // how it ended
	orderly   bool                         // in good order
	last      time.Time                    // of the last good answer
	suspect   bool                         // something failed since
	listening bool                         // a stream of notices is open
	refused   string                       // why the handshake failed
	first     chan struct{}                // closed when the stream of notices was tried for the first time; nil before it is wanted
	open      int                          // the watcher and the open bodies
	calling   int                          // requests whose outcome matters
	quiet     *sync.Cond                   // one of the two is 0
	cancels   map[jsonrpc.ID]chan struct{} // requests whose cancellation is under way, or has been sent: then closed
}

// checkRemote fails for what could never be reached.
func checkRemote(cfg *Config) error {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil:
		return errors.New("the URL cannot be parsed") // the error would show all of it
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("%.200q is no http:// or https:// address", u.Redacted())
	case u.User != nil:
		return errors.New("the URL has credentials in it (hint: put them into headers)")
	}
	for name, value := range cfg.Headers {
		if !validHeader(name, value) {
			return fmt.Errorf("the header %.60q or its value cannot be sent", name)
		}
	}
	return nil
}

func validHeader(name, value string) bool {
	for _, r := range name {
		if r <= ' ' || r >= 127 || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r) {
			return false
		}
	}
	switch http.CanonicalHeaderKey(name) {
	case "", "Host", "Content-Length", "Transfer-Encoding", "Connection", "Content-Type", "Accept", "Mcp-Session-Id", "Last-Event-Id", "Mcp-Protocol-Version":
		return false
	}
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 127 })
}

func newRemote(life context.Context, cfg *Config, log *slog.Logger, lost func(), hear func(jsonrpc.Message, *exchange) jsonrpc.Message) (*remote, error) {
	guard, err := dial.New(dial.Config{Trusted: []string{cfg.URL}, TLS: cfg.TLS, Timeout: cfg.ConnectTimeout})
	if err != nil {
		return nil, err
	}
	r := &remote{cfg: cfg, log: log, base: guard.Transport(), lost: lost, hear: hear, over: make(chan struct{}), last: time.Now()}
	r.calls, r.end = context.WithCancelCause(life)
	r.quiet = sync.NewCond(&r.mu)
	return r, nil
}

func (r *remote) transport() mcp.Transport {
	client := &http.Client{Transport: r, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &mcp.StreamableClientTransport{Endpoint: r.cfg.URL, HTTPClient: client, MaxRetries: 3, MaxEventSize: -1}
}

func (r *remote) attach(s *mcp.ClientSession) {
	r.mu.Lock()
	r.sess = s
	r.mu.Unlock()
	r.hold(1)
	go func() {
		defer r.hold(-1)
		_ = s.Wait()
		r.finished("its session ended", false)
	}()
}

// hold counts what finish waits for.
func (r *remote) hold(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open += n; r.open == 0 {
		r.quiet.Broadcast()
	}
}

// bind gives a request the end of the session as its own.
func (r *remote) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	r.mu.Lock()
	r.calling++
	r.mu.Unlock()
	ctx, cancel := r.within(ctx)
	return ctx, func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.calling--; r.calling == 0 {
			r.quiet.Broadcast()
		}
	}
}

func (r *remote) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.calls, func() { cancel(context.Cause(r.calls)) })
	return ctx, func() { stop(); cancel(nil) }
}

// finished ends the session's use, once.
func (r *remote) finished(why string, orderly bool) {
	r.overOnce.Do(func() {
		r.mu.Lock()
		r.why, r.orderly = why, orderly
		r.mu.Unlock()
		close(r.over)
	})
}

func (r *remote) dead() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// await also lets the calls end that a session given up still has in flight: they may yet be answered.
func (r *remote) await() {
	<-r.over
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.calling > 0 {
		r.quiet.Wait()
	}
}

func (r *remote) pid() int        { return 0 }
func (r *remote) drop(why string) { r.finished(why, true) }

func (r *remote) clean() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.orderly
}

func (r *remote) state() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// doubtful is a session that was silent for long or saw something fail. Without a session there is nothing to expire.
func (r *remote) doubtful() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sess != nil && r.sess.ID() != "" && (r.suspect || time.Since(r.last) > r.cfg.IdleCheck)
}

func (r *remote) deaf() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.listening
}

// hears notes whether a stream of notices is open. When one ends, something may be missed until the next is.
func (r *remote) hears(v bool) {
	r.mu.Lock()
	had := r.listening
	r.listening = v
	r.mu.Unlock()
	if had && !v {
		r.lost()
	}
}

func (r *remote) judge(good bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.suspect = !good; good {
		r.last = time.Now()
	}
}

func (r *remote) failed(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused != "" {
		return fmt.Errorf("handshake: %s", r.refused)
	}
	return fmt.Errorf("handshake: %w", err)
}

// stop ends calls in flight, says farewell and waits for both, no longer than the grace.
func (r *remote) stop(time.Duration) error {
	r.stopOnce.Do(func() {
		r.finished("closed", true)
		r.end(errors.New("the connection was closed"))
		r.mu.Lock()
		s := r.sess
		r.mu.Unlock()
		if s != nil {
			_ = s.Close()
		}
	})
	return nil
}

func (r *remote) finish(*mcp.ClientSession) {
	r.mu.Lock()
	for r.open > 0 {
		r.quiet.Wait()
	}
	r.mu.Unlock()
	if t, ok := r.base.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// message is what must be known of an outgoing JSON-RPC message.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
}

// RoundTrip implements [http.RoundTripper] for the SDK's transport.
func (r *remote) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, value := range r.cfg.Headers {
		req.Header.Set(name, value)
	}
	x, _ := req.Context().Value(exchangeKey{}).(*exchange)
	switch {
	case req.Method == http.MethodDelete:
		return r.farewell(req)
	case req.Method == http.MethodGet && x == nil:
		return r.notices(req), nil
	case req.Method == http.MethodGet:
		return r.resume(req, x)
	}
	var msg message
	if req.GetBody != nil {
		if b, err := req.GetBody(); err == nil {
			_ = json.NewDecoder(b).Decode(&msg)
			b.Close()
		}
	}
	if x != nil && len(msg.ID) > 0 && msg.Method != "" {
		return r.call(req, x, msg)
	}
	return r.other(req, msg)
}

// send sends one request, once, within the session's life. patience bounds the wait for the headers; 0 = the
// request's own context.
func (r *remote) send(req *http.Request, patience time.Duration) (*http.Response, error) {
	bound, unbind := r.within(req.Context())
	ctx, cancel := context.WithCancelCause(bound)
	release := func() { cancel(nil); unbind() }
	if patience > 0 {
		t := time.AfterFunc(patience, func() { cancel(fmt.Errorf("no answer within %v", patience)) })
		defer t.Stop()
	}
	resp, err := r.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		release()
		return nil, err
	}
	r.hold(1)
	body := &held{ReadCloser: resp.Body, release: func() { release(); r.hold(-1) }}
	context.AfterFunc(ctx, func() { body.Close() }) // nobody has to remember it
	resp.Body = body
	return resp, nil
}

// held is a body whose request is released once, when it is closed.
type held struct {
	io.ReadCloser
	once    sync.Once
	release func()
}

// Close implements io.Closer.
func (h *held) Close() error {
	err := h.ReadCloser.Close()
	h.once.Do(h.release)
	return err
}

// farewell ends the session at the server, for no longer than the grace, whatever else has ended.
func (r *remote) farewell(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), r.cfg.Grace)
	defer cancel()
	resp, err := r.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	resp.Body = http.NoBody
	return resp, nil
}

// call sends a request whose outcome matters. It notes all that is to be known of it, and hands the SDK an answer that
// it can always read.
func (r *remote) call(req *http.Request, x *exchange, msg message) (*http.Response, error) {
	id, err := makeID(msg.ID)
	if err != nil {
		return nil, err
	}
	r.expect(id, x)
	ctx, sent := dial.Track(req.Context())
	x.setSent(true)
	resp, err := r.send(req.WithContext(ctx), 0)
	if err != nil {
		x.setSent(sent.Happened())
		x.note(func(o *outcome) { o.lost = err.Error() })
		r.judge(false)
		return nil, err
	}
	status := statusOf(resp)
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusNotFound && req.Header.Get("Mcp-Session-Id") != "":
		x.note(func(o *outcome) { o.answered, o.expired = true, true })
		r.finished("the server has ended the session", true)
		return r.synthetic(resp, r.dismiss(id, "the session has ended")), nil
	case resp.StatusCode/100 == 2 && kind == "text/event-stream":
		resp.Body = &stream{remote: r, body: resp.Body, in: newEvents(resp.Body, r.cfg.MaxResult), x: x}
		return resp, nil
	case resp.StatusCode/100 == 2 && kind == "application/json":
		return r.whole(resp, x, id), nil
	}
	return r.turnedAway(resp, x, id, status, kind), nil
}

// whole reads an answer that is one JSON message.
func (r *remote) whole(resp *http.Response, x *exchange, id jsonrpc.ID) *http.Response {
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(r.cfg.MaxResult)+1))
	var scan scanner
	if err == nil && len(data) <= r.cfg.MaxResult {
		scan.feed(data)
	}
	lost := func(why string) *http.Response {
		x.note(func(o *outcome) { o.lost = why })
		r.judge(false)
		return r.synthetic(resp, r.dismiss(id, why))
	}
	switch {
	case err != nil:
		if c := context.Cause(resp.Request.Context()); c != nil {
			err = c
		}
		return lost("the server's answer was cut off: " + err.Error())
	case len(data) > r.cfg.MaxResult:
		return r.synthetic(resp, r.unreadable(id, "the answer is too large"))
	case scan.deepest > maxDepth:
		return r.synthetic(resp, r.unreadable(id, "the answer is nested too deeply"))
	}
	msg, err := jsonrpc.DecodeMessage(data)
	answer, ok := msg.(*jsonrpc.Response)
	if err != nil || !ok || answer.ID != id {
		return lost(fmt.Sprintf("the server's answer is no answer to this request: %.200q", data))
	}
	r.judge(true)
	return r.synthetic(resp, r.receive(answer, ""))
}

// turnedAway reads an answer that is neither a result nor a stream. A JSON-RPC error is the server's own word whatever
// the status. Else 3xx and 4xx say that the request was not taken; 5xx, which often comes from something between, and
// a success that is no message, say nothing of what happened.
func (r *remote) turnedAway(resp *http.Response, x *exchange, id jsonrpc.ID, status, kind string) *http.Response {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	r.judge(false)
	// Servers that turn a request away before they read it do not know its id.
	var said struct{ Error *jsonrpc.Error }
	if resp.StatusCode/100 != 2 && json.Unmarshal(data, &said) == nil && said.Error != nil && said.Error.Message != "" {
		return r.synthetic(resp, r.receive(&jsonrpc.Response{ID: id, Error: said.Error}, ""))
	}
	switch resp.StatusCode / 100 {
	case 2:
		status += fmt.Sprintf(", but with %.60q, which is no message", kind)
		x.note(func(o *outcome) { o.lost = "the server answered " + status })
	case 5:
		x.note(func(o *outcome) { o.lost = "the server answered " + status })
	default:
		status += redirected(resp)
		x.note(func(o *outcome) { o.answered, o.refused = true, status })
	}
	return r.synthetic(resp, r.dismiss(id, status))
}

// dismiss is an error for the SDK that leaves the exchange as it is.
func (r *remote) dismiss(id jsonrpc.ID, why string) *jsonrpc.Response {
	r.exchanges.mu.Lock()
	delete(r.pending, id)
	r.exchanges.mu.Unlock()
	return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: why}}
}

// synthetic replaces a response by one that carries the message.
func (r *remote) synthetic(resp *http.Response, msg *jsonrpc.Response) *http.Response {
	resp.Body.Close()
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		data = []byte(`{}`)
	}
	resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	resp.Header = resp.Header.Clone()
	resp.Header.Set("Content-Type", "application/json")
	resp.Header.Del("Content-Length")
	resp.ContentLength = int64(len(data))
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp
}

// resume asks for the rest of a call's stream. It repeats nothing: the call stays the one that was sent.
func (r *remote) resume(req *http.Request, x *exchange) (*http.Response, error) {
	broken := func(why string) error {
		why = "the connection was lost, and the call could not be continued: " + why
		x.note(func(o *outcome) { o.lost = why })
		r.judge(false)
		return errors.New(why)
	}
	resp, err := r.send(req, r.cfg.ConnectTimeout)
	if err != nil {
		return nil, broken(err.Error()) // the SDK tries again
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode/100 == 2 && kind == "text/event-stream" {
		resp.Body = &stream{remote: r, body: resp.Body, in: newEvents(resp.Body, r.cfg.MaxResult), x: x}
		return resp, nil
	}
	if resp.StatusCode/100 == 5 {
		resp.Body.Close()
		return nil, broken(statusOf(resp))
	}
	data, err := jsonrpc.EncodeMessage(r.dismiss(x.id, broken(statusOf(resp)).Error()))
	if err != nil {
		data = []byte(`{}`)
	}
	resp.Body.Close()
	resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	resp.Header = http.Header{"Content-Type": {"text/event-stream"}}
	resp.Body = io.NopCloser(strings.NewReader("data: " + string(data) + "\n\n"))
	return resp, nil
}

// other sends handshakes, notifications and replies. A notification that is not taken is nobody's end; only a session
// that is gone is.
func (r *remote) other(req *http.Request, msg message) (*http.Response, error) {
	handshake := func(why string) {
		if len(msg.ID) > 0 && msg.Method != "" {
			r.mu.Lock()
			r.refused = why
			r.mu.Unlock()
		}
	}
	handshake("")
	resp, err := r.send(req, r.cfg.ConnectTimeout)
	if msg.Method == "notifications/cancelled" {
		if id, iderr := makeID(msg.Params.RequestID); iderr == nil {
			r.cancelled(id)
		}
	}
	if err != nil {
		handshake(err.Error()) // the SDK's error has the whole address in it
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusNotFound && req.Header.Get("Mcp-Session-Id") != "" && msg.Method != "server/discover":
		r.finished("the server has ended the session", true)
	case len(msg.ID) == 0 || msg.Method == "":
		if resp.StatusCode != http.StatusAccepted && resp.StatusCode != http.StatusNoContent {
			r.log.Debug("the server did not take a notification", "status", statusOf(resp))
			resp.StatusCode, resp.Status = http.StatusAccepted, "202 Accepted"
		}
	case resp.StatusCode/100 == 2 && kind == "text/event-stream":
		listen := msg.Method == "subscriptions/listen"
		if listen {
			r.hears(true)
		}
		resp.Body = &stream{remote: r, body: resp.Body, in: newEvents(resp.Body, r.cfg.MaxResult), listen: listen}
		return resp, nil
	case resp.StatusCode >= 300:
		handshake(statusOf(resp) + redirected(resp))
	}
	resp.Body = &limited{resp.Body, int64(r.cfg.MaxResult)}
	return resp, nil
}

// limited fails when more is read than a message may have.
type limited struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errors.New("the answer is too large")
	}
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

func statusOf(resp *http.Response) string {
	s := fmt.Sprintf("HTTP %d", resp.StatusCode)
	if text := http.StatusText(resp.StatusCode); text != "" {
		s += " " + text
	}
	return s
}

func redirected(resp *http.Response) string {
	if resp.StatusCode/100 != 3 || resp.Header.Get("Location") == "" {
		return ""
	}
	return " (redirects are not followed; if it is right, configure the address it redirects to)"
}

func makeID(raw json.RawMessage) (jsonrpc.ID, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return jsonrpc.ID{}, err
	}
	return jsonrpc.MakeID(v)
}
