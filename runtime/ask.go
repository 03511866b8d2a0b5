package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"writ"
	"writ/admission"
	"writ/internal/timeline"
)

// Question is what a tool asks a person in the middle of a call: an MCP elicitation by multi-round-trip.
type Question struct {
	Tool       string
	ToolCallID string
	// Requests are the server's questions by id, as it wrote them: {"ID": {"method", "params"}}.
	Requests json.RawMessage
}

// maxQuestions bounds how often one call may ask.
const maxQuestions = 8

// callAsking runs the call, and goes on with it as often as its tool asks for input: one action, one grant, one effect
// in several steps. Each question is stored before it is asked. Without an answer the outcome is unknown, since nobody
// knows what the tool did before it asked.
func (r *round) callAsking(ctx context.Context, f *flight, grant *admission.Grant) (writ.Result, error) {
	var input json.RawMessage
	for range maxQuestions {
		res, err := r.call(ctx, f, grant, input)
		var asks *writ.InputRequired
		if len(input) > 0 && errors.Is(err, writ.ErrNotStarted) {
			err = fmt.Errorf("the answers could not be handed to it: %v", err) // its first step has run: nobody knows
		}
		if err == nil || !errors.As(err, &asks) {
			return res, err
		}
		answers, ok := r.ask(ctx, f, asks)
		if !ok {
			return writ.Result{}, fmt.Errorf("it asked for input and got none: %w", err)
		}
		if input, err = asks.Answer(answers); err != nil {
			return writ.Result{}, err
		}
	}
	return writ.Result{}, fmt.Errorf("it asked for input more than %d times", maxQuestions)
}

// progress tells what a running tool says of itself.
func (r *round) progress(f *flight) func(done, total float64, message string) {
	return func(done, total float64, message string) {
		if f.state().Settled() {
			return
		}
		r.t.emit(Event{Type: EventProgress, Round: r.n, Attempt: f.act.a.n, Index: &f.act.index, Tool: f.act.tool.ID, ActionID: f.id, ToolCallID: f.callID,
			Done: done, Total: total, Text: clip(message, 500)})
	}
}

func (r *round) ask(ctx context.Context, f *flight, asks *writ.InputRequired) (json.RawMessage, bool) {
	t := r.t
	if !json.Valid(asks.Requests) {
		return nil, false // an adapter's mistake must not end the process
	}
	q := timeline.Question{Tool: f.act.tool.ID, ToolCallID: f.callID, Requests: asks.Requests, State: asks.State}
	b := t.block(timeline.KindQuestion, q)
	b.ActionID = f.id
	if err := t.append(ctx, b); err != nil {
		r.fail(err)
		return nil, false
	}
	t.emit(Event{Type: EventNotice, Round: r.n, Code: "input_required", Tool: q.Tool, ToolCallID: q.ToolCallID, ActionID: f.id, Text: q.Tool + " asks for input"})
	if t.in.Ask == nil {
		return nil, false
	}
	return t.in.Ask(ctx, Question{Tool: q.Tool, ToolCallID: q.ToolCallID, Requests: asks.Requests})
}
