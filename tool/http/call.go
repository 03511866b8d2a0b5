package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"writ"
	"writ/internal/dial"
)

const maxRedirects = 5

// Call implements [writ.Toolset]. Every request carries the call's key as Idempotency-Key.
func (t *Tools) Call(ctx context.Context, call writ.Call) (writ.Result, error) {
	if !t.enter() {
		return t.notStarted(call.Tool, errors.New("closed"))
	}
	defer t.wg.Done()
	op := t.ops[call.Tool]
	if op == nil {
		return writ.Result{}, fmt.Errorf("http: %q: calling %s: %w", t.cfg.Alias, call.Tool, writ.ErrVanished)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.life, func() { cancel(errors.New("closed")) })()
	if t.cfg.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, t.cfg.Timeout)
		defer stop()
	}
	if ctx.Err() != nil {
		return t.notStarted(call.Tool, context.Cause(ctx))
	}
	args := map[string]json.RawMessage{}
	if len(call.Params) > 0 {
		if err := json.Unmarshal(call.Params, &args); err != nil || args == nil {
			return t.notStarted(call.Tool, errors.New("the arguments are no JSON object"))
		}
	}
	shape, err := op.shape(args)
	if err != nil {
		return t.notStarted(call.Tool, err)
	}
	req, err := t.request(ctx, op, shape, call.IdempotencyKey)
	if err != nil {
		return t.notStarted(call.Tool, err)
	}
	res, sent, err := t.follow(req, op)
	switch {
	case err == nil:
		return res, nil
	case !sent:
		return t.notStarted(call.Tool, err)
	}
	return writ.Result{}, fmt.Errorf("http: %q: calling %s: the outcome is unknown: %w", t.cfg.Alias, call.Tool, err)
}

func (t *Tools) notStarted(tool string, err error) (writ.Result, error) {
	return writ.Result{}, fmt.Errorf("http: %q: calling %s: %w: %w", t.cfg.Alias, tool, writ.ErrNotStarted, err)
}

// request makes the one request of a call.
func (t *Tools) request(ctx context.Context, op *operation, s *shape, key string) (*http.Request, error) {
	text := t.base.url.String() + s.path
	if s.query != "" {
		text += "?" + s.query
	}
	req, err := http.NewRequestWithContext(ctx, op.method, text, nil)
	if err != nil {
		return nil, errors.New("the address cannot be put together") // the error would show all of it
	}
	if s.body != nil {
		req.Body, req.ContentLength = once{bytes.NewReader(s.body)}, int64(len(s.body))
		req.Header.Set("Content-Type", s.mime)
	}
	req.Header.Set("Accept", "application/json, text/plain;q=0.8, */*;q=0.5")
	req.Header.Set("User-Agent", "writ")
	if key != "" {
		if !validValue(key) {
			return nil, errors.New("the key of the call cannot be sent")
		}
		req.Header.Set("Idempotency-Key", key)
	}
	for _, h := range s.headers {
		req.Header.Set(h[0], h[1])
	}
	if len(s.cookies) > 0 {
		req.Header.Set("Cookie", strings.Join(s.cookies, "; "))
	}
	for name, value := range t.cfg.Headers {
		req.Header.Set(name, value)
	}
	return req, nil
}

// follow sends the request and, for a safe method, what it is redirected to. An error with sent false means that the
// service saw nothing.
func (t *Tools) follow(req *http.Request, op *operation) (res writ.Result, sent bool, err error) {
	for hops := 0; ; hops++ {
		resp, sent, err := t.once(req)
		switch {
		case err != nil && hops == 0:
			return res, sent, err
		case err != nil && !sent:
			return writ.ErrorResult("the service redirects to an address that is not reached: %v", err), true, nil
		case err != nil:
			return res, true, err
		}
		next, why := redirect(req, resp, op.safe, hops)
		if next == nil {
			res, err := t.result(op, resp, why)
			resp.Body.Close()
			return res, true, err
		}
		resp.Body.Close()
		req = next
	}
}

// once sends one request, once.
func (t *Tools) once(req *http.Request) (*http.Response, bool, error) {
	ctx, sent := dial.Track(req.Context())
	resp, err := t.send.RoundTrip(req.WithContext(ctx))
	if err == nil {
		return resp, true, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, sent.Happened(), err
}

// redirect is the next request of a redirected one, or nil and, where it matters, why there is none. The headers of
// the configuration stay with the address they were meant for.
func redirect(req *http.Request, resp *http.Response, safe bool, hops int) (*http.Request, string) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, ""
	}
	if !safe {
		return nil, "redirects of a call that may change something are not followed"
	}
	if hops == maxRedirects {
		return nil, fmt.Sprintf("it redirects more than %d times", maxRedirects)
	}
	to, err := req.URL.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" {
		return nil, "it redirects to no address"
	}
	if to.Scheme != "https" && (to.Scheme != "http" || req.URL.Scheme == "https") || to.Hostname() == "" || to.User != nil {
		return nil, "it redirects to an address that is not followed"
	}
	next := req.Clone(req.Context())
	next.URL, next.Host, next.Body, next.ContentLength = to, to.Host, nil, 0
	next.Header.Del("Content-Type")
	if origin(to) != origin(req.URL) {
		h := http.Header{}
		for _, name := range []string{"Accept", "User-Agent"} {
			h[name] = req.Header[name]
		}
		next.Header = h
	}
	return next, ""
}

// result reads the service's answer. An error means that it could not be read, so that not even the tool's own
// success is known.
func (t *Tools) result(op *operation, resp *http.Response, note string) (writ.Result, error) {
	status := statusText(resp)
	failed := resp.StatusCode >= 300 && resp.StatusCode != http.StatusSeeOther && resp.StatusCode != http.StatusNotModified
	limit := t.cfg.MaxBody
	if failed {
		limit = min(limit, maxErrorBody)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	cut := len(data) > limit
	if cut {
		data = data[:limit]
	}
	if !failed {
		switch {
		case err != nil:
			if c := context.Cause(resp.Request.Context()); c != nil {
				err = c
			}
			return writ.Result{}, fmt.Errorf("the service answered %s, but not to the end: %w", status, err)
		case cut:
			return writ.Result{}, fmt.Errorf("the service answered %s, but it could not be kept: it is too large (limit %d bytes)", status, limit)
		}
	}
	data = t.scrub(data)
	if !op.safe && (resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusGatewayTimeout) {
		// A gateway speaks, not the service: it may have acted and its answer got lost behind it.
		return writ.Result{}, fmt.Errorf("a gateway answered %s; the service behind it may have acted", status)
	}
	res := writ.Result{IsError: failed}
	head := status
	for _, h := range []string{"Location", "Retry-After"} {
		if v := resp.Header.Get(h); v != "" && validValue(v) {
			head += fmt.Sprintf("; %s: %.500s", h, t.scrub([]byte(v)))
		}
	}
	if note != "" {
		head += "; " + note
	}
	if failed || head != "HTTP 200 OK" || len(data) == 0 {
		res.Content = append(res.Content, writ.Content{Kind: writ.ContentText, Text: head})
	}
	if len(data) > 0 {
		res.Content = append(res.Content, content(resp.Header, data))
	}
	switch {
	case failed && (cut || err != nil):
		res.Content = append(res.Content, writ.Content{Kind: writ.ContentText, Text: "(the rest of this answer was left out)"})
	case !failed:
		if more := op.nextPage(resp, data); more != "" {
			res.Content = append(res.Content, writ.Content{Kind: writ.ContentText, Text: more})
		}
	}
	return res, nil
}

// maxErrorBody bounds what is kept of an answer that says that the call failed.
const maxErrorBody = 64 << 10

func statusText(resp *http.Response) string {
	s := fmt.Sprintf("HTTP %d", resp.StatusCode)
	if text := http.StatusText(resp.StatusCode); text != "" {
		s += " " + text
	}
	return s
}

// scrub takes the configured credentials out of what a service repeats.
func (t *Tools) scrub(data []byte) []byte {
	for _, s := range t.secrets {
		if bytes.Contains(data, s) {
			data = bytes.ReplaceAll(data, s, []byte("[redacted]"))
		}
	}
	return data
}

// nextPage says how to ask for the next page, where the answer says that there is one. It is not asked for here: how
// much is read is for the model and its budget.
func (o *operation) nextPage(resp *http.Response, data []byte) string {
	const more = "There is another page, which was not read"
	if next := linkNext(resp.Header.Values("Link")); next != "" {
		u, err := resp.Request.URL.Parse(next)
		if err != nil {
			return more + "."
		}
		if args := o.changed(u, resp.Request.URL); args != "" {
			return more + ": call again with " + args + "."
		}
		return more + "."
	}
	if key := cursorKey(resp.Header, data); key != "" {
		return more + ": see " + key + " in the answer."
	}
	return ""
}

// changed lists the query parameters of this operation that another address sets otherwise. Only those: an address
// may carry what is nobody's business.
func (o *operation) changed(to, from *url.URL) string {
	a, b := to.Query(), from.Query()
	var out []string
	for _, p := range o.params {
		if p.in != "query" {
			continue
		}
		if v := a.Get(p.name); v != "" && v != b.Get(p.name) && len(v) < 1_000 {
			out = append(out, fmt.Sprintf("%s = %q", p.key, v))
		}
	}
	return strings.Join(out, ", ")
}
