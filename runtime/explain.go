package runtime

import (
	"context"
	"iter"
	"time"

	"writ"
	"writ/admission"
	"writ/internal/overseer"
	"writ/internal/stream"
)

// Explained is what the runtime would do with one action of a round.
type Explained struct {
	Index    int       `json:"index"`
	Tool     string    `json:"tool"`
	Action   string    `json:"action"`
	Decision string    `json:"decision"` // accepted | refused
	Code     writ.Code `json:"code"`
	Early    bool      `json:"early"`
	Reason   string    `json:"reason"`
}

// Round tells of a whole explained round.
type Round struct {
	Actions []Explained
	// Discarded is why the attempt would not stand; empty when it would.
	Discarded string
	// Answer is the answer the turn would end with.
	Answer string
}

// Explain judges the events of one recorded round with the same parser, overseer and validation as a turn, and without
// any effect: nothing is admitted, no tool is called.
func Explain(ctx context.Context, agent *Agent, events iter.Seq2[writ.ModelEvent, error]) (Round, error) {
	ledger := admission.New(admission.Config{Key: []byte("explain has no tenant")})
	rt := &Runtime{cfg: Config{Now: time.Now}}
	t := &turn{rt: rt, in: Input{Agent: agent.Config}, agent: agent, ledger: ledger, id: "explain", sink: func(Event) {}}
	r := &round{t: t, n: 1, flights: map[string]*flight{}}
	a := &attempt{r: r, n: 1, actions: map[int]*action{}, taken: map[int]bool{}}
	early := map[int]bool{}
	r.start = func(act *action) { early[act.index] = true }

	cfg := agent.Config
	parser := stream.New(cfg.Dialect, stream.Options{CodeParam: agent.codeParam})
	a.seer = overseer.New(overseer.Config{MaxActions: cfg.MaxActionsPerRound, Lookup: agent.lookup, Nearest: agent.nearest, CanonPath: t.canon,
		Continue: cfg.OnRefusal == "continue"})
	feed := func(e stream.Event) bool {
		return a.seer.Feed(e, func(o overseer.Output) bool { return a.take(ctx, o) })
	}
	for ev, err := range events {
		if err != nil {
			a.err = err
			break
		}
		a.model(ev, parser, feed)
		if a.impossible != "" || a.seer.Stopped() {
			a.stopped = true
			break
		}
	}
	a.end(parser, feed)
	return a.explained(early), ctx.Err()
}

func (a *attempt) explained(early map[int]bool) Round {
	var out Round
	for _, act := range sortActions(a.actions) {
		e := Explained{Index: act.index, Tool: act.name, Action: act.kind, Decision: "accepted", Early: early[act.index]}
		switch {
		case act.code != "":
			e.Decision, e.Code, e.Reason, e.Early = "refused", act.code, act.reason, false
		case act.final():
			e.Reason = "the turn ends with this answer"
		case e.Early:
			e.Reason = "strategy " + act.traits.Strategy.String() + " with the full execution profile: it starts when its block closes"
		default:
			e.Reason = "strategy " + act.traits.Strategy.String() + ": it runs in its place after the generation"
		}
		out.Actions = append(out.Actions, e)
	}
	if !a.stands() && a.keptAnswer() == nil {
		d := a.discarded()
		out.Discarded = d.Code + ": " + d.Message
	}
	if ans := a.answer(); ans != nil {
		out.Answer = ans.Text
	}
	return out
}
