package server

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"writ"
	"writ/admission"
)

// ActionResult is the article's ParticipantActionResultModel. It has references and codes only: no argument, no result and
// no text of a tool. Only the status, the failure class and the evidence are kept.
type ActionResult struct {
	Status        string        `json:"status" doc:"succeeded, failed, partial_success or rejected; what is unknown is for report_unknown"`
	Participant   string        `json:"participant_address"`
	Episode       string        `json:"episode_id"`
	ActionID      string        `json:"action_instance_id"`
	Contract      string        `json:"action_contract_address"`
	Observation   string        `json:"observation_point"`
	Preconditions []Condition   `json:"preconditions,omitempty" nullable:"false"`
	Effects       []Condition   `json:"effects,omitempty" nullable:"false"`
	Failure       string        `json:"failure_class,omitempty" doc:"a code such as timeout, when not succeeded; a failure without one is tool_error"`
	Observations  []string      `json:"observations,omitempty" nullable:"false" doc:"references"`
	Measurements  []Measurement `json:"resource_measurements,omitempty" nullable:"false"`
	Evidence      []string      `json:"evidence_refs,omitempty" nullable:"false"`
	Diagnostics   []string      `json:"diagnostics,omitempty" nullable:"false" doc:"codes"`
}

// Condition is what is said of one precondition or effect of the contract.
type Condition struct {
	Ref      string   `json:"ref,omitempty"`
	Status   string   `json:"status,omitempty"`
	Evidence []string `json:"evidence_refs,omitempty" nullable:"false"`
}

// Measurement is what was used of a resource.
type Measurement struct {
	Ref      string  `json:"state_ref" doc:"each once"`
	Quantity float64 `json:"quantity,omitempty"`
}

// CompleteRequest settles a dispatched action.
type CompleteRequest struct {
	ActionID     string       `json:"action_instance_id"`
	Result       ActionResult `json:"result"`
	ResultDigest string       `json:"result_digest,omitempty" doc:"at most 256 bytes, for example sha256:…; kept as a keyed digest of itself"`
}

// Completed answers complete.
type Completed struct {
	Receipt
	Late bool `json:"late_report,omitempty" doc:"the action had been given up as unknown; the outcome is kept beside it and its state stays"`
}

const maxListed = 256

func (s *Server) complete(ctx context.Context, r *portInput[CompleteRequest]) (*out[Completed], error) {
	in, c, err := s.port(ctx, r.Authorization, r.ID)
	if err != nil {
		return nil, err
	}
	outcome := s.outcome(&r.Body)
	answer := Completed{Receipt: Receipt{Code: string(writ.CodeInvocationClosed)}}
	if in != nil {
		answer.Receipt = received(in.port.Complete(ctx, r.Body.ActionID, outcome, nil))
		s.settled(in)
	}
	if answer.Code == string(writ.CodeInvocationClosed) || answer.Code == string(writ.CodeStateConflict) {
		if answer.Late, err = s.late(ctx, c, r.ID, r.Body.ActionID, outcome); err != nil {
			return nil, err
		}
	}
	return &out[Completed]{answer}, nil
}

// outcome is what the port is told. A result that cannot be one becomes an outcome without a state, which no port accepts:
// so the port says what is wrong in its own order, and an action that it does not know is still action_unknown.
func (s *Server) outcome(r *CompleteRequest) admission.Outcome {
	m := &r.Result
	o := admission.Outcome{Failure: m.Failure, Evidence: m.evidence(), ResultDigest: s.keyed(r.ResultDigest),
		Participant: m.Participant, Episode: m.Episode, ActionID: m.ActionID, Contract: m.Contract, Observation: m.Observation}
	if !m.wellFormed() {
		return admission.Outcome{}
	}
	switch m.Status {
	case admission.StatusSucceeded:
		o.State = writ.Succeeded
	case admission.StatusFailed:
		o.State = writ.Failed
		if o.Failure == "" { // the article's own example gives none
			o.Failure = "tool_error"
		}
	case admission.StatusPartial, admission.StatusRejected:
		o.State, o.Status = writ.Failed, m.Status
		if o.Failure == "" {
			o.Failure = m.Status
		}
	}
	return o
}

// evidence is everything that the result names as evidence, each once.
func (m *ActionResult) evidence() []string {
	all := slices.Clone(m.Evidence)
	for _, c := range slices.Concat(m.Preconditions, m.Effects) {
		all = append(all, c.Evidence...)
	}
	var out []string
	for _, ref := range all {
		if !slices.Contains(out, ref) {
			out = append(out, ref)
		}
		if len(out) > maxListed {
			break // more than the ledger holds, which it says
		}
	}
	return out
}

// wellFormed reports whether the result has the shape of one: what it must repeat of the action is there, and the rest is
// references and codes.
func (m *ActionResult) wellFormed() bool {
	for _, s := range []string{m.Participant, m.Episode, m.ActionID, m.Contract, m.Observation} {
		if s == "" {
			return false
		}
	}
	refs := slices.Clone(m.Observations)
	for _, c := range slices.Concat(m.Preconditions, m.Effects) {
		refs = append(refs, c.Ref, c.Status)
	}
	var measured []string
	for _, x := range m.Measurements {
		if x.Ref == "" || slices.Contains(measured, x.Ref) {
			return false
		}
		measured = append(measured, x.Ref)
		if len(measured) > maxListed {
			return false
		}
	}
	for _, ref := range append(refs, measured...) {
		if len(ref) > maxObservation || !utf8.ValidString(ref) {
			return false
		}
	}
	return len(refs) <= 4*maxListed && len(m.Diagnostics) <= maxListed && !slices.ContainsFunc(m.Diagnostics, func(d string) bool { return !code(d) })
}

// code reports whether a diagnostic is a code and not a sentence.
func code(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	}) < 0
}

// keyed makes the ledger's own digest of a harness's digest: who has a copy of the ledger and not the tenant's key cannot
// test a guess against it. One that is too long stays, for the port to refuse.
func (s *Server) keyed(digest string) string {
	if digest == "" || len(digest) > maxID || !utf8.ValidString(digest) {
		return digest
	}
	return s.ledger.ResultDigest([]byte(digest))
}

func lastSegment(address string) string {
	return address[strings.LastIndexByte(address, '.')+1:]
}
