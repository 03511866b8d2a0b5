package runtime

import (
	"time"

	"writ"
)

// EventType names a kind of [Event]. docs/cli.md lists them with their fields.
type EventType string

// Event types.
const (
	EventTurnStarted   EventType = "turn_started"
	EventRoundStarted  EventType = "round_started"
	EventActionOpened  EventType = "action_opened"
	EventAccepted      EventType = "accepted"
	EventRefused       EventType = "refused"
	EventRetracted     EventType = "retracted"
	EventHeld          EventType = "held" // it waits for an approval
	EventDispatched    EventType = "dispatched"
	EventProgress      EventType = "progress"
	EventSettled       EventType = "settled"
	EventThinkingDelta EventType = "thinking_delta"
	EventNotesDelta    EventType = "notes_delta"
	EventAnswerDelta   EventType = "answer_delta"
	EventAnswerReset   EventType = "answer_reset"
	// EventGenerationEnded says what the native dialect's text of the attempt was.
	EventGenerationEnded EventType = "generation_ended"
	EventAnswer          EventType = "answer"
	EventNotice          EventType = "notice"
	EventUsage           EventType = "usage"
	EventTurnEnded       EventType = "turn_ended"
)

// Event is one thing that happened in a turn, as a person or a program watches it. An event about a refused action
// carries its index, tool and code, never its arguments or text. Index is set for events about an action.
type Event struct {
	Type         EventType        `json:"type"`
	Turn         string           `json:"turn"`
	Round        int              `json:"round,omitempty"`
	Attempt      int              `json:"attempt,omitempty"`
	Time         time.Time        `json:"time"`
	Conversation string           `json:"conversation,omitempty"` // turn_started
	Agent        string           `json:"agent,omitempty"`        // turn_started
	Index        *int             `json:"index,omitempty"`
	Action       string           `json:"action,omitempty"` // call_tool, complete, exit
	Tool         string           `json:"tool,omitempty"`
	Code         writ.Code        `json:"code,omitempty"`
	Reason       string           `json:"reason,omitempty"`
	ActionID     string           `json:"action_id,omitempty"`
	ToolCallID   string           `json:"tool_call_id,omitempty"`
	Early        bool             `json:"early,omitempty"`
	Claimed      bool             `json:"claimed,omitempty"` // accepted: it is an action that an earlier attempt started
	State        writ.ActionState `json:"state,omitempty"`   // settled
	Failure      string           `json:"failure,omitempty"` // settled
	Preview      string           `json:"preview,omitempty"` // settled: the beginning of a result
	Text         string           `json:"text,omitempty"`
	Done         float64          `json:"done,omitempty"`        // progress
	Total        float64          `json:"total,omitempty"`       // progress; 0 = not known
	Provisional  bool             `json:"provisional,omitempty"` // answer deltas of the native dialect; an answer beside neutral calls
	Followups    []string         `json:"followups,omitempty"`
	Usage        *writ.Usage      `json:"usage,omitempty"`
	Model        string           `json:"model,omitempty"`      // usage
	Cost         float64          `json:"cost,omitempty"`       // usage and turn_ended: in the prices' currency, where they are known
	Estimated    bool             `json:"estimated,omitempty"`  // usage: the provider did not say
	Prose        string           `json:"prose,omitempty"`      // generation_ended: the native text was the "answer", or "notes"
	TurnState    string           `json:"turn_state,omitempty"` // turn_ended
}

// Sink receives events in order, from one goroutine at a time. It must not block for long: the turn waits for it.
type Sink func(Event)

// EventTypes lists the types in the order of a turn.
func EventTypes() []EventType {
	return []EventType{EventTurnStarted, EventRoundStarted, EventThinkingDelta, EventNotesDelta, EventActionOpened, EventAccepted, EventRefused,
		EventRetracted, EventGenerationEnded, EventDispatched, EventProgress, EventSettled, EventAnswerDelta, EventAnswerReset, EventAnswer, EventNotice, EventUsage, EventTurnEnded}
}
