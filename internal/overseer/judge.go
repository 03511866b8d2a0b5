package overseer

import (
	"fmt"
	"strings"

	"writ"
)

// judge gives the verdict of the action whose turn it is, or false when it needs more of the stream.
func (o *Overseer) judge(it *item) (Verdict, bool) {
	v := Verdict{Index: it.index, Action: it.action, Tool: it.tool}
	if it.decision != nil && !it.identified {
		v.Action = known(it.decision.Action)
	}
	t, there := o.lookup(v.Tool)
	v.Traits = t.in(it)
	switch {
	case it.decision != nil && it.decision.Problem != nil:
		p := it.decision.Problem
		return v.refuse(p.Code, nil, "%s. Next: %s", p.Message, p.Hint), true
	case !it.identified:
		return v, false
	case it.action != writ.ActionCall:
		return o.judgeFinal(v), true
	}
	if o.cfg.NoTools {
		return v.refuse(writ.CodeUnknownTool, nil, "no tool may be called in this generation. Next: give the final answer"), true
	}
	if o.cfg.Claim != nil && o.unclaimed(it.tool) {
		if it.decision == nil {
			return v, false
		}
		switch c := o.cfg.Claim(it.decision); {
		case c.Claimed, c.Conflict:
			return o.claim(v, it, c), true
		case c.Replaced:
			o.leave(c.Prior)
		}
	}
	if r := o.full(v); r != nil {
		return *r, true
	}
	if !there {
		return o.unknown(v), true
	}
	if t.Namespaces != nil && !it.nsClosed && it.decision == nil {
		return v, false
	}
	if r := o.order(v); r != nil {
		return *r, true
	}
	return o.targets(v, it, t)
}

// known returns the name of an action, or "" for half a name or anything else that the model wrote: a verdict is shown.
func known(action string) string {
	switch action {
	case writ.ActionCall, writ.ActionComplete, writ.ActionExit:
		return action
	}
	return ""
}

// refuse fills in a refusal.
func (v Verdict) refuse(code writ.Code, against *stand, format string, args ...any) Verdict {
	v.Code, v.Accepted = code, false
	if against != nil {
		v.Against = against.sibling()
	}
	v.Reason = v.subject() + ": " + fmt.Sprintf(format, args...)
	if !strings.HasSuffix(v.Reason, ".") {
		v.Reason += "."
	}
	return v
}

// subject names the action: "action 1 (mail.send, exploitation)".
func (v Verdict) subject() string {
	return name("action", v.Index, v.Action, v.Tool, v.Traits.Strategy)
}

func (s *Sibling) subject() string {
	word := "action"
	if s.ActionID != "" {
		word = "the earlier attempt's action"
	}
	return name(word, s.Index, s.Action, s.Tool, s.Strategy)
}

func name(word string, index int, action, tool string, strategy writ.Strategy) string {
	switch {
	case action == writ.ActionCall && tool != "":
		return fmt.Sprintf("%s %d (%s, %s)", word, index, short(tool), strategy)
	case action == "":
		return fmt.Sprintf("%s %d", word, index)
	}
	return fmt.Sprintf("%s %d (%s)", word, index, short(action))
}

func (o *Overseer) full(v Verdict) *Verdict {
	if len(o.accepted) < o.cfg.MaxActions {
		return nil
	}
	last := o.accepted[len(o.accepted)-1]
	r := v.refuse(writ.CodeTooManyActions, last, "a round takes at most %d actions, and %d stand already, the last %s. "+
		"Next: send it in the next round",
		o.cfg.MaxActions, len(o.accepted), last.sibling().subject())
	return &r
}

func (o *Overseer) judgeFinal(v Verdict) Verdict {
	if r := o.full(v); r != nil {
		return *r
	}
	for _, s := range o.accepted {
		if s.final() {
			return v.refuse(writ.CodeSecondFinal, s, "the round has its final answer already, %s. Next: give one final answer",
				s.sibling().subject())
		}
	}
	for _, s := range o.accepted {
		if !s.traits.Strategy.Only(writ.Neutral) {
			return v.refuse(writ.CodeFinalAfterNonNeutral, s, "a final answer cannot stand in one round with %s, whose result you have not seen. "+
				"Next: read that result, then answer in the next round", s.sibling().subject())
		}
	}
	v.Accepted = true
	return v
}

func (o *Overseer) unknown(v Verdict) Verdict {
	next := "use a tool of the catalog"
	if o.cfg.Nearest != nil {
		if n := o.cfg.Nearest(v.Tool); n != "" {
			next = fmt.Sprintf("if you meant %s, call that", n)
		}
	}
	return v.refuse(writ.CodeUnknownTool, nil, "there is no tool %q here. Next: %s", short(v.Tool), next)
}

// order is the ordered matrix against everything that stands.
func (o *Overseer) order(v Verdict) *Verdict {
	for _, s := range o.accepted {
		var r Verdict
		switch {
		case s.final() && !v.Traits.Strategy.Only(writ.Neutral):
			r = v.refuse(writ.CodeNonNeutralAfterFinal, s, "it comes after %s, and only neutral tools may follow a final answer. "+
				"Next: call it in a round of its own, before the final answer", s.sibling().subject())
		case !s.final() && !Compatible(s.traits.Strategy, v.Traits.Strategy):
			r = v.refuse(writ.CodeStrategyIncompatible, s, "it cannot follow %s in one round, whose result you have not seen. "+
				"Next: read that result, then call it in the next round if it is still right", s.sibling().subject())
		default:
			continue
		}
		return &r
	}
	return nil
}

// targets compares what the call reads and writes with what its siblings write, and accepts what passes. It needs the
// arguments of both sides, when a sibling writes at all.
func (o *Overseer) targets(v Verdict, it *item, t Tool) (Verdict, bool) {
	var writing []*stand
	for _, s := range o.accepted {
		if s.writing {
			writing = append(writing, s)
		}
		if s.open() || s.writing && it.decision == nil {
			return v, false
		}
	}
	if len(writing) > 0 {
		writes, reads := values(it.decision.Params, t.Paths.Writes), values(it.decision.Params, t.Paths.Reads)
		refs := references(it.decision.Params)
		for _, s := range writing {
			if p, ok := s.writesOne(o, writes); ok {
				return v.refuse(writ.CodeSameTarget, s, "it writes %q, which %s writes already in this round. "+
					"Next: read that result, then write in the next round, or use another path", short(p), s.sibling().subject()), true
			}
			if p, ok := s.writesOne(o, append(reads, refs...)); ok {
				return v.refuse(writ.CodeConsumesSibling, s, "it uses %q, which %s only makes in this round. "+
					"Next: call it in the next round, when that result is there", short(p), s.sibling().subject()), true
			}
		}
	}
	v.Accepted = true
	return v, true
}

func (o *Overseer) unclaimed(tool string) bool {
	for _, s := range o.accepted {
		if s.row != nil && s.item == nil && s.row.Tool == tool {
			return true
		}
	}
	return false
}

// claim gives the verdict of an action that is, or conflicts with, a row of an earlier attempt.
func (o *Overseer) claim(v Verdict, it *item, c Claim) Verdict {
	v.Claimed = &c
	for _, s := range o.accepted {
		if s.prior != c.Prior {
			continue
		}
		v.Against = s.sibling()
		if c.Conflict {
			v = v.refuse(writ.CodeRequestConflict, s, "%s of the same tool was started already with other arguments. "+
				"Next: go on from its result; call the tool again in the next round if it must run again", s.sibling().subject())
			s.item = it
			return v
		}
	}
	v.Accepted = true
	return v
}

// in gives the traits that the call's namespace argument selects. Without one, or with one that nothing is declared
// for, they are the tool's own; of one that cannot be compared nothing is known.
func (t Tool) in(it *item) writ.Traits {
	if t.Namespaces == nil || !it.nsClosed || string(it.namespace) == "null" {
		return t.Traits
	}
	s := text(it.namespace)
	if s == nil {
		return writ.Traits{}
	}
	ns := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(*s)), ":")
	if tr, ok := t.Namespaces[ns]; ok {
		return tr
	}
	if before, _, found := strings.Cut(ns, ":"); found {
		if tr, ok := t.Namespaces[before]; ok {
			return tr
		}
	}
	return t.Traits
}

// short bounds a name that the model wrote.
func short(s string) string {
	const most = 80
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
