package stream

import (
	"fmt"
	"strings"

	"writ"
)

// ChannelParser reads the channel dialect:
//
//	<channel:thinking>…</channel:thinking>
//	<channel:action>{"action": "call_tool", …}</channel:action>
//	<channel:code>…</channel:code>
//	<channel:summary>…</channel:summary>
//
// Names are case-insensitive; an unknown channel is skipped whole; text outside channels is dropped and counted. An
// opening tag also closes the channel before it; a closing tag that fits nothing is ignored. Inside a JSON string a tag
// is payload, and inside a code channel every tag but its own closing one is. The first visible thing must be one of
// the four channels.
type ChannelParser struct {
	output
	opt   Options
	carry string // the beginning of a UTF-8 character
	tag   tagMatcher

	mode    mode
	skip    string // mode skipping: the channel's name
	begun   bool   // one of the four channels was seen
	dead    bool   // Impossible was emitted
	outside int

	thought  *prose         // the thinking channel
	native   map[int]*prose // thinking blocks that the provider sends beside the text
	thoughts int
	actions  int
	act      *decision // the open action; nil in mode acting when it was refused already
	broken   lexer     // mode acting without act: where strings are
	code     codeWait
}

type mode uint8

const (
	between mode = iota
	thinking
	summing
	acting
	coding
	skipping
)

// NewChannel returns a parser of one generation in the channel dialect.
func NewChannel(o Options) *ChannelParser { return &ChannelParser{opt: o} }

// Outside returns how many bytes of text, white space apart, stood outside channels and were dropped.
func (p *ChannelParser) Outside() int { return p.outside }

// Feed implements [Parser]. Native tool calls are no part of this dialect and are dropped.
func (p *ChannelParser) Feed(ev writ.ModelEvent, emit func(Event) bool) {
	if p.finished || p.stopped {
		return
	}
	p.emit = emit
	switch ev.Kind {
	case writ.ModelText:
		in, rest := wholeRunes(p.carry + ev.Text)
		p.carry = rest
		p.feed(in)
	case writ.ModelThinking:
		b := p.native[ev.Block]
		if b == nil {
			b = p.newThought(true)
			if p.native == nil {
				p.native = map[int]*prose{}
			}
			p.native[ev.Block] = b
		}
		b.add(&p.output, ev.Text)
	case writ.ModelBlockEnd:
		if b := p.native[ev.Block]; b != nil {
			delete(p.native, ev.Block)
			b.end(&p.output, ev.Opaque)
		} else if ev.Opaque != nil {
			p.newThought(true).end(&p.output, ev.Opaque)
		}
	}
}

func (p *ChannelParser) newThought(exact bool) *prose {
	p.thoughts++
	return &prose{kind: Thinking, index: p.thoughts - 1, exact: exact}
}

func (p *ChannelParser) feed(in string) {
	for i := 0; i < len(in) && !p.stopped && !p.dead; {
		switch {
		case p.tag.open():
			i = p.matchTag(in, i)
		case p.mode == acting:
			i += p.read(in[i:])
		default:
			n := strings.IndexByte(in[i:], '<')
			if n < 0 {
				n = len(in) - i
			}
			if n > 0 {
				p.take(in[i:i+n], in[i+n:])
			}
			if i += n; i < len(in) {
				p.tag.step('<')
				i++
			}
		}
	}
}

// matchTag goes on with a possible tag. When it is none, what was held is text.
func (p *ChannelParser) matchTag(in string, i int) int {
	for ; i < len(in); i++ {
		switch p.tag.step(in[i]) {
		case tagDone:
			p.onTag(in[i+1:])
			return i + 1
		case tagNone:
			p.noTag(in[i:])
			return i
		}
	}
	return i
}

func (p *ChannelParser) noTag(rest string) {
	held := p.tag.text()
	p.tag.reset()
	switch {
	case p.mode != acting:
		p.take(held, rest)
	case p.act != nil:
		p.refuse(p.act.stray(held))
	}
}

func (p *ChannelParser) onTag(rest string) {
	name, end, held := p.tag.channel(), p.tag.end, p.tag.text()
	p.tag.reset()
	if p.mode == coding || p.mode == skipping && p.skip == "code" {
		if end && name == "code" {
			p.close()
		} else {
			p.take(held, rest)
		}
		return
	}
	switch {
	case !end:
		p.close()
		p.open(name)
	case name == p.channel():
		p.close()
	}
}

// channel is the name of the open channel.
func (p *ChannelParser) channel() string {
	switch p.mode {
	case thinking:
		return "thinking"
	case summing:
		return "summary"
	case acting:
		return "action"
	case coding:
		return "code"
	case skipping:
		return p.skip
	}
	return ""
}

func (p *ChannelParser) open(name string) {
	switch name {
	case "thinking":
		p.mode, p.thought = thinking, p.newThought(false)
	case "summary":
		p.mode = summing
	case "action":
		p.codeNever()
		p.mode = acting
		p.act = newDecision(&p.output, p.actions, p.opt.maxBytes())
		p.out(Event{Kind: ActionOpened, Index: p.actions})
		p.actions++
	case "code":
		p.mode, p.skip = skipping, name
		if p.code.waits() {
			p.mode = coding
		}
	default:
		p.mode, p.skip = skipping, name
		return // skipped whole: nothing visible has begun
	}
	p.begun = true
}

// close ends the open channel at a tag.
func (p *ChannelParser) close() {
	mode := p.mode
	p.mode, p.skip = between, ""
	switch mode {
	case thinking:
		p.thought.end(&p.output, nil)
	case acting:
		if act := p.act; act != nil {
			p.act = nil
			p.closeAction(act.close())
		}
	case coding:
		p.closed(p.code.end(&p.output))
	}
}

// closeAction emits a decision, or keeps it until its code has come.
func (p *ChannelParser) closeAction(d *Decision) {
	if d.Problem == nil && d.Action == writ.ActionCall {
		if param := p.opt.codeParam(d.Tool); param != "" {
			p.code = codeWait{decision: d, param: param, max: p.opt.maxBytes()}
			return
		}
	}
	p.closed(d)
}

func (p *ChannelParser) closed(d *Decision) {
	p.out(Event{Kind: ActionClosed, Index: d.Index, Action: d.Action, Tool: d.Tool, Decision: d})
}

// codeNever emits an action whose code did not come.
func (p *ChannelParser) codeNever() {
	if p.code.waits() {
		p.closed(p.code.never())
	}
}

// read lets the open action take what is its own, or skips what a refused one left.
func (p *ChannelParser) read(in string) (n int) {
	if p.act == nil {
		n = p.broken.skip(in)
	} else {
		var problem *Problem
		n, problem = p.act.read(in)
		if problem != nil {
			p.refuse(problem)
			return n
		}
	}
	if n < len(in) { // a "<" outside strings
		p.tag.step('<')
		n++
	}
	return n
}

// refuse closes the open action at once: nothing that follows in its block can mend it.
func (p *ChannelParser) refuse(problem *Problem) {
	act := p.act
	p.act, p.broken = nil, lexer{quoted: act.quoted()}
	p.closed(act.refuse(problem))
}

// take handles text of the open channel, or between channels. rest is what follows it in this piece.
func (p *ChannelParser) take(text, rest string) {
	switch p.mode {
	case thinking:
		p.thought.add(&p.output, text)
	case summing:
		p.out(Event{Kind: Summary, Text: validText(text)})
	case coding:
		if problem := p.code.add(&p.output, validText(text)); problem != nil {
			p.mode, p.skip = skipping, "code"
			p.closed(p.code.refuse(problem))
		}
	case between:
		visible := strings.TrimLeft(text, " \t\r\n")
		if visible == "" {
			return
		}
		if !p.begun {
			p.impossible(visible + rest)
			return
		}
		for i := range len(visible) {
			if !isSpace(visible[i]) {
				p.outside++
			}
		}
	}
}

// impossible gives up on the message. How much the preview shows depends on what had arrived; nothing else does.
func (p *ChannelParser) impossible(text string) {
	p.out(Event{Kind: Impossible, Text: clip(text, 200)})
	p.dead = true
}

// Finish implements [Parser]. An action whose block is open is truncated, whatever the finish; so is one whose code is
// still missing when the generation did not stop by itself.
func (p *ChannelParser) Finish(f writ.Finish, emit func(Event) bool) {
	stopped := p.stopped
	if !p.finishing(f, emit) {
		return
	}
	if !stopped && !p.dead {
		p.finishText()
	}
	whole := f == writ.FinishStop || f == writ.FinishTools
	switch {
	case p.mode == acting && p.act != nil:
		p.closed(p.act.refuse(truncated(len(p.act.body.buf), f)))
	case p.code.waits() && (p.mode == coding || !whole):
		p.closed(p.code.refuse(truncated(p.code.text.Len(), f)))
	case p.code.waits():
		p.codeNever()
	case p.mode == thinking && whole:
		p.thought.end(&p.output, nil)
	}
	p.end(f)
}

// finishText releases what was held back: a cut character, then a tag that will not be one.
func (p *ChannelParser) finishText() {
	p.feed(p.carry)
	if p.tag.open() && p.mode != acting && !p.dead {
		p.noTag("")
	}
}

// lexer skips the rest of a refused action. It only follows strings, so that a tag quoted in one still opens nothing.
type lexer struct{ quoted, escaped bool }

// skip returns where the first "<" outside a string is, or len(in).
func (l *lexer) skip(in string) int {
	for i := 0; i < len(in); i++ {
		switch c := in[i]; {
		case l.escaped:
			l.escaped = false
		case c == '"':
			l.quoted = !l.quoted
		case c == '\\':
			l.escaped = l.quoted
		case c == '<' && !l.quoted:
			return i
		}
	}
	return len(in)
}

// codeWait is a closed action that waits for its code channel.
type codeWait struct {
	decision *Decision // nil when none waits
	param    string
	text     strings.Builder
	max      int
}

func (c *codeWait) waits() bool { return c.decision != nil }

// add takes a piece of the code.
func (c *codeWait) add(out *output, text string) (p *Problem) {
	if room := c.max - len(c.decision.Params) - c.text.Len(); len(text) > room {
		text = text[:runeCut(text, max(room, 0))]
		p = (&body{max: c.max}).tooLarge()
	}
	c.text.WriteString(text)
	if text != "" {
		out.out(Event{Kind: Argument, Index: c.decision.Index, Arg: c.param, Text: text})
	}
	return p
}

// never gives the decision as it is, without code.
func (c *codeWait) never() *Decision {
	d := c.decision
	*c = codeWait{}
	return d
}

func (c *codeWait) refuse(p *Problem) *Decision {
	c.decision.Problem, c.decision.Raw, c.decision.Params = p, preview([]byte(c.text.String())), nil
	return c.never()
}

// end gives the decision with its code.
func (c *codeWait) end(out *output) *Decision {
	value := quote(Unescape(c.text.String()))
	params, ok := fill(c.decision.Params, c.param, value)
	if !ok {
		return c.refuse(&Problem{Code: writ.CodeInvalidAction, Hint: "leave it out of params",
			Message: fmt.Sprintf("the parameter %q is given twice, in params and in the code channel", c.param)})
	}
	e := Event{Kind: ArgumentClosed, Index: c.decision.Index, Arg: c.param}
	if len(value) <= MaxArgumentValue {
		e.Value = value
	}
	out.out(e)
	c.decision.Params = params
	return c.never()
}
