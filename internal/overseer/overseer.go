// Package overseer judges the actions of one round in stream order and holds back what each of them would show until
// it has been judged. It is pure: it reads [stream.Event] values and gives [Output] values, in order.
//
// What it refuses reaches nobody, not one character.
package overseer

import (
	"encoding/json"
	"slices"

	"writ"
	"writ/internal/stream"
)

// Tool is what the overseer knows of a callable.
type Tool struct {
	Traits writ.Traits
	// Namespaces holds the traits that replace the tool's own when the argument "namespace" selects one of them; keys
	// are lower case without a trailing colon. Not nil means that the tool is judged when that argument has closed.
	Namespaces map[string]writ.Traits
	Paths      writ.ToolPaths
}

// Prior is a row of the ledger from an earlier attempt of the same round. It stands first in the accepted list, for
// the matrix and for the cap, whether this attempt mentions it or not.
type Prior struct {
	ActionID string
	Tool     string
	Index    int // in its own attempt
	Strategy writ.Strategy
	Writes   []string // the paths it writes
}

// Claim says what a closed action has to do with the rows of earlier attempts.
type Claim struct {
	Claimed  bool // it is the recorded action Prior; nothing runs again
	Conflict bool // the row Prior stands and was dispatched with other arguments; these do not run
	Replaced bool // the row Prior never started and was withheld: it stands no more, and this is a new action
	Prior    int  // index into Config.Priors
}

// Config of an [Overseer]. The zero value judges the native dialect with no tools and a cap of 8.
type Config struct {
	MaxActions int // 0 = DefaultMaxActions; 1 switches multi-action off
	// Lookup finds a tool by its id. Nil knows no tool.
	Lookup func(tool string) (Tool, bool)
	// Nearest gives the known tool id closest to an unknown one, or "". May be nil.
	Nearest func(tool string) string
	// NoTools refuses every call: an answer-only generation.
	NoTools bool
	Priors  []Prior
	// Claim matches a well-formed closed call with the rows of earlier attempts that nothing has claimed yet. It is
	// asked once per action and only while such rows of the same tool remain. Nil claims nothing.
	Claim func(d *stream.Decision) Claim
	// CanonPath gives the one form of a path or reference. Nil trims "conv:fi:" and cleans as package path does.
	CanonPath func(string) string
	// Continue goes on judging after a refusal (on_refusal: continue). False stops at the first.
	Continue bool
}

// DefaultMaxActions is the cap of a round when the configuration sets none.
const DefaultMaxActions = 8

// Overseer judges one decision attempt. It serves one goroutine.
type Overseer struct {
	cfg      Config
	items    []*item  // by index
	next     int      // the first item without a verdict
	accepted []*stand // what stands in the round, in order: priors first
	stopped  bool
	prose    prose
}

// item is one action of this attempt.
type item struct {
	index      int
	action     string
	tool       string
	identified bool
	nsClosed   bool             // the argument "namespace" has closed
	namespace  json.RawMessage  // its value; nil when it is too long to be compared
	decision   *stream.Decision // set when it has closed
	opaque     json.RawMessage

	judged   bool
	accepted bool
	traits   writ.Traits
	own      gate // notes and arguments
	answer   gate
}

// stand is one entry of the accepted list: a row of an earlier attempt until an action claims it, or an action.
type stand struct {
	prior   int // index into Config.Priors, or -1
	row     *Prior
	item    *item // the action, or the one that claimed the row; nil for an unclaimed row
	traits  writ.Traits
	writing bool // its tool declares what it writes
	writes  map[string]bool
}

func (s *stand) final() bool { return s.item != nil && s.item.action != writ.ActionCall }

// open reports whether its writes are not known yet.
func (s *stand) open() bool { return s.writing && s.item != nil && s.item.decision == nil }

func (s *stand) sibling() *Sibling {
	if s.row != nil {
		return &Sibling{Index: s.row.Index, Action: writ.ActionCall, Tool: s.row.Tool, Strategy: s.row.Strategy, ActionID: s.row.ActionID}
	}
	return &Sibling{Index: s.item.index, Action: s.item.action, Tool: s.item.tool, Strategy: s.traits.Strategy}
}

// New returns an overseer of one decision attempt.
func New(cfg Config) *Overseer {
	if cfg.MaxActions <= 0 {
		cfg.MaxActions = DefaultMaxActions
	}
	if cfg.CanonPath == nil {
		cfg.CanonPath = canonPath
	}
	o := &Overseer{cfg: cfg}
	for i := range cfg.Priors {
		row := &cfg.Priors[i]
		s := &stand{prior: i, row: row, traits: writ.Traits{Strategy: row.Strategy}}
		s.write(o, row.Writes)
		o.accepted = append(o.accepted, s)
	}
	return o
}

// Feed takes the next event of the round and gives out what follows from it. It returns false when the generation
// should be stopped: out said so, or an action was refused and the configuration does not continue. After a refusal
// nothing new is judged; what was accepted before is still followed to its close, and the round to its end.
func (o *Overseer) Feed(e stream.Event, out func(Output) bool) bool {
	g := &giver{out: out}
	switch e.Kind {
	case stream.ActionOpened, stream.ActionIdentified, stream.Notes, stream.Answer, stream.Argument,
		stream.ArgumentClosed, stream.ActionClosed:
		o.action(e, g)
	case stream.Text:
		o.prose.add(e, o.neutral(), g)
	case stream.TextClosed:
		o.prose.close(e.Index)
		g.give(Passed{e})
	case stream.RoundEnded:
		g.give(o.prose.end(e.Finish, o.neutral() && !o.stopped, g))
	default:
		g.give(Passed{e})
	}
	return !g.stop && !o.stopped
}

// Stopped reports whether a refusal has stopped the round.
func (o *Overseer) Stopped() bool { return o.stopped }

// giver hands outputs on in order. All that belong to one event go out, whatever the consumer answers.
type giver struct {
	out  func(Output) bool
	stop bool
}

func (g *giver) give(v Output) {
	if !g.out(v) {
		g.stop = true
	}
}

func (o *Overseer) action(e stream.Event, g *giver) {
	for e.Index >= len(o.items) {
		o.items = append(o.items, &item{index: len(o.items)})
	}
	it := o.items[e.Index]
	if it.decision != nil || o.stopped && !it.judged {
		return
	}
	switch e.Kind {
	case stream.Notes:
		it.own.pass(Shown{Lane: LaneNotes, Index: e.Index, Text: e.Text}, g)
		return // deltas judge nothing
	case stream.Argument:
		it.own.pass(Shown{Lane: LaneArgument, Index: e.Index, Arg: e.Arg, Text: e.Text}, g)
		return
	case stream.Answer:
		it.answer.pass(Shown{Lane: LaneAnswer, Index: e.Index, Text: e.Text}, g)
		return
	case stream.ActionIdentified:
		if !it.identified {
			it.identified, it.action, it.tool = true, e.Action, e.Tool
		}
	case stream.ArgumentClosed:
		if e.Arg == namespaceArg {
			it.nsClosed, it.namespace = true, e.Value
		}
	case stream.ActionClosed:
		it.decision, it.opaque = e.Decision, e.Opaque
		if it.judged {
			o.settle(it, g)
		}
	}
	o.advance(g)
}

// advance judges every action whose turn it is and whose judgement has all it needs.
func (o *Overseer) advance(g *giver) {
	for o.next < len(o.items) && !o.stopped {
		it := o.items[o.next]
		v, ok := o.judge(it)
		if !ok {
			return
		}
		o.next++
		it.judged, it.accepted, it.traits = true, v.Accepted, v.Traits
		if v.Accepted {
			o.accept(it, v)
		}
		g.give(v)
		it.own.decide(v.Accepted, g)
		it.answer.decide(v.Accepted && it.action != writ.ActionCall, g)
		if it.decision != nil {
			o.settle(it, g)
		}
		if !v.Accepted {
			o.refused(v.Code)
		}
	}
}

// refused stops the round, unless it is to go on. Only what the overseer itself refuses stops it: what follows was
// written on a premise that does not hold. A malformed or cut action, or new arguments for a row that stands, says
// nothing about its siblings, which keep their places.
func (o *Overseer) refused(code writ.Code) {
	switch code {
	case writ.CodeTruncated, writ.CodeInvalidAction, writ.CodeArgumentsUnparsable, writ.CodeRequestConflict:
		return
	}
	if !o.cfg.Continue {
		o.stopped = true
	}
}

// settle passes a judged action on when it has closed. One that was accepted and is malformed after all leaves the
// accepted list; its siblings go on.
func (o *Overseer) settle(it *item, g *giver) {
	if s := o.standing(it.index); s != nil {
		if it.decision.Problem != nil {
			o.Retract(it.index)
		} else if s.writing && s.row == nil {
			t, _ := o.lookup(it.tool)
			s.write(o, values(it.decision.Params, t.Paths.Writes))
		}
	}
	it.answer.closed = it.decision.AnswerClosed
	g.give(Closed{Accepted: it.accepted, Decision: it.decision, Traits: it.traits, Opaque: it.opaque})
}

// accept enters an action in the accepted list; one that claims a row takes the row's place.
func (o *Overseer) accept(it *item, v Verdict) {
	if v.Claimed != nil {
		o.claimed(v.Claimed.Prior, it)
		return
	}
	t, _ := o.lookup(it.tool)
	o.accepted = append(o.accepted, &stand{prior: -1, item: it, traits: v.Traits, writing: len(t.Paths.Writes) > 0})
}

func (o *Overseer) claimed(prior int, it *item) {
	for _, s := range o.accepted {
		if s.prior == prior {
			s.item = it
		}
	}
}

func (o *Overseer) standing(index int) *stand {
	for _, s := range o.accepted {
		if s.item != nil && s.item.index == index {
			return s
		}
	}
	return nil
}

// Retract takes an accepted action that failed later, its arguments for instance, out of the accepted list. The row
// that it had claimed goes on standing.
func (o *Overseer) Retract(index int) {
	o.accepted = slices.DeleteFunc(o.accepted, func(s *stand) bool {
		return s.row == nil && s.item.index == index
	})
}

// leave takes a row that was withheld out of the accepted list.
func (o *Overseer) leave(prior int) {
	o.accepted = slices.DeleteFunc(o.accepted, func(s *stand) bool { return s.row != nil && s.prior == prior })
}

// neutral reports whether everything that stands is purely neutral, final answers aside.
func (o *Overseer) neutral() bool {
	for _, s := range o.accepted {
		if !s.final() && !s.traits.Strategy.Only(writ.Neutral) {
			return false
		}
	}
	return true
}

func (o *Overseer) lookup(tool string) (Tool, bool) {
	if o.cfg.Lookup == nil || tool == "" {
		return Tool{}, false
	}
	return o.cfg.Lookup(tool)
}

// State tells what was shown so far.
func (o *Overseer) State() State {
	s := State{Text: o.prose.shown.String(), TextClosed: o.prose.closed()}
	for _, it := range o.items {
		if t := it.answer.shown.String(); t != "" {
			s.Answers = append(s.Answers, Answered{Index: it.index, Text: t, Closed: it.answer.closed})
		}
	}
	return s
}
