package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"writ"
	"writ/store/memory"
)

// mayFollow is the ordered matrix as the documentation has it: rows accepted earlier, columns the candidate.
var mayFollow = map[string]map[string]bool{
	"exploration":  {"exploration": true, "exploitation": false, "neutral": true, "unknown": false},
	"exploitation": {"exploration": true, "exploitation": true, "neutral": true, "unknown": false},
	"neutral":      {"exploration": true, "exploitation": true, "neutral": true, "unknown": false},
	"unknown":      {"exploration": false, "exploitation": false, "neutral": false, "unknown": false},
}

// TestMatrixOfTurns runs a turn for every ordered pair of single strategies and of some mixed ones, in both dialects:
// what is accepted runs, what is not does not, and the first one always runs.
func TestMatrixOfTurns(t *testing.T) {
	sets := []string{"exploration", "exploitation", "neutral", "unknown", "exploration, exploitation", "exploration, neutral", "exploitation, neutral", "neutral, unknown"}
	for _, dialect := range []writ.Dialect{writ.Channel, writ.Native} {
		for _, first := range sets {
			for _, second := range sets {
				want := true
				for f := range strings.SplitSeq(first, ", ") {
					for s := range strings.SplitSeq(second, ", ") {
						want = want && mayFollow[f][s]
					}
				}
				t.Run(fmt.Sprintf("%s: %s then %s", dialect, first, second), func(t *testing.T) {
					t.Parallel()
					b := newBench(t, pair(dialect, first, second), memory.Open())
					out, err := b.say(b.runtime(), "go")
					if err != nil || out.Answer != "done" {
						t.Fatalf("%+v %v", out, err)
					}
					calls := "t.first {}\n"
					if want {
						calls += "t.second {}\n"
					}
					refused := strings.Contains(b.eventsText(), "refused 1 call_tool t.second strategy_incompatible")
					if b.callsText() != calls || refused == want {
						t.Errorf("want second accepted: %v; got calls\n%s%s", want, b.callsText(), b.eventsText())
					}
					b.checkHistory()
				})
			}
		}
	}
}

// pair is a round of two calls of tools with the given strategies.
func pair(d writ.Dialect, first, second string) transcript {
	model := `writ_recording: 1
dialect: channel
rounds:
  - text: '` + callOf("first", "{}") + callOf("second", "{}") + `'
  - text: '` + finalDone + `'
`
	if d == writ.Native {
		model = `writ_recording: 1
dialect: native
rounds:
  - parts: [open: {block: 0, tool: t.first}, close: {block: 0}, open: {block: 1, tool: t.second}, close: {block: 1}]
  - parts: [text: done]
`
	}
	return transcript{archive: &txtar.Archive{Files: []txtar.File{
		{Name: "agent.yaml", Data: []byte(agentWith("dialect: "+string(d), ""))},
		{Name: "tools/t", Data: fmt.Appendf(nil, "first: {strategy: [%s]}\nsecond: {strategy: [%s]}\n", first, second)},
		{Name: "model", Data: []byte(model)},
	}}}
}
