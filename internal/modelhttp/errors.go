package modelhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"writ"
)

// Failure is what a provider said when it failed: the status of an answer without a stream, or an error event in one
// (status 0). Type and Code are the vendor's words.
type Failure struct {
	Status  int
	Type    string
	Code    string
	Message string
	Header  http.Header // of an answer without a stream
}

// maxMessage bounds what is kept of a provider's own words.
const maxMessage = 600

// ModelError sorts the failure. The key never stands in its message; a refused key's answer is not quoted at all,
// because vendors repeat parts of the key in it.
func (f Failure) ModelError(key string) *writ.ModelError {
	e := &writ.ModelError{Class: f.class(), RetryAfter: RetryAfter(f.Header, time.Now())}
	var head []string
	if f.Status != 0 {
		head = append(head, strconv.Itoa(f.Status))
	}
	for _, s := range []string{f.Type, f.Code} {
		if s != "" && (len(head) == 0 || head[len(head)-1] != s) {
			head = append(head, s)
		}
	}
	e.Message = strings.Join(head, " ")
	switch {
	case e.Class == writ.ErrorAuth && f.Status != http.StatusForbidden:
		e.Message += ": the provider refuses the key"
	case f.Message != "":
		e.Message += ": " + f.Message
	}
	e.Message = Scrub(strings.TrimPrefix(e.Message, ": "), key)
	if e.Message == "" {
		e.Message = "the provider failed and did not say why"
	}
	return e
}

// class goes by the vendor's words first: they are more exact than the status, and an error event has no status.
func (f Failure) class() writ.ErrorClass {
	if f.Status == 529 {
		return writ.ErrorOverloaded
	}
	for _, word := range []string{f.Code, f.Type} {
		if c, ok := words[strings.ToLower(word)]; ok {
			if c == writ.ErrorInvalid && f.tooLong() {
				return writ.ErrorContextLimit
			}
			return c
		}
	}
	switch s := f.Status; {
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return writ.ErrorAuth
	case s == http.StatusRequestTimeout:
		return writ.ErrorNetwork
	case s == http.StatusConflict, s == http.StatusTooEarly:
		return writ.ErrorOverloaded
	case s == http.StatusRequestEntityTooLarge:
		return writ.ErrorContextLimit
	case s == http.StatusTooManyRequests:
		return writ.ErrorRateLimit
	case f.tooLong():
		return writ.ErrorContextLimit
	case s >= 400 && s < 500:
		return writ.ErrorInvalid
	}
	return writ.ErrorInternal
}

// words are the error types and codes of Anthropic, OpenAI and the servers that speak like them. Routers also give a
// status as the code.
var words = map[string]writ.ErrorClass{
	"authentication_error": writ.ErrorAuth, "permission_error": writ.ErrorAuth, "invalid_api_key": writ.ErrorAuth, "401": writ.ErrorAuth, "403": writ.ErrorAuth,
	"rate_limit_error": writ.ErrorRateLimit, "rate_limit_exceeded": writ.ErrorRateLimit, "429": writ.ErrorRateLimit,
	"overloaded_error": writ.ErrorOverloaded, "server_is_overloaded": writ.ErrorOverloaded, "slow_down": writ.ErrorOverloaded, "529": writ.ErrorOverloaded, "503": writ.ErrorOverloaded,
	"context_length_exceeded": writ.ErrorContextLimit, "exceed_context_size_error": writ.ErrorContextLimit, "request_too_large": writ.ErrorContextLimit,
	"timeout_error": writ.ErrorNetwork, "408": writ.ErrorNetwork,
	"api_error": writ.ErrorInternal, "server_error": writ.ErrorInternal, "500": writ.ErrorInternal, "502": writ.ErrorInternal,
	"insufficient_quota": writ.ErrorInvalid, "billing_error": writ.ErrorInvalid, // a repeat fails too
	"invalid_request_error": writ.ErrorInvalid, "not_found_error": writ.ErrorInvalid, "model_not_found": writ.ErrorInvalid, "invalid_prompt": writ.ErrorInvalid, "400": writ.ErrorInvalid,
}

// tooLong knows a prompt that is too long by the words of the vendors that have no code for it: Anthropic, vLLM,
// llama.cpp and the routers. This is the one place that reads an error's text.
func (f Failure) tooLong() bool {
	if f.Status != 0 && (f.Status < 400 || f.Status >= 500) && f.Status != http.StatusOK {
		return false
	}
	m := strings.ToLower(f.Message)
	for _, s := range []string{"prompt is too long", "context limit", "maximum context length", "context window", "context size", "input is too long", "too many tokens"} {
		if strings.Contains(m, s) {
			return true
		}
	}
	return false
}

// RetryAfter reads how long a provider asks to wait: Retry-After-Ms, or Retry-After in seconds or as a date (RFC 9110
// §10.2.3). 0 means not said, or not understood.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if v, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil {
		return seconds(v / 1000)
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return seconds(s)
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// seconds keeps the wait within a day: a wrong header must not stop a turn for ever.
func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, 24*60*60) * float64(time.Second))
}

// Broken is the error of a call whose connection failed, stalled, or brought something that is no stream. The caller's
// own end of the call is no error of the provider: it comes back as it is.
func Broken(ctx context.Context, who, key string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: streaming: %w", who, context.Cause(ctx))
	}
	me := &writ.ModelError{Class: writ.ErrorNetwork, Message: Scrub(err.Error(), key)}
	var te *TimeoutError
	switch {
	case errors.As(err, &te):
		me.Message, me.Err = te.Error(), te
	case errors.Is(err, errRedirect):
		me.Class, me.Message = writ.ErrorInvalid, errRedirect.Error()
	}
	return me
}

// Unreadable is the error of a stream whose events are not what the protocol says.
func Unreadable(what, key string) *writ.ModelError {
	return &writ.ModelError{Class: writ.ErrorInternal, Message: Scrub("the stream cannot be read: "+what, key)}
}

var keyLike = regexp.MustCompile(`\b(sk|pk|key|Bearer)[-_ ][A-Za-z0-9*._-]{6,}`)

// Scrub makes a provider's words fit for a log: one line, bounded, and without the key or anything that looks like one.
func Scrub(s, key string) string {
	if key != "" {
		s = strings.ReplaceAll(s, key, "***")
	}
	s = keyLike.ReplaceAllString(s, "***")
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	if len(s) > maxMessage {
		n := maxMessage
		for !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return s
}
