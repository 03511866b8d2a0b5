package server

import (
	"context"
	"net/http"
	"time"

	"writ"
	"writ/store"
)

type nothing struct{}

// Health says that the process answers.
type Health struct {
	Status string `json:"status"`
}

func (s *Server) healthz(context.Context, *nothing) (*out[Health], error) {
	return &out[Health]{Health{"ok"}}, nil
}

// Readiness says whether invocations can be opened, and what waits for a person.
type Readiness struct {
	Ready      bool       `json:"ready"`
	Unresolved int        `json:"unresolved_unknown" doc:"actions whose outcome is unknown and that nobody has resolved; counted to 1000"`
	Oldest     *time.Time `json:"oldest_dispatched_at,omitempty" doc:"of the actions that run"`
	Open       int        `json:"open_invocations"`
}

type readyOutput struct {
	Status int
	Body   Readiness
}

// mostCounted bounds what a request without a token makes the store read.
const mostCounted = 1000

// readyz fails when the store does not answer or the server is stopping. What is unknown does not make it fail: it is for
// a person, and another process would not know more.
func (s *Server) readyz(ctx context.Context, _ *nothing) (*readyOutput, error) {
	answer := &readyOutput{Status: http.StatusOK, Body: Readiness{Ready: !s.live.draining(), Open: len(s.live.all())}}
	unknown, err := s.cfg.Store.Actions(ctx, store.ActionFilter{Unresolved: true, Page: &store.ActionCursor{Limit: mostCounted}})
	if err == nil {
		var running []store.Action
		running, err = s.cfg.Store.Actions(ctx, store.ActionFilter{States: []writ.ActionState{writ.Dispatched}, Page: &store.ActionCursor{Limit: mostCounted}})
		for _, row := range running {
			if at := row.DispatchedAt.UTC(); answer.Body.Oldest == nil || at.Before(*answer.Body.Oldest) {
				answer.Body.Oldest = &at
			}
		}
	}
	answer.Body.Unresolved = len(unknown)
	if err != nil {
		s.cfg.Log.Error("the store does not answer", "error", err)
		answer.Body.Ready = false
	}
	if !answer.Body.Ready {
		answer.Status = http.StatusServiceUnavailable
	}
	return answer, nil
}
