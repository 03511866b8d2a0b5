package server

import (
	"encoding/json"
	"slices"
	"time"

	"writ/admission"
	"writ/participant"
	"writ/store"
)

// Phases of an invocation.
const (
	PhaseOpen     = "open"
	PhaseDraining = "draining" // its lease is over: outcomes are still taken
	PhaseClosed   = "closed"
)

// Invocation is what a harness needs of its invocation: the values that each request repeats, and its bounds.
type Invocation struct {
	ID             string `json:"invocation_action_instance_id"`
	Phase          string `json:"phase" enum:"open,draining,closed"`
	State          string `json:"state" doc:"of the invocation as an operation" enum:"accepted,running,succeeded,failed,indeterminate"`
	Participant    string `json:"participant_address"`
	Episode        string `json:"episode_id"`
	Implementation string `json:"participant_implementation_ref"`
	Scope          string `json:"execution_scope_ref"`
	Generation     int64  `json:"execution_generation"`
	Observation    string `json:"observation_point"`
	OuterContract  string `json:"invocation_action_contract_address"`

	LeaseExpires   *time.Time `json:"lease_expires_at,omitempty" doc:"while it is open or draining"`
	RenewableUntil *time.Time `json:"renewable_until,omitempty"`
	Limits         *Limits    `json:"limits,omitempty" doc:"while it is open or draining"`
	Bindings       []Binding  `json:"bindings,omitempty" nullable:"false"`
}

// Limits bound the actions of one invocation.
type Limits struct {
	Total      int `json:"max_tool_actions_per_invocation"`
	Concurrent int `json:"max_concurrent_tool_actions_per_invocation"`
}

// Binding is what one action may be admitted as.
type Binding struct {
	Affordance string   `json:"tool_affordance_address"`
	Contract   string   `json:"action_contract_address"`
	Boundaries []string `json:"observation_boundary_addresses" nullable:"false"`
	Targets    []string `json:"target_addresses" nullable:"false"`
}

// portValues reads an open invocation. The caller holds in.mu.
func (in *invocation) portValues() Invocation {
	v, lease, until := in.port.Invocation(), in.lease.UTC(), in.until.UTC()
	out := Invocation{ID: v.ID, Phase: PhaseOpen, State: admission.OperationRunning, Participant: v.Participant, Episode: v.Conversation,
		Implementation: v.Implementation, Scope: v.Scope, Generation: v.Generation, Observation: v.Observation, OuterContract: v.OuterContract,
		LeaseExpires: &lease, RenewableUntil: &until, Limits: &Limits{v.Total, v.Concurrent}, Bindings: bindings(&v.Compiled)}
	if in.draining {
		out.Phase = PhaseDraining
	}
	return out
}

func bindings(c *participant.Compiled) []Binding {
	out := []Binding{}
	for _, b := range c.Bindings {
		if b.Participant == "" || b.Participant == c.Participant {
			out = append(out, Binding{b.Affordance, b.Contract, list(b.Boundaries), list(b.Targets)})
		}
	}
	return out
}

// list is the same list, as an array and never null.
func list(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

// pastValues reads an invocation that is over. Its identity stands in its row as package admission wrote it, by the
// article's names.
func pastValues(t store.Turn, op admission.Operation) Invocation {
	out := Invocation{ID: t.ID, Phase: PhaseClosed, State: op.State, Episode: t.Conversation}
	outer := struct {
		Contract string `json:"action_contract_address"`
	}{}
	_ = json.Unmarshal(t.Body, &out)
	_ = json.Unmarshal(t.Body, &outer)
	out.OuterContract = outer.Contract
	return out
}

// Operation is one thing that was done: a tool action, an invocation, or what was done about an action later.
type Operation struct {
	ID           string      `json:"operation_id"`
	Kind         string      `json:"kind" doc:"tool_action, invocation, late_report, indeterminate_resolution or approval"`
	Parent       string      `json:"parent_operation_id,omitempty"`
	State        string      `json:"state" enum:"accepted,running,succeeded,failed,cancelled,indeterminate"`
	Status       string      `json:"status,omitempty" doc:"of the result, where the state says less: rejected, partial_success"`
	Failure      string      `json:"failure_class,omitempty"`
	Tool         string      `json:"tool,omitempty"`
	ToolCallID   string      `json:"tool_call_id,omitempty"`
	Ordinal      *int        `json:"admission_ordinal,omitempty"`
	Participant  string      `json:"participant_address,omitempty"`
	Episode      string      `json:"episode_id,omitempty"`
	Targets      []string    `json:"target_addresses,omitempty" nullable:"false"`
	Evidence     []string    `json:"evidence_refs,omitempty" nullable:"false"`
	Actor        string      `json:"actor,omitempty"`
	Detail       any         `json:"detail,omitempty" doc:"what a late report or a resolution says"`
	Held         bool        `json:"held,omitempty" doc:"waits for an approval"`
	AdmittedAt   *time.Time  `json:"admitted_at,omitempty"`
	DispatchedAt *time.Time  `json:"dispatched_at,omitempty"`
	SettledAt    *time.Time  `json:"settled_at,omitempty"`
	About        []Operation `json:"about,omitempty" nullable:"false" doc:"what was done about it later, the oldest first"`
}

func operation(op admission.Operation) Operation {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		t = t.UTC()
		return &t
	}
	out := Operation{ID: op.ID, Kind: op.Kind, Parent: op.Parent, State: op.State, Status: op.Status, Failure: op.Failure, Tool: op.Tool,
		Ordinal: op.Ordinal, Participant: op.Participant, Episode: op.Episode, Targets: slices.Clone(op.Targets), Evidence: slices.Clone(op.Evidence),
		Actor: op.Actor, Held: op.Held, AdmittedAt: at(op.AdmittedAt), DispatchedAt: at(op.DispatchedAt), SettledAt: at(op.SettledAt)}
	if len(op.Detail) > 0 {
		out.Detail = op.Detail
	}
	for _, o := range op.Children {
		out.About = append(out.About, operation(admission.Operation{ID: o.ID, Kind: o.Kind, Parent: o.Parent, State: admission.OperationSucceeded,
			Actor: o.Actor, Detail: o.Body, SettledAt: o.Time}))
	}
	return out
}

// action reads a row as an operation.
func action(row store.Action) Operation {
	out := operation(admission.OperationOf(row))
	out.ToolCallID = row.ToolCallID
	return out
}
