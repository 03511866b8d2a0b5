package server

import (
	"context"
	"time"

	"writ"
	"writ/admission"
)

// RenewRequest asks for more time.
type RenewRequest struct {
	Lease int `json:"lease_seconds,omitempty" doc:"from now: 1 to 3600, otherwise 300"`
}

type optionalInput[T any] struct {
	Authorization string `header:"Authorization" hidden:"true"`
	ID            string `path:"id" maxLength:"256"`
	Body          *T
}

// Renewed answers renew.
type Renewed struct {
	Receipt
	LeaseExpires *time.Time `json:"lease_expires_at,omitempty"`
}

// renew moves the end of the lease, never to sooner and never beyond the invocation's life. A lease that has ended does not
// come back.
func (s *Server) renew(ctx context.Context, r *optionalInput[RenewRequest]) (*out[Renewed], error) {
	in, _, err := s.port(ctx, r.Authorization, r.ID)
	if err != nil {
		return nil, err
	}
	body := RenewRequest{}
	if r.Body != nil {
		body = *r.Body
	}
	if f := (OpenRequest{Lease: body.Lease}).check(); f != nil {
		return nil, f
	}
	over := &out[Renewed]{Renewed{Receipt: Receipt{Code: string(writ.CodeInvocationClosed)}}}
	if !s.starts(in) {
		return over, nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	now := s.cfg.Now()
	if in.draining || in.closed || !now.Before(in.lease) {
		return over, nil
	}
	if next := now.Add(leaseOf(body.Lease)); next.After(in.lease) {
		in.lease = next
	}
	if in.lease.After(in.until) {
		in.lease = in.until
	}
	in.due = in.lease
	at := in.lease.UTC()
	return &out[Renewed]{Renewed{Receipt: Receipt{Accepted: true}, LeaseExpires: &at}}, nil
}

// CloseRequest says what became of the invocation. Without a status, or with one that is none, it has raised: the history
// of its actions is written and it has none of its own.
type CloseRequest struct {
	Status  string `json:"status,omitempty" doc:"succeeded, failed, partial_success or rejected"`
	Failure string `json:"failure_class,omitempty" doc:"a code such as timeout; needed unless succeeded"`
}

// Closed answers close, and the reading of an invocation.
type Closed struct {
	Invocation
	Operations []Operation `json:"operations" nullable:"false" doc:"its actions in the order of their admission"`
}

// close ends an invocation: what was never started is withheld, what was started and not settled is indeterminate, and the
// history is written. Closing again answers what there is.
func (s *Server) close(ctx context.Context, r *optionalInput[CloseRequest]) (*out[Closed], error) {
	in, _, err := s.port(ctx, r.Authorization, r.ID)
	if err != nil {
		return nil, err
	}
	if in != nil {
		if err := s.finish(ctx, in, r.Body); err != nil {
			return nil, s.broken("closing an invocation", err)
		}
	}
	return s.whole(ctx, r.ID)
}

func (s *Server) finish(ctx context.Context, in *invocation, body *CloseRequest) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil
	}
	in.ending = admission.Ending{}
	if body != nil {
		in.ending = admission.Ending{Status: body.Status, Failure: body.Failure}
	}
	return s.end(ctx, in)
}
