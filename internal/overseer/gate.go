package overseer

import (
	"strings"

	"writ"
	"writ/internal/stream"
)

// pending is text that waits for a verdict; adjacent deltas are joined.
type pending struct {
	Shown
	text strings.Builder
}

// gate holds one lane of an action. Pending keeps what comes, allowed flushes and passes, denied drops for ever. A
// decided gate stays as it is.
type gate struct {
	decided bool
	allowed bool
	pending []*pending
	shown   strings.Builder // what reached the sink; the answer lane only
	closed  bool            // the answer's string was read to its end
}

func (gt *gate) pass(s Shown, g *giver) {
	switch {
	case !gt.decided:
		n := len(gt.pending)
		if n == 0 || gt.pending[n-1].Lane != s.Lane || gt.pending[n-1].Arg != s.Arg {
			gt.pending = append(gt.pending, &pending{Shown: s})
			n++
		}
		gt.pending[n-1].text.WriteString(s.Text)
	case gt.allowed:
		gt.show(s, g)
	}
}

func (gt *gate) show(s Shown, g *giver) {
	if s.Lane == LaneAnswer {
		gt.shown.WriteString(s.Text)
	}
	g.give(s)
}

func (gt *gate) decide(allow bool, g *giver) {
	if gt.decided {
		return
	}
	held := gt.pending
	gt.decided, gt.allowed, gt.pending = true, allow, nil
	if allow {
		for _, p := range held {
			p.Text = p.text.String()
			gt.show(p.Shown, g)
		}
	}
}

// prose is the native dialect's text. It is shown as provisional until something non-neutral was accepted; what comes
// after is held to the round's end.
type prose struct {
	whole strings.Builder
	shown strings.Builder
	held  []Shown
	open  map[int]bool // shown blocks; false when they have ended
}

func (p *prose) add(e stream.Event, neutral bool, g *giver) {
	p.whole.WriteString(e.Text)
	s := Shown{Lane: LaneText, Index: e.Index, Text: e.Text}
	if !neutral || len(p.held) > 0 {
		p.held = append(p.held, s)
		return
	}
	if p.open == nil {
		p.open = map[int]bool{}
	}
	p.open[e.Index] = true
	p.shown.WriteString(s.Text)
	g.give(s)
}

func (p *prose) close(index int) {
	if p.open[index] {
		p.open[index] = false
	}
}

func (p *prose) closed() bool {
	for _, open := range p.open {
		if open {
			return false
		}
	}
	return true
}

// end shows what was held and says what the text was. alone says that nothing in the round forbids an answer.
func (p *prose) end(f writ.Finish, alone bool, g *giver) Ended {
	text := p.whole.String()
	answer := f == writ.FinishStop && alone && strings.TrimSpace(text) != ""
	for _, s := range p.held {
		if answer {
			p.shown.WriteString(s.Text)
		} else {
			s.Lane, s.Index = LaneNotes, -1
		}
		g.give(s)
	}
	p.held = nil
	return Ended{Finish: f, Answer: answer, Text: text}
}
