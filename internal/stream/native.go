package stream

import (
	"encoding/json"
	"fmt"

	"writ"
)

// NativeParser reads the provider's own tool calls. Calls are told apart by the provider's block, never by id: ids may
// be empty or repeated. A call is complete when its block ends, not when its JSON happens to parse.
type NativeParser struct {
	output
	opt      Options
	blocks   map[int]*nativeBlock
	unsure   *nativeBlock // ended with no JSON or half of it: cut off, if the generation's end says so
	texts    int
	thoughts int
	actions  int
}

// nativeBlock is a block of the provider: prose or a call.
type nativeBlock struct {
	prose *prose
	call  *nativeCall
}

// nativeCall is one tool call. After its ActionClosed it only says whether more bytes come.
type nativeCall struct {
	out    *output
	body   body
	scan   scanner
	args   arguments
	from   int // where the object begins
	to     int // where it ends
	id     string
	name   string
	carry  string
	opaque json.RawMessage
	ended  bool // its block has ended
	closed bool // ActionClosed was emitted
	late   bool // LateBytes was emitted
}

// NewNative returns a parser of one generation in the native dialect.
func NewNative(o Options) *NativeParser {
	return &NativeParser{opt: o, blocks: map[int]*nativeBlock{}}
}

// Feed implements [Parser].
func (p *NativeParser) Feed(ev writ.ModelEvent, emit func(Event) bool) {
	if p.finished || p.stopped {
		return
	}
	p.emit = emit
	switch ev.Kind {
	case writ.ModelText:
		p.proseBlock(ev.Block, Text, &p.texts).add(&p.output, ev.Text)
	case writ.ModelThinking:
		p.proseBlock(ev.Block, Thinking, &p.thoughts).add(&p.output, ev.Text)
	case writ.ModelToolOpen:
		p.call(ev.Block, true).open(ev.ID, ev.Name)
	case writ.ModelToolArgs:
		p.call(ev.Block, false).add(ev.Text)
	case writ.ModelBlockEnd:
		p.endBlock(ev.Block, ev.Opaque)
	}
}

// settle decides about a doubtful call: another block began, so it was not the generation's end that cut it.
func (p *NativeParser) settle() {
	if c := p.unsure; c != nil {
		p.unsure = nil
		c.call.complete()
	}
}

func (p *NativeParser) proseBlock(n int, kind Kind, count *int) *prose {
	b := p.blocks[n]
	if b != nil && b.prose != nil && b.prose.kind == kind {
		return b.prose
	}
	p.settle()
	p.replace(b)
	b = &nativeBlock{prose: &prose{kind: kind, index: *count, exact: kind == Thinking}}
	*count++
	p.blocks[n] = b
	return b.prose
}

// replace ends a block whose number another one takes over without an end of its own.
func (p *NativeParser) replace(b *nativeBlock) {
	switch {
	case b == nil:
	case b.prose != nil:
		b.prose.end(&p.output, nil)
	case !b.call.closed:
		b.call.refuse(&Problem{Code: writ.CodeArgumentsUnparsable, Message: "its block turned into another kind of block before it ended",
			Hint: "send the call again", Offset: len(b.call.body.buf)})
	}
}

// call returns the block's call, a new one when the block is no call or is opened again after its end.
func (p *NativeParser) call(n int, opens bool) *nativeCall {
	b := p.blocks[n]
	if b != nil && b.call != nil && !(opens && b.call.ended) {
		if p.unsure != nil && p.unsure != b {
			p.settle()
		}
		return b.call
	}
	p.settle()
	if b != nil && b.prose != nil {
		p.replace(b)
	}
	c := &nativeCall{out: &p.output, body: body{max: p.opt.maxBytes()}}
	c.args = arguments{out: c.out, body: &c.body, index: p.actions, depth: 1, raw: -1}
	c.scan = newScanner(c, MaxDepth)
	p.blocks[n] = &nativeBlock{call: c}
	p.out(Event{Kind: ActionOpened, Index: p.actions})
	p.actions++
	return c
}

func (p *NativeParser) endBlock(n int, opaque json.RawMessage) {
	b := p.blocks[n]
	switch {
	case b == nil:
		if opaque != nil { // redacted thinking has no text
			p.settle()
			(&prose{kind: Thinking, exact: true, index: p.thoughts}).end(&p.output, opaque)
			p.thoughts++
		}
	case b.prose != nil:
		delete(p.blocks, n)
		b.prose.end(&p.output, opaque)
	case !b.call.ended:
		p.settle()
		c := b.call
		c.ended, c.opaque = true, opaque
		c.flush()
		if !c.scan.done() && !c.closed {
			p.unsure = b
			return
		}
		c.complete()
	}
}

// Finish implements [Parser]. A call whose block is open is truncated, whatever the finish. A text block counts as
// closed when the generation ended by itself; open thinking is never closed.
func (p *NativeParser) Finish(f writ.Finish, emit func(Event) bool) {
	if !p.finishing(f, emit) {
		return
	}
	whole := f == writ.FinishStop || f == writ.FinishTools
	if p.unsure != nil && !whole {
		c := p.unsure.call
		p.unsure = nil
		c.refuse(truncated(len(c.body.buf), f))
	}
	p.settle()
	for _, b := range p.inOrder() {
		switch {
		case b.call != nil && !b.call.closed:
			b.call.refuse(truncated(len(b.call.body.buf), f))
		case b.prose != nil && b.prose.kind == Text && whole:
			b.prose.end(&p.output, nil)
		}
	}
	p.end(f)
}

// inOrder returns the known blocks: text in order, then calls in order.
func (p *NativeParser) inOrder() []*nativeBlock {
	texts, calls := make([]*nativeBlock, p.texts), make([]*nativeBlock, p.actions)
	for _, b := range p.blocks {
		switch {
		case b.call != nil:
			calls[b.call.args.index] = b
		case b.prose.kind == Text:
			texts[b.prose.index] = b
		}
	}
	var out []*nativeBlock
	for _, b := range append(texts, calls...) {
		if b != nil {
			out = append(out, b)
		}
	}
	return out
}

func (c *nativeCall) open(id, name string) {
	if c.id == "" {
		c.id = id
	}
	switch {
	case name == "" || name == c.name || c.closed:
	case c.name != "":
		c.refuse(&Problem{Code: writ.CodeInvalidAction, Hint: "send each call in a block of its own",
			Message: fmt.Sprintf("its block names two tools, %q and %q", clip(c.name, 64), clip(name, 64))})
	default:
		c.name = name
		c.out.out(Event{Kind: ActionIdentified, Index: c.args.index, Action: writ.ActionCall, Tool: name})
	}
}

// add takes a piece of the arguments.
func (c *nativeCall) add(in string) {
	if c.carry != "" {
		in, c.carry = c.carry+in, ""
	}
	switch {
	case c.ended:
		for i := 0; i < len(in) && !c.late; i++ {
			if !isSpace(in[i]) {
				c.late = true
				c.out.out(Event{Kind: LateBytes, Index: c.args.index})
			}
		}
	case !c.closed:
		in, c.carry = wholeRunes(in)
		c.read(in)
	}
}

func (c *nativeCall) flush() {
	if !c.closed {
		c.read(c.carry)
	}
	c.carry = ""
}

func (c *nativeCall) read(in string) {
	n, p := c.body.read(&c.scan, in)
	c.args.flush(len(c.body.buf))
	for ; p == nil && n < len(in); n++ {
		if !isSpace(in[n]) {
			p = &Problem{Code: writ.CodeArgumentsUnparsable, Message: "something stands after the JSON object of the arguments",
				Hint: "send one JSON object as arguments, and each call in a block of its own", Offset: len(c.body.buf)}
		}
	}
	if p != nil {
		c.refuse(p)
	}
}

// complete closes the call at its block's end.
func (c *nativeCall) complete() {
	blank := c.scan.blank()
	switch {
	case c.closed:
	case c.name == "":
		c.refuse(&Problem{Code: writ.CodeInvalidAction, Message: "the call names no tool", Hint: "name the tool"})
	case !c.scan.done() && !blank:
		c.refuse(unended(len(c.body.buf)))
	default:
		d := c.known()
		d.Params = json.RawMessage("{}")
		if !blank {
			d.Params = c.body.buf[c.from:c.to:c.to]
		}
		c.close(d)
	}
}

func (c *nativeCall) known() *Decision {
	return &Decision{Index: c.args.index, Action: writ.ActionCall, Tool: c.name, ProviderID: c.id}
}

func (c *nativeCall) refuse(p *Problem) {
	d := c.known()
	d.Problem, d.Raw = p, preview(c.body.buf)
	c.close(d)
}

func (c *nativeCall) close(d *Decision) {
	c.closed = true
	c.out.out(Event{Kind: ActionClosed, Index: d.Index, Action: d.Action, Tool: d.Tool, Decision: d, Opaque: c.opaque})
	c.body, c.scan = body{}, scanner{}
}

func (c *nativeCall) key(depth int, name []byte) {
	if depth == 1 {
		c.args.key(name)
	}
}

func (c *nativeCall) begin(depth int, first byte, at int) (bool, *Problem) {
	switch {
	case depth == 0 && first != '{':
		return false, notObject()
	case depth == 0:
		c.from = at
	case depth == 1:
		return c.args.begin(first, at), nil
	}
	return false, nil
}

func (c *nativeCall) text(s string) { c.args.text(s) }

func (c *nativeCall) end(depth int, _ byte, from, to int) {
	switch depth {
	case 0:
		c.to = to
	case 1:
		c.args.end(from, to)
	}
}

func (c *nativeCall) twice(int) writ.Code { return writ.CodeArgumentsUnparsable }
