package server

import (
	"context"
	"time"

	"writ"
	"writ/admission"
)

// AdmitRequest asks for one tool action: the article's eleven fields, and a digest of the arguments.
type AdmitRequest struct {
	ToolCallID     string   `json:"tool_call_id" doc:"1 to 256 bytes; the same again with the same request answers the same"`
	Invocation     string   `json:"invocation_action_instance_id"`
	Participant    string   `json:"participant_address"`
	Episode        string   `json:"episode_id"`
	Implementation string   `json:"participant_implementation_ref"`
	Affordance     string   `json:"tool_affordance_address"`
	Contract       string   `json:"action_contract_address"`
	Boundary       string   `json:"observation_boundary_address"`
	Targets        []string `json:"target_addresses" nullable:"false"`
	Scope          string   `json:"execution_scope_ref"`
	Generation     int64    `json:"execution_generation"`
	ArgumentDigest string   `json:"argument_digest,omitempty" doc:"at most 256 bytes, for example sha256:…; kept as a keyed digest of itself"`
}

// ActionRequest names an action, with the reason where there is one.
type ActionRequest struct {
	ActionID string `json:"action_instance_id"`
	Reason   string `json:"reason,omitempty" doc:"a failure class such as timeout; report_unknown needs one"`
}

// Decision answers admit.
type Decision struct {
	Admitted bool   `json:"admitted"`
	Refusal  string `json:"refusal,omitempty" doc:"a fixed code; do not run the tool"`
	ActionID string `json:"action_instance_id,omitempty"`
	Held     bool   `json:"held,omitempty" doc:"it waits for an approval; until then dispatch answers approval_required"`
}

// Receipt answers every other method of the port.
type Receipt struct {
	Accepted bool   `json:"accepted"`
	Code     string `json:"code,omitempty" doc:"a fixed code, when it was not accepted"`
}

// Grant answers dispatch. Accepted, it is the one permission to start the effect.
type Grant struct {
	Receipt
	Key         string     `json:"idempotency_key,omitempty" doc:"of the action, for its life: hand it to the tool"`
	StartWithin int        `json:"start_within_seconds,omitempty" doc:"start the effect within this time, or report the action as failed"`
	Overdue     *time.Time `json:"outcome_due_at,omitempty" doc:"an invocation whose lease is over waits for the outcome until then"`
}

type portInput[T any] struct {
	Authorization string `header:"Authorization" hidden:"true"`
	ID            string `path:"id" maxLength:"256"`
	Body          T
}

// port finds the open port of a request; nil for an invocation that is over.
func (s *Server) port(ctx context.Context, authorization, id string) (*invocation, caller, error) {
	c, err := s.holder(ctx, authorization, id)
	if err != nil {
		return nil, c, err
	}
	return s.live.find(id), c, nil
}

// starts is the invocation if it may still admit and dispatch: the lease counts, whether or not the keeper has seen it end.
func (s *Server) starts(in *invocation) bool {
	if in == nil {
		return false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return s.cfg.Now().Before(in.lease)
}

func (s *Server) admit(ctx context.Context, r *portInput[AdmitRequest]) (*out[Decision], error) {
	in, _, err := s.port(ctx, r.Authorization, r.ID)
	if err != nil {
		return nil, err
	}
	if !s.starts(in) {
		return &out[Decision]{Decision{Refusal: string(writ.CodeInvocationClosed)}}, nil
	}
	req := admission.Request(r.Body)
	req.ArgumentDigest = s.keyed(req.ArgumentDigest)
	d := in.port.Admit(ctx, req, admission.Slot{Tool: in.served.tool(req.Affordance, req.Contract)}, nil)
	return &out[Decision]{Decision{Admitted: d.Admitted, Refusal: string(d.Refusal), ActionID: d.ActionID, Held: d.Held}}, nil
}

func (s *Server) dispatch(ctx context.Context, r *portInput[ActionRequest]) (*out[Grant], error) {
	in, _, err := s.port(ctx, r.Authorization, r.ID)
	if err != nil {
		return nil, err
	}
	if !s.starts(in) {
		return &out[Grant]{Grant{Receipt: Receipt{Code: string(writ.CodeInvocationClosed)}}}, nil
	}
	g, receipt := in.port.Dispatch(ctx, r.Body.ActionID)
	answer := Grant{Receipt: received(receipt)}
	if receipt.Accepted {
		row, _ := in.port.Row(r.Body.ActionID)
		due := s.ledger.Deadline(row).UTC()
		s.awaits(in, due)
		answer.Key, answer.StartWithin, answer.Overdue = g.Key(), int(s.cfg.StartWithin.Seconds()), &due
	}
	return &out[Grant]{answer}, nil
}

func (s *Server) reportUnknown(ctx context.Context, r *portInput[ActionRequest]) (*out[Receipt], error) {
	return s.settle(ctx, r, func(in *invocation) admission.Receipt {
		return in.port.ReportUnknown(ctx, r.Body.ActionID, r.Body.Reason, nil)
	})
}

func (s *Server) cancel(ctx context.Context, r *portInput[ActionRequest]) (*out[Receipt], error) {
	return s.settle(ctx, r, func(in *invocation) admission.Receipt {
		return in.port.Cancel(ctx, r.Body.ActionID, r.Body.Reason, nil)
	})
}

func (s *Server) settle(ctx context.Context, r *portInput[ActionRequest], do func(*invocation) admission.Receipt) (*out[Receipt], error) {
	in, _, err := s.port(ctx, r.Authorization, r.ID)
	if err != nil {
		return nil, err
	}
	if in == nil {
		return &out[Receipt]{Receipt{Code: string(writ.CodeInvocationClosed)}}, nil
	}
	receipt := do(in)
	s.settled(in)
	return &out[Receipt]{received(receipt)}, nil
}

// settled has the keeper close an invocation whose lease is over, once its last outcome is in.
func (s *Server) settled(in *invocation) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.draining && !in.closed && !in.unsettled() {
		in.due = s.cfg.Now()
		s.wake()
	}
}

func received(r admission.Receipt) Receipt {
	return Receipt{Accepted: r.Accepted, Code: string(r.Code)}
}

// tool is what people call the action in listings: what the names of affordance and contract end in.
func (p *served) tool(affordance, contract string) string {
	return lastSegment(affordance) + "." + lastSegment(contract)
}
