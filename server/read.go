package server

import (
	"context"
	"errors"
	"time"

	"writ"
	"writ/admission"
	"writ/participant"
	"writ/store"
)

type idInput struct {
	Authorization string `header:"Authorization" hidden:"true"`
	ID            string `path:"id" maxLength:"256"`
}

// invocation reads one, with what has been done in it. The token is its own, or an API token of its participant.
func (s *Server) invocation(ctx context.Context, r *idInput) (*out[Closed], error) {
	c, err := s.caller(ctx, r.Authorization)
	if err != nil {
		return nil, err
	}
	t, err := s.cfg.Store.Turn(ctx, r.ID)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && !c.sees(t):
		return nil, absent("invocation")
	case err != nil:
		return nil, s.broken("reading an invocation", err)
	}
	return s.whole(ctx, r.ID)
}

// sees reports whether the caller may read the invocation.
func (c caller) sees(t store.Turn) bool {
	switch {
	case t.Tenant != c.tenant || t.Owner != c.owner:
		return false
	case c.invocation != "":
		return t.ID == c.invocation
	}
	return c.acts(t.Agent)
}

func (s *Server) whole(ctx context.Context, id string) (*out[Closed], error) {
	v, err := s.values(ctx, id)
	if err != nil {
		return nil, err
	}
	rows, err := s.cfg.Store.Actions(ctx, store.ActionFilter{Turn: id})
	if err != nil {
		return nil, s.broken("reading actions", err)
	}
	answer := Closed{Invocation: v, Operations: []Operation{}}
	for _, row := range rows {
		answer.Operations = append(answer.Operations, action(row))
	}
	return &out[Closed]{answer}, nil
}

// operation reads one, with what was done about it later.
func (s *Server) operation(ctx context.Context, r *idInput) (*out[Operation], error) {
	c, err := s.caller(ctx, r.Authorization)
	if err != nil {
		return nil, err
	}
	op, err := s.ledger.Get(ctx, r.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, absent("operation")
	}
	if err != nil {
		return nil, s.broken("reading an operation", err)
	}
	answer, subject := operation(op), op.ID
	if op.Kind != "tool_action" && op.Kind != "invocation" {
		subject = op.Parent // who sees what was done about an action is who sees the action
	}
	row, err := s.cfg.Store.Action(ctx, subject)
	if err == nil {
		answer.ToolCallID = ""
		if subject == op.ID {
			answer.ToolCallID = row.ToolCallID
		}
		subject = row.Turn
	}
	t, err := s.cfg.Store.Turn(ctx, subject)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && !c.sees(t):
		return nil, absent("operation")
	case err != nil:
		return nil, s.broken("reading an operation", err)
	}
	return &out[Operation]{answer}, nil
}

type listInput struct {
	Authorization string    `header:"Authorization" hidden:"true"`
	State         string    `query:"state" enum:"accepted,running,succeeded,failed,cancelled,indeterminate"`
	Participant   string    `query:"participant" maxLength:"256" doc:"its name"`
	Episode       string    `query:"episode" maxLength:"256"`
	Invocation    string    `query:"invocation" maxLength:"256"`
	Since         time.Time `query:"since" doc:"admitted at or after"`
	Unresolved    bool      `query:"unresolved" doc:"only those whose outcome is unknown and that nobody has resolved"`
	After         int64     `query:"after" minimum:"0" doc:"where the page starts: next of the one before"`
	Limit         int       `query:"limit" minimum:"1" maximum:"500" default:"100"`
}

// Operations is a page of tool actions in the order of their admission.
type Operations struct {
	Operations []Operation `json:"operations" nullable:"false"`
	Next       int64       `json:"next,omitempty" doc:"for after; absent on the last page"`
}

// operations lists the tool actions that the token may see.
func (s *Server) operations(ctx context.Context, r *listInput) (*out[Operations], error) {
	c, err := s.caller(ctx, r.Authorization)
	if err != nil {
		return nil, err
	}
	f := store.ActionFilter{Tenant: c.tenant, Owner: c.owner, Conversation: r.Episode, Turn: r.Invocation, Since: r.Since, Unresolved: r.Unresolved,
		States: states(r.State), Page: &store.ActionCursor{After: r.After, Limit: r.Limit + 1}}
	none := &out[Operations]{Operations{Operations: []Operation{}}}
	name := r.Participant
	switch {
	case c.invocation != "":
		if r.Invocation != "" && r.Invocation != c.invocation {
			return none, nil
		}
		f.Turn = c.invocation
	case c.participant == "":
		return none, nil
	case c.participant != Everybody:
		if name != "" && name != c.participant {
			return none, nil
		}
		name = c.participant
	}
	if name != "" {
		f.Participant = s.address(name)
	}
	rows, err := s.cfg.Store.Actions(ctx, f)
	if err != nil {
		return nil, s.broken("reading actions", err)
	}
	answer := none
	if len(rows) > r.Limit {
		rows = rows[:r.Limit]
		answer.Body.Next = rows[len(rows)-1].Seq
	}
	for _, row := range rows {
		answer.Body.Operations = append(answer.Body.Operations, action(row))
	}
	return answer, nil
}

// states are the states of rows that read as this state of an operation.
func states(operation string) []writ.ActionState {
	switch operation {
	case "":
		return nil
	case admission.OperationAccepted:
		return []writ.ActionState{writ.Held, writ.Admitted}
	case admission.OperationRunning:
		return []writ.ActionState{writ.Dispatched}
	case admission.OperationCancelled:
		return []writ.ActionState{writ.Withheld}
	}
	return []writ.ActionState{writ.ActionState(operation)}
}

// address is the participant's address; of one that is not configured any more it is what it was.
func (s *Server) address(name string) string {
	if p := s.byName[name]; p != nil {
		return p.Participant
	}
	return participant.Address(name)
}

// ParticipantView is a participant as it was compiled. What its boundaries hide is not told.
type ParticipantView struct {
	Name           string    `json:"name"`
	Participant    string    `json:"participant_address"`
	Implementation string    `json:"participant_implementation_ref"`
	Port           bool      `json:"port" doc:"its runtime declares invocation_tool_actions, so that its invocations can be opened"`
	Why            string    `json:"why,omitempty" doc:"there is no port"`
	Profile        string    `json:"policy_profile,omitempty"`
	Limits         *Limits   `json:"limits,omitempty"`
	Bindings       []Binding `json:"bindings" nullable:"false"`
	Boundaries     []Visible `json:"observation_boundaries" nullable:"false"`
	Offers         []Offer   `json:"execution_bindings" nullable:"false"`
}

// Visible is an observation boundary without what it hides.
type Visible struct {
	Address    string   `json:"observation_boundary_address"`
	Observable []string `json:"observable" nullable:"false"`
	Evidence   []string `json:"evidence" nullable:"false"`
}

// Offer is an execution binding.
type Offer struct {
	ID          string   `json:"binding_id"`
	Contract    string   `json:"action_contract_address"`
	Targets     []string `json:"target_addresses" nullable:"false"`
	MaxInFlight int      `json:"max_in_flight,omitempty"`
	Timeout     float64  `json:"timeout_seconds,omitempty"`
}

// Participants are those that the token acts for.
type Participants struct {
	Participants []ParticipantView `json:"participants" nullable:"false"`
}

type plainInput struct {
	Authorization string `header:"Authorization" hidden:"true"`
}

func (s *Server) participants(ctx context.Context, r *plainInput) (*out[Participants], error) {
	c, err := s.caller(ctx, r.Authorization)
	if err != nil {
		return nil, err
	}
	var own string
	if c.invocation != "" {
		if t, err := s.cfg.Store.Turn(ctx, c.invocation); err == nil {
			own = t.Agent
		}
	}
	answer := &out[Participants]{Participants{Participants: []ParticipantView{}}}
	for _, name := range s.names {
		if c.acts(name) || own == name {
			answer.Body.Participants = append(answer.Body.Participants, s.view(name))
		}
	}
	return answer, nil
}

func (s *Server) view(name string) ParticipantView {
	v := ParticipantView{Name: name, Bindings: []Binding{}, Boundaries: []Visible{}, Offers: []Offer{}}
	c := s.byName[name]
	if c == nil {
		o := s.opaque[name]
		v.Participant, v.Implementation, v.Profile, v.Why = o.Participant, o.Implementation, o.Profile, o.Why
		return v
	}
	v.Participant, v.Implementation, v.Profile, v.Port = c.Participant, c.Implementation, c.Profile, true
	v.Limits, v.Bindings = &Limits{c.Total, c.Concurrent}, bindings(&c.Compiled)
	for _, b := range c.Boundaries {
		v.Boundaries = append(v.Boundaries, Visible{b.Address, list(b.Observable), list(b.Evidence)})
	}
	for _, o := range c.Offers {
		v.Offers = append(v.Offers, Offer{o.ID, o.Contract, list(o.Targets), o.MaxInFlight, o.Timeout.Seconds()})
	}
	return v
}
