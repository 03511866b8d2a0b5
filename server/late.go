package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"writ"
	"writ/admission"
	"writ/store"
)

// late keeps an outcome that came after its invocation was over, if the action had been given up as unknown. It reports
// whether the outcome is kept; the same one again is.
func (s *Server) late(ctx context.Context, c caller, invocation, id string, o admission.Outcome) (bool, error) {
	row, err := s.cfg.Store.Action(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, s.broken("reading an action", err)
	case row.Turn != invocation || row.State != writ.Indeterminate || !s.says(row, o):
		return false, nil
	}
	switch _, err := s.ledger.Report(ctx, id, c.owner, o, nil); {
	case err == nil:
		return true, nil
	case errors.Is(err, admission.ErrInvalid), errors.Is(err, admission.ErrState):
		return false, nil
	case errors.Is(err, admission.ErrDone):
		return s.reported(ctx, id, o)
	default:
		return false, s.broken("keeping a late report", err)
	}
}

// says reports whether the outcome may be said of the action. The port checks this of an outcome in time; it is closed, so
// what the participant is bound to now counts.
func (s *Server) says(row store.Action, o admission.Outcome) bool {
	if o.Participant != row.Participant || o.Episode != row.Conversation || o.ActionID != row.ID || o.Contract != row.Contract ||
		o.Observation != row.Observation {
		return false
	}
	return !slices.ContainsFunc(o.Evidence, func(ref string) bool { return !s.declared(row, ref) })
}

func (s *Server) declared(row store.Action, ref string) bool {
	for _, p := range s.byName {
		if p.Participant != row.Participant || slices.Contains(p.Withheld, ref) {
			continue
		}
		for i := range p.Boundaries {
			if b := &p.Boundaries[i]; b.Address == row.Boundary && b.Declares(ref) {
				return true
			}
		}
	}
	return false
}

// reported reports whether the late report that is kept says the same.
func (s *Server) reported(ctx context.Context, id string, o admission.Outcome) (bool, error) {
	ops, err := s.cfg.Store.Operations(ctx, id)
	if err != nil {
		return false, s.broken("reading a late report", err)
	}
	for _, op := range ops {
		if op.Kind == store.OperationReport {
			d, ok := detail(op.Body)
			return ok && d.equal(o), nil
		}
	}
	return false, nil
}

// report is the body of a late report, as package admission writes it.
type report struct {
	Status       string   `json:"status"`
	Failure      string   `json:"failure_class"`
	Evidence     []string `json:"evidence_refs"`
	ResultDigest string   `json:"result_digest"`
}

func (d report) equal(o admission.Outcome) bool {
	status := string(o.State)
	if o.Status != "" {
		status = o.Status
	}
	return d.Status == status && d.Failure == o.Failure && d.ResultDigest == o.ResultDigest && slices.Equal(d.Evidence, o.Evidence)
}

func detail(body []byte) (d report, ok bool) {
	return d, json.Unmarshal(body, &d) == nil
}
