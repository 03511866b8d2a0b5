// Package recorded is a model that plays back a recording: for tests, for demonstrations without a provider, and to
// explain a bug from its bytes.
//
// A recording is a YAML file:
//
//	writ_recording: 1
//	dialect: channel            # or native
//	rounds:                     # one entry per model call, repeated attempts included
//	  - text: |
//	      <channel:thinking>…</channel:thinking>
//	      <channel:action>{"action":"call_tool","tool_call":{"tool_id":"probe.add","params":{"n":1}}}</channel:action>
//	    chunk_bytes: 17         # cut every text into pieces of so many bytes; default: whole
//	    chunk_delay: 5ms        # wait before every piece; default: 0
//	    finish: stop            # or tool_calls, length, content_filter, refusal, cut, error:CLASS
//	    usage: {input: 1200, output: 80, cache_read: 0, cache_write: 1100}
//	    expect: ["a substring of the request"]
//	  - parts:                  # provider blocks in order, instead of text
//	      - thinking: "hm"      # a whole block; signature: "…" comes back as its opaque JSON string
//	      - text: "one moment"  # a whole block; unclosed: true leaves out its end
//	      - open: {block: 0, id: "", tool: probe.add}
//	      - args: {block: 0, text: '{"n":'}
//	      - close: {block: 0}
//	      - wait: 300ms
//	    finish: tool_calls
//
// Finish "cut" ends the stream without an end marker; "error:CLASS" ends it with a [writ.ModelError] of that class.
// Without a finish, a round that opens a tool call finishes with tool_calls and any other with stop.
//
// A tool in a recording is named by its Writ id, such as probe.add, and the model yields that id as the call's name,
// although the names in a request's tool definitions are made safe for vendors. Whoever maps names back must let an id
// through that is none of those names.
package recorded

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"writ"
)

// Limits of a recording.
const (
	MaxBytes  = 16 << 20
	MaxRounds = 10_000
	MaxDelay  = time.Minute     // of chunk_delay
	MaxWait   = 5 * time.Minute // of one wait
)

// Recording is a checked recording. It never changes and may be shared.
type Recording struct {
	name    string
	dialect writ.Dialect
	rounds  []round
}

// round is what the model does in one call.
type round struct {
	steps  []step
	pieces int // chunk_bytes; 0 = whole
	delay  time.Duration
	finish writ.Finish
	fails  writ.ErrorClass // when set, the stream ends with this error
	usage  writ.Usage
	expect []string
}

// step is one model event, or a wait before the next one.
type step struct {
	event writ.ModelEvent
	wait  time.Duration
}

// Error is something wrong with a recording: what, where, and what to do.
type Error struct {
	File    string
	Line    int // from 1; 0 = the whole file
	Column  int // from 1
	Message string
	Hint    string
}

// Error is "file:line:column: message (hint: …)".
func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
	}
	s += ": " + e.Message
	if e.Hint != "" {
		s += " (hint: " + e.Hint + ")"
	}
	return s
}

// Load reads a recording from a file. Mistakes in it are an [*Error].
func Load(path string) (*Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("recorded: opening a recording: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("recorded: reading a recording: %w", err)
	}
	return Parse(path, data)
}

// Name returns the file name that the recording was read under.
func (r *Recording) Name() string { return r.name }

// Dialect returns how the recorded model says its actions.
func (r *Recording) Dialect() writ.Dialect { return r.dialect }

// Len returns the number of rounds.
func (r *Recording) Len() int { return len(r.rounds) }

// Round yields the events of round i, from 0, cut into its pieces but without its delays, and ends as the recorded
// stream does: after the finish event, with an error, or with neither when it was cut. What the round expects of a
// request is not looked at. A round that the recording does not have yields nothing.
func (r *Recording) Round(i int) iter.Seq2[writ.ModelEvent, error] {
	return func(yield func(writ.ModelEvent, error) bool) {
		if i >= 0 && i < len(r.rounds) {
			r.rounds[i].play(context.Background(), false, yield)
		}
	}
}

// play yields the events of a round, with its delays when it is timed.
func (r *round) play(ctx context.Context, timed bool, yield func(writ.ModelEvent, error) bool) {
	wait := func(d time.Duration) bool {
		if !timed {
			d = 0
		}
		if err := sleep(ctx, d); err != nil {
			yield(writ.ModelEvent{}, fmt.Errorf("recorded: playing a round: %w", err))
			return false
		}
		return true
	}
	for _, s := range r.steps {
		if !wait(s.wait) {
			return
		}
		if s.event.Kind == 0 {
			continue
		}
		for rest := s.event.Text; ; {
			e := s.event
			e.Text, rest = r.piece(rest)
			if e.Text != "" && !wait(r.delay) || !yield(e, nil) {
				return
			}
			if rest == "" {
				break
			}
		}
	}
	if !r.usage.IsZero() && !yield(writ.ModelEvent{Kind: writ.ModelUsage, Usage: r.usage}, nil) {
		return
	}
	switch {
	case r.fails != "":
		yield(writ.ModelEvent{}, &writ.ModelError{Class: r.fails, Message: "recorded error"})
	case r.finish != writ.FinishCut:
		yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: r.finish}, nil)
	}
}

// piece cuts the next piece off a text. Pieces are cut at bytes, also inside a character: so do networks.
func (r *round) piece(s string) (piece, rest string) {
	if r.pieces == 0 || len(s) <= r.pieces {
		return s, ""
	}
	return s[:r.pieces], s[r.pieces:]
}

// sleep waits and returns the context's error when that ends first or has ended already.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// opaque is a signature as a provider's opaque JSON.
func opaque(signature string) json.RawMessage {
	if signature == "" {
		return nil
	}
	raw, _ := json.Marshal(signature) // a string always encodes
	return raw
}
