package stream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"writ"
)

// decision reads the one JSON decision of an action block:
//
//	{"action": "call_tool|complete|exit", "notes": "…", "tool_call": {"tool_id": "…", "params": {…}},
//	 "final_answer": "…", "suggested_followups": ["…"]}
//
// Keys may come in any order; others are left alone. A code fence around the object is accepted.
type decision struct {
	out  *output
	body body
	scan scanner
	args arguments

	phase phase
	info  bool  // the word after an opening code fence may go on
	field field // of the open or last value of the decision
	sub   field // of the open or last value inside tool_call

	action, tool  strings.Builder
	notes, answer strings.Builder
	closed        [fieldCount]byte // first byte of every closed field; 0 when it has not closed
	params, ended int              // the parameters are body.buf[params:ended]
	followups     []string
	identified    bool
}

type field uint8

const (
	fieldOther field = iota
	fieldAction
	fieldNotes
	fieldCall
	fieldAnswer
	fieldFollowups
	fieldTool
	fieldParams
	fieldCount
)

var decisionFields = map[string]field{"action": fieldAction, "notes": fieldNotes, "tool_call": fieldCall,
	"final_answer": fieldAnswer, "suggested_followups": fieldFollowups}

var callFields = map[string]field{"tool_id": fieldTool, "params": fieldParams}

// phase is where in the block the reader is.
type phase uint8

const (
	beforeJSON phase = iota
	inJSON
	afterJSON
)

// callDepth is how deep the parameters stand in a decision.
const callDepth = 2

func newDecision(out *output, index, maxBytes int) *decision {
	d := &decision{out: out, body: body{max: maxBytes}}
	d.args = arguments{out: out, body: &d.body, index: index, depth: callDepth + 1, raw: -1}
	d.scan = newScanner(d, MaxDepth+callDepth)
	return d
}

// read takes what belongs to the block and returns how many bytes that was. Without a problem, a rest begins with "<"
// outside a string; with one, in[n] is the first byte that was not taken.
func (d *decision) read(in string) (n int, p *Problem) {
	for n < len(in) && p == nil {
		var m int
		if d.phase == inJSON {
			m, p = d.body.read(&d.scan, in[n:])
			if d.scan.done() {
				d.phase = afterJSON
			}
		} else {
			m, p = d.margin(in[n:])
		}
		n += m
		if d.scan.lt || p == nil && n < len(in) && in[n] == '<' && d.phase != inJSON {
			p = nil // perhaps a tag; if not, stray says what is wrong
			break
		}
	}
	d.args.flush(len(d.body.buf))
	return n, p
}

// quoted reports whether the next byte belongs to a string, where a tag is payload.
func (d *decision) quoted() bool { return d.phase == inJSON && d.scan.quoted() }

// margin reads white space and the code fence around the object: a run of backticks, perhaps with a word such as "json"
// right after them.
func (d *decision) margin(in string) (n int, p *Problem) {
	for ; n < len(in); n++ {
		c := in[n]
		switch {
		case c == '<':
			return n, nil
		case c == '`':
			d.info = true
			continue
		case d.info && nameByte(c):
			continue
		case isSpace(c):
		case d.phase == beforeJSON && c == '{':
			d.phase = inJSON
			return n, nil
		default:
			return n, d.stray(in[n:])
		}
		d.info = false
	}
	return n, nil
}

// stray is the problem of something that stands where no JSON can.
func (d *decision) stray(in string) *Problem {
	p := &Problem{Code: writ.CodeInvalidAction, Offset: len(d.body.buf)}
	r, _ := utf8.DecodeRuneInString(in)
	switch {
	case d.phase == inJSON:
		return d.scan.unexpected(in, 0, wanted[min(int(d.scan.state), len(wanted)-1)])
	case d.phase == beforeJSON:
		p.Message = fmt.Sprintf("an action block must hold one JSON object and nothing before it, and this one has %q", r)
		p.Hint = "begin the block with {"
	case r == '{':
		p.Message = "an action block holds a second JSON object"
		p.Hint = "write one decision in each action block; nothing of this block was run"
	default:
		p.Message = fmt.Sprintf("%q stands after the JSON object of an action block", r)
		p.Hint = "end the block right after the object"
	}
	return p
}

func (d *decision) key(depth int, name []byte) {
	switch {
	case depth == 1:
		d.field, d.sub = decisionFields[string(name)], fieldOther
	case depth == callDepth && d.field == fieldCall:
		d.sub = callFields[string(name)]
	case depth == d.args.depth && d.inParams():
		d.args.key(name)
	}
}

func (d *decision) inParams() bool { return d.field == fieldCall && d.sub == fieldParams }

func (d *decision) begin(depth int, first byte, at int) (bool, *Problem) {
	switch {
	case depth == 1 && d.field == fieldCall && first != '{' && first != 'n':
		return false, &Problem{Code: writ.CodeInvalidAction, Message: "tool_call is not an object",
			Hint: `write "tool_call": {"tool_id": "…", "params": {…}}`}
	case depth == 1:
		return first == '"', nil
	case depth == callDepth && d.inParams():
		if first != '{' {
			return false, notObject()
		}
		d.params = at
	case depth == callDepth && d.field == fieldCall:
		return first == '"' && d.sub == fieldTool, nil
	case depth == d.args.depth && d.inParams():
		return d.args.begin(first, at), nil
	}
	return false, nil
}

func notObject() *Problem {
	return &Problem{Code: writ.CodeArgumentsUnparsable, Message: "the parameters are not a JSON object",
		Hint: "send an object, {} when there are none; not a string that holds JSON"}
}

func (d *decision) text(s string) {
	switch {
	case d.inParams():
		d.args.text(s)
	case d.sub == fieldTool:
		d.tool.WriteString(s)
	case d.field == fieldAction:
		d.action.WriteString(s)
	case d.field == fieldNotes:
		d.notes.WriteString(s)
		d.out.out(Event{Kind: Notes, Index: d.args.index, Text: s})
	case d.field == fieldAnswer:
		d.answer.WriteString(s)
		d.out.out(Event{Kind: Answer, Index: d.args.index, Text: s})
	}
}

func (d *decision) end(depth int, first byte, from, to int) {
	switch {
	case depth == d.args.depth && d.inParams():
		d.args.end(from, to)
	case depth == callDepth && d.field == fieldCall:
		if d.sub == fieldParams {
			d.ended = to
		}
		d.closed[d.sub] = first
	case depth == 1:
		if d.field == fieldFollowups && first == '[' {
			if json.Unmarshal(d.body.slice(from, to), &d.followups) != nil {
				d.followups, first = nil, '!' // not a list of strings
			}
		}
		d.closed[d.field] = first
	}
	d.identify()
}

// identify reports what the action is at the first byte that makes it certain.
func (d *decision) identify() {
	if d.identified {
		return
	}
	action := ""
	if d.closed[fieldAction] == '"' {
		action = d.action.String()
	}
	e := Event{Kind: ActionIdentified, Index: d.args.index, Action: action}
	switch action {
	case writ.ActionCall:
		if d.closed[fieldTool] != '"' || d.tool.Len() == 0 {
			return
		}
		e.Tool = d.tool.String()
	case writ.ActionComplete, writ.ActionExit:
	default:
		return
	}
	d.identified = true
	d.out.out(e)
}

func (d *decision) twice(depth int) writ.Code {
	if depth == 1 || depth == callDepth && d.field == fieldCall {
		return writ.CodeInvalidAction
	}
	return writ.CodeArgumentsUnparsable
}

// close gives the decision at the end of its block.
func (d *decision) close() *Decision {
	switch d.phase {
	case beforeJSON:
		return d.refuse(&Problem{Code: writ.CodeInvalidAction, Message: "the action block is empty", Hint: "write one JSON decision in it"})
	case inJSON:
		return d.refuse(unended(len(d.body.buf)))
	}
	if p := d.check(); p != nil {
		return d.refuse(p)
	}
	out := d.known()
	if out.Action == writ.ActionCall {
		if d.closed[fieldAnswer] != 0 && d.closed[fieldAnswer] != 'n' {
			out.Dropped = append(out.Dropped, "final_answer")
		}
		out.Answer, out.AnswerClosed = "", false
		out.Params = json.RawMessage("{}")
		if d.ended > 0 {
			out.Params = unescaped(d.body.buf[d.params:d.ended:d.ended])
		}
	}
	slices.Sort(out.Dropped)
	return out
}

// known gives what was read so far, parameters left out.
func (d *decision) known() *Decision {
	out := &Decision{Index: d.args.index, Action: clip(d.action.String(), 64), Tool: d.tool.String(), Notes: d.notes.String(),
		Answer: d.answer.String(), AnswerClosed: d.closed[fieldAnswer] == '"', Followups: d.followups}
	if c := d.closed[fieldNotes]; c != 0 && c != '"' && c != 'n' {
		out.Dropped = append(out.Dropped, "notes")
	}
	if c := d.closed[fieldFollowups]; c != 0 && c != '[' && c != 'n' {
		out.Dropped = append(out.Dropped, "suggested_followups")
	}
	return out
}

func (d *decision) refuse(p *Problem) *Decision {
	out := d.known()
	out.Problem, out.Raw = p, preview(d.body.buf)
	return out
}

// check is the shape of a whole decision.
func (d *decision) check() *Problem {
	invalid := func(hint, format string, args ...any) *Problem {
		return &Problem{Code: writ.CodeInvalidAction, Message: fmt.Sprintf(format, args...), Hint: hint, Offset: len(d.body.buf)}
	}
	actions := `write "action": "call_tool", "complete" or "exit"`
	switch c := d.closed[fieldAction]; {
	case c == 0:
		return invalid(actions, "the decision has no action")
	case c != '"':
		return invalid(actions, "the action is not a string")
	}
	switch action := d.action.String(); action {
	case writ.ActionCall:
		if d.closed[fieldTool] != '"' || d.tool.Len() == 0 {
			return invalid(`write "tool_call": {"tool_id": "…", "params": {…}}`, "call_tool has no tool_call.tool_id")
		}
		return nil
	case writ.ActionComplete, writ.ActionExit:
		if d.tool.Len() > 0 {
			return invalid("call the tool in an action block of its own", "%s holds a tool_call", action)
		}
		c := d.closed[fieldAnswer]
		if c != 0 && c != '"' && c != 'n' {
			return invalid(`write "final_answer": "…"`, "final_answer is not a string")
		}
		if action == writ.ActionComplete && strings.TrimSpace(d.answer.String()) == "" {
			return invalid(`write "final_answer": "…", or use "exit"`, "complete has no final_answer")
		}
		return nil
	default:
		return invalid(actions, "%q is no action", clip(action, 64))
	}
}
