package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"writ"
)

// toolRounds is how many rounds of a measured turn call tools; one more answers.
const toolRounds = 10

// GovernedRound runs whole turns in which every round calls k no-op tools, and reports the time of one round: parsing,
// verdicts, admission, dispatch, the calls, settlement, the timeline, and the next prompt.
func GovernedRound(b *testing.B, open Opener, k int) {
	agent := agentWith(b, "dialect: native, max_actions_per_round: 16, max_concurrent_actions: 16", "{noop: {strategy: exploration}}")
	s := newStage(b, open(b), agent, noop())
	m := calling(toolRounds, k)
	s.turn(b, m)
	b.ReportAllocs()
	for b.Loop() {
		s.turn(b, m)
	}
	perRound(b)
}

// BareRound runs the same turns without governance: the loop one writes in an afternoon. Calls of one round run
// together; there is no record, no limit, and no way to know after a crash what has happened.
func BareRound(b *testing.B, k int) {
	set := noop()
	m := calling(toolRounds, k)
	bareTurn(b, m, set)
	b.ReportAllocs()
	for b.Loop() {
		bareTurn(b, m, set)
	}
	perRound(b)
}

func perRound(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(toolRounds+1), "ns/round")
}

func bareTurn(b *testing.B, m writ.Model, set writ.Toolset) string {
	ctx := context.Background()
	messages := []writ.Message{{Role: writ.RoleUser, Parts: []writ.Part{{Kind: writ.PartText, Text: "go on"}}}}
	for round := 1; ; round++ {
		req := &writ.ModelRequest{Call: fmt.Sprint("t/", round, "/1"), Messages: messages}
		var calls []writ.Part
		args := map[int]*strings.Builder{}
		var answer strings.Builder
		for ev, err := range m.Stream(ctx, req) {
			if err != nil {
				b.Fatal(err)
			}
			switch ev.Kind {
			case writ.ModelText:
				answer.WriteString(ev.Text)
			case writ.ModelToolOpen:
				calls = append(calls, writ.Part{Kind: writ.PartToolUse, ID: ev.ID, Name: ev.Name})
				args[ev.Block] = &strings.Builder{}
			case writ.ModelToolArgs:
				args[ev.Block].WriteString(ev.Text)
			}
		}
		if len(calls) == 0 {
			return answer.String()
		}
		results := make([]writ.Part, len(calls))
		var wg sync.WaitGroup
		for i := range calls {
			calls[i].Args = json.RawMessage(args[i].String())
			wg.Go(func() { results[i] = bareCall(ctx, set, calls[i]) })
		}
		wg.Wait()
		messages = append(messages, writ.Message{Role: writ.RoleAssistant, Parts: calls}, writ.Message{Role: writ.RoleUser, Parts: results})
	}
}

func bareCall(ctx context.Context, set writ.Toolset, call writ.Part) writ.Part {
	var params struct {
		N *int `json:"n"`
	}
	out := writ.Part{Kind: writ.PartToolResult, ID: call.ID}
	if err := json.Unmarshal(call.Args, &params); err != nil || params.N == nil {
		out.IsError = true
		return out
	}
	res, err := set.Call(ctx, writ.Call{Tool: "noop", Params: call.Args, ToolCallID: call.ID})
	out.Content, out.IsError = res.Content, err != nil || res.IsError
	return out
}
