package anthropic

import (
	"bufio"
	"encoding/json"
	"errors"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"

	"writ"
	"writ/internal/modelreq"
)

// reader turns the events of one message into model events. A block ends at content_block_stop, the message at
// message_stop: without it the sequence ends without a finish, and was cut.
type reader struct {
	yield  func(writ.ModelEvent, error) bool
	blocks map[int64]*block // by the vendor's index
	opened int
	place  modelreq.Place // of a thinking block that would begin now
	usage  writ.Usage
	finish writ.Finish
	done   bool
}

type block struct {
	n         int // the block's number in our events
	kind      string
	thinking  modelreq.Place
	signature string
	redacted  string
	input     json.RawMessage // of the block's start; used when no delta came
	deltas    bool
}

// opaque is how the signature of a thinking block is kept. A block that stood before everything else is kept as the
// signature's bare JSON string.
type opaque struct {
	Signature string         `json:"signature,omitempty"`
	Redacted  string         `json:"redacted,omitempty"`
	After     modelreq.Place `json:"after"`
}

func (r *reader) emit(e writ.ModelEvent) {
	if !r.done && !r.yield(e, nil) {
		r.done = true
	}
}

func (r *reader) event(ev *sdk.MessageStreamEventUnion) {
	switch ev.Type {
	case "message_start":
		u := &ev.Message.Usage
		r.usage = writ.Usage{Input: int(u.InputTokens), Output: int(u.OutputTokens), CacheRead: int(u.CacheReadInputTokens), CacheWrite: int(u.CacheCreationInputTokens)}
		r.emit(writ.ModelEvent{Kind: writ.ModelUsage, Usage: r.usage})
	case "content_block_start":
		r.start(ev.Index, &ev.ContentBlock)
	case "content_block_delta":
		r.delta(ev.Index, &ev.Delta)
	case "content_block_stop":
		r.stop(ev.Index)
	case "message_delta":
		r.total(&ev.Usage)
		if ev.Delta.StopReason != "" {
			r.finish = finish(ev.Delta.StopReason)
		}
	case "message_stop":
		if r.finish != "" {
			r.emit(writ.ModelEvent{Kind: writ.ModelFinish, Finish: r.finish})
		}
		r.done = true
	}
}

// total takes the usage of a message_delta: totals again, not what came since the start.
func (r *reader) total(u *sdk.MessageDeltaUsage) {
	for _, f := range []struct {
		valid bool
		from  int64
		to    *int
	}{
		{u.JSON.InputTokens.Valid(), u.InputTokens, &r.usage.Input},
		{u.JSON.OutputTokens.Valid(), u.OutputTokens, &r.usage.Output},
		{u.JSON.CacheReadInputTokens.Valid(), u.CacheReadInputTokens, &r.usage.CacheRead},
		{u.JSON.CacheCreationInputTokens.Valid(), u.CacheCreationInputTokens, &r.usage.CacheWrite},
	} {
		if f.valid {
			*f.to = int(f.from)
		}
	}
	r.emit(writ.ModelEvent{Kind: writ.ModelUsage, Usage: r.usage})
}

func (r *reader) start(index int64, c *sdk.ContentBlockStartEventContentBlockUnion) {
	b := &block{n: r.opened, kind: c.Type, thinking: r.place}
	r.blocks[index] = b
	r.opened++
	switch c.Type {
	case "text":
		r.text(b, c.Text)
	case "thinking":
		b.signature = c.Signature
		if c.Thinking != "" {
			r.emit(writ.ModelEvent{Kind: writ.ModelThinking, Block: b.n, Text: c.Thinking})
		}
	case "redacted_thinking":
		b.redacted = c.Data
	case "tool_use":
		r.place.Calls++
		if in := c.JSON.Input.Raw(); in != "" && in != "{}" && in != "null" {
			b.input = json.RawMessage(in)
		}
		r.emit(writ.ModelEvent{Kind: writ.ModelToolOpen, Block: b.n, ID: c.ID, Name: c.Name})
	}
}

func (r *reader) text(b *block, s string) {
	if s == "" {
		return
	}
	r.place.Text = true
	r.emit(writ.ModelEvent{Kind: writ.ModelText, Block: b.n, Text: s})
}

func (r *reader) delta(index int64, d *sdk.MessageStreamEventUnionDelta) {
	b := r.blocks[index]
	if b == nil {
		return // of a block that was never opened: nothing says what it is
	}
	switch d.Type {
	case "text_delta":
		r.text(b, d.Text)
	case "thinking_delta":
		if d.Thinking != "" {
			r.emit(writ.ModelEvent{Kind: writ.ModelThinking, Block: b.n, Text: d.Thinking})
		}
	case "signature_delta":
		b.signature += d.Signature
	case "input_json_delta":
		if d.PartialJSON != "" && b.kind == "tool_use" {
			b.deltas = true
			r.emit(writ.ModelEvent{Kind: writ.ModelToolArgs, Block: b.n, Text: d.PartialJSON})
		}
	}
}

func (r *reader) stop(index int64) {
	b := r.blocks[index]
	if b == nil {
		return
	}
	end := writ.ModelEvent{Kind: writ.ModelBlockEnd, Block: b.n}
	switch b.kind {
	case "text":
	case "thinking", "redacted_thinking":
		end.Opaque = b.opaque()
	case "tool_use":
		if !b.deltas && b.input != nil {
			r.emit(writ.ModelEvent{Kind: writ.ModelToolArgs, Block: b.n, Text: string(b.input)})
		}
	default:
		return // a block of the vendor's own tools, none of which are asked for
	}
	r.emit(end)
}

func (b *block) opaque() json.RawMessage {
	var v any = opaque{Signature: b.signature, Redacted: b.redacted, After: b.thinking}
	switch {
	case b.signature == "" && b.redacted == "":
		return nil
	case b.redacted == "" && b.thinking == modelreq.Place{}:
		v = b.signature
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil // a string always marshals
	}
	return raw
}

// finish maps the vendor's stop reasons. pause_turn belongs to the vendor's own server tools, none of which are asked
// for; a message that says so is over as far as Writ's calls go, and its text stands. A reason of a later version is no
// end that anyone vouches for: it counts as cut.
func finish(reason sdk.StopReason) writ.Finish {
	switch reason {
	case sdk.StopReasonEndTurn, sdk.StopReasonStopSequence, sdk.StopReasonPauseTurn:
		return writ.FinishStop
	case sdk.StopReasonToolUse:
		return writ.FinishTools
	case sdk.StopReasonMaxTokens, sdk.StopReasonModelContextWindowExceeded:
		return writ.FinishLength
	case sdk.StopReasonRefusal:
		return writ.FinishRefused
	}
	return ""
}

// unreadable reports an error of reading events rather than bytes.
func unreadable(err error) bool {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &typ) || errors.Is(err, bufio.ErrTooLong)
}
