package prompt

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"writ/internal/timeline"
)

// Announce is what is true right now. It is rendered last, never cached and never stored, and it holds facts only:
// instructions stand in the system block.
type Announce struct {
	Round, MaxRounds int
	Attempt          int  // 1 for the first
	Last             bool // no further round after this one
	AnswerOnly       bool // no tool may be called in this generation
	Elapsed          time.Duration
	InputTokens      int // of this turn so far
	OutputTokens     int
	Now              time.Time // the only clock in the prompt
	Plans            []timeline.Plan
	Workspace        []string // one line a file
	Unknown          []timeline.Result
	Resolved         []string // unknown outcomes that were resolved since the last turn
	Held             []string // actions that wait for an approval
	Started          []string // what a discarded attempt of this round has started already
	Vanished         []string // tools that their server no longer offers
	Quarantined      []string
}

const (
	maxPlans   = 4
	maxUnknown = 16
)

// Text renders the sections that have something to say.
func (a Announce) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ANNOUNCE\n[ROUND] %d of %d", a.Round, a.MaxRounds)
	if a.Attempt > 1 {
		fmt.Fprintf(&b, ", try %d", a.Attempt)
	}
	if a.Last {
		b.WriteString(": the last one")
	}
	fmt.Fprintf(&b, "\n[BUDGET] %d rounds left after this, %s elapsed, %d input and %d output tokens so far\n",
		max(a.MaxRounds-a.Round, 0), a.Elapsed.Round(time.Second), a.InputTokens, a.OutputTokens)
	fmt.Fprintf(&b, "[TIME] %s\n", a.Now.UTC().Format("Monday 2006-01-02 15:04 UTC"))
	plans(&b, "[OPEN PLANS]", a.Plans)
	lines(&b, "WORKSPACE", a.Workspace)
	if len(a.Unknown) > 0 {
		fmt.Fprintf(&b, "[UNKNOWN OUTCOMES] these may have happened; nobody knows\n")
		for i, u := range a.Unknown {
			if i == maxUnknown {
				fmt.Fprintf(&b, "- and %d more\n", len(a.Unknown)-maxUnknown)
				break
			}
			fmt.Fprintf(&b, "- %s %s (%s)\n", u.ToolCallID, u.Tool, u.Failure)
		}
	}
	lines(&b, "RESOLVED OUTCOMES", a.Resolved)
	lines(&b, "WAITING FOR APPROVAL, not run", a.Held)
	lines(&b, "ALREADY STARTED IN THIS ROUND, will not be started again", a.Started)
	lines(&b, "TOOLS NO LONGER OFFERED", a.Vanished)
	lines(&b, "TOOLS NOT USABLE", a.Quarantined)
	if a.AnswerOnly {
		b.WriteString("[CONSTRAINTS] no tool is available in this generation; the rounds are used up\n")
	}
	return b.String()
}

func plans(b *strings.Builder, title string, all []timeline.Plan) {
	var open []timeline.Plan
	for _, p := range slices.Backward(all) {
		if !p.Closed {
			open = append(open, p)
		}
	}
	if len(open) == 0 {
		return
	}
	b.WriteString(title + "\n")
	for i, p := range open {
		if i == maxPlans {
			fmt.Fprintf(b, "- and %d more\n", len(open)-maxPlans)
			break
		}
		mark := ""
		if p.Active {
			mark = " (current)"
		}
		fmt.Fprintf(b, "- plan %s%s\n", p.ID, mark)
		for j, s := range p.Steps {
			fmt.Fprintf(b, "  %d. [%s] %s\n", j+1, s.Status, s.Text)
		}
	}
}

func lines(b *strings.Builder, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "[%s]\n", title)
	for _, it := range items {
		fmt.Fprintf(b, "- %s\n", it)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
