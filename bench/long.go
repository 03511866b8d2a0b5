package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"writ"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

// Sent is what a conversation has sent to its model, in bytes.
type Sent struct {
	Requests, Summaries int
	Bytes               int // of all requests
	New                 int // of those, after what a request has in common with the one before
	Largest             int // request
	Everything          int // by a loop that appends every result whole
}

// Long runs a conversation of turns with rounds of one call each, whose result has size bytes, under a window of so many
// tokens; 0 = none. It measures bytes, not time.
func Long(b *testing.B, turns, rounds, size, window int) Sent {
	react := fmt.Sprintf("dialect: native, max_rounds: %d, context_tokens: %d", rounds+1, window)
	if window == 0 {
		react = fmt.Sprintf("dialect: native, max_rounds: %d, context_tokens: 10000000", rounds+1)
	}
	page := strings.Repeat("a line of a page\n", size/17)
	set := noop()
	set.call = func(_ context.Context, c writ.Call) (writ.Result, error) {
		return writ.TextResult("%s", c.ToolCallID+page), nil // each another one
	}
	s := newStage(b, memory.Open(), agentWith(b, react, "{noop: {strategy: exploration}}"), set)
	var sent Sent
	last := ""
	m := model(func(ctx context.Context, req *writ.ModelRequest, yield func(writ.ModelEvent, error) bool) {
		text := flat(req)
		sent.Requests++
		sent.Bytes += len(text)
		sent.Largest = max(sent.Largest, len(text))
		sent.New += len(text) - common(last, text)
		usage := writ.ModelEvent{Kind: writ.ModelUsage, Usage: writ.Usage{Input: len(text) / 4, Output: 10}}
		if strings.HasSuffix(req.Call, "/summary") { // a fork: the next request goes on from the one before it
			sent.Summaries++
			_ = yield(writ.ModelEvent{Kind: writ.ModelText, Text: strings.Repeat("what was read so far. ", 40)}, nil) && yield(usage, nil) &&
				yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: writ.FinishStop}, nil)
			return
		}
		last = text
		calling(rounds, 1)(ctx, req, func(ev writ.ModelEvent, err error) bool {
			if ev.Kind == writ.ModelUsage {
				ev = usage
			}
			return yield(ev, err)
		})
	})
	for range turns {
		s.say(b, "long", m)
	}
	for i := range turns * rounds {
		sent.Everything += i * len(page)
	}
	return sent
}

// say runs one turn of a conversation to its answer.
func (s *stage) say(b *testing.B, conversation string, m writ.Model) {
	out, err := s.rt.Run(context.Background(), runtime.Input{Agent: s.agent, Connections: s.conns, Conversation: conversation, Message: "go on",
		Model: func(context.Context) (writ.Model, string, error) { return m, "fake", nil }})
	if err != nil || out.State != store.TurnAnswered {
		b.Fatalf("turn: %+v %v", out, err)
	}
}

// flat writes a request as one text.
func flat(req *writ.ModelRequest) string {
	var b strings.Builder
	for _, p := range req.System {
		b.WriteString(p.Text)
	}
	for _, t := range req.Tools {
		b.WriteString(t.Name + t.Description + string(t.Schema))
	}
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			b.WriteString(p.Text + p.ID + p.Name + string(p.Args) + string(p.Opaque))
			for _, c := range p.Content {
				b.WriteString(c.Text + string(c.JSON))
			}
		}
	}
	return b.String()
}

func common(x, y string) int {
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return n
}
