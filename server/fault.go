package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Fault is an HTTP error: a request that never reached the port, or could not be answered.
type Fault struct {
	status  int
	Code    string `json:"code" doc:"stable name of what is wrong"`
	Message string `json:"message" doc:"what happened, for a person"`
	Hint    string `json:"hint,omitempty" doc:"what to do"`
}

// Error implements error.
func (f *Fault) Error() string { return f.Message }

// GetStatus implements huma.StatusError.
func (f *Fault) GetStatus() int { return f.status }

// GetHeaders implements huma.HeadersError.
func (f *Fault) GetHeaders() http.Header {
	h := http.Header{}
	switch f.Code {
	case FaultToken:
		h.Set("WWW-Authenticate", "Bearer")
	case FaultTooMany, FaultUnavailable, FaultShuttingDown:
		h.Set("Retry-After", "5")
	}
	return h
}

// Codes of faults. docs/http.md is their table.
const (
	FaultRequest      = "bad_request"
	FaultToken        = "unauthenticated"
	FaultForbidden    = "forbidden"
	FaultNotFound     = "not_found"
	FaultMethod       = "method_not_allowed"
	FaultTimeout      = "request_timeout"
	FaultBusy         = "episode_busy"
	FaultKey          = "idempotency_conflict"
	FaultTooLarge     = "too_large"
	FaultMedia        = "unsupported_media_type"
	FaultTooMany      = "too_many_open"
	FaultInternal     = "internal"
	FaultUnavailable  = "unavailable"
	FaultShuttingDown = "shutting_down"
)

// FaultCode is one code with its HTTP status.
type FaultCode struct {
	Code   string
	Status int
}

// Faults lists the codes in the order of their document.
func Faults() []FaultCode {
	return []FaultCode{{FaultRequest, 400}, {FaultToken, 401}, {FaultForbidden, 403}, {FaultNotFound, 404}, {FaultMethod, 405},
		{FaultTimeout, 408}, {FaultBusy, 409}, {FaultKey, 409}, {FaultTooLarge, 413}, {FaultMedia, 415}, {FaultTooMany, 429},
		{FaultInternal, 500}, {FaultUnavailable, 503}, {FaultShuttingDown, 503}}
}

func fault(code, hint, format string, args ...any) *Fault {
	f := &Fault{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}
	for _, c := range Faults() {
		if c.Code == code {
			f.status = c.Status
		}
	}
	return f
}

// absent is the one answer for what does not exist and for what the token may not see.
func absent(what string) *Fault {
	return fault(FaultNotFound, "", "there is no such %s, or this token may not see it", what)
}

// init gives the errors that huma makes itself (a body that is too large, a parameter of another type) the one shape of
// errors. This variable is its only way to do so, and no other package of the module uses it.
func init() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		f := &Fault{status: status, Code: FaultInternal, Message: "the request could not be answered"}
		switch {
		case status == http.StatusRequestEntityTooLarge:
			return fault(FaultTooLarge, "", "the body has more than %d bytes", maxBody)
		case status == http.StatusRequestTimeout:
			return fault(FaultTimeout, "", "the body did not come in time")
		case status >= 400 && status < 500:
			return fault(FaultRequest, "", "%s", describe(msg, errs))
		case msg == "cannot read request body":
			return fault(FaultRequest, "", "the body could not be read")
		}
		return f
	}
}

// describe tells what is wrong with a request by place and rule, never by value: there may be a token in it.
func describe(msg string, errs []error) string {
	var said []string
	for _, err := range errs {
		var d *huma.ErrorDetail
		switch {
		case !errors.As(err, &d):
		case d.Location == "" || d.Location == "body":
			said = append(said, d.Message)
		default:
			said = append(said, d.Location+": "+d.Message)
		}
	}
	if len(said) == 0 {
		return msg
	}
	return strings.Join(said, "; ")
}
