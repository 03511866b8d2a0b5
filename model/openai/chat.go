package openai

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"writ"
)

func (m *Model) streamChat(ctx context.Context, req *writ.ModelRequest, yield func(writ.ModelEvent, error) bool) {
	stream := m.chat.Completions.NewStreaming(ctx, m.chatParams(req))
	if err := stream.Err(); err != nil && !m.refusedUsage.Load() && refusedField(err, "stream_options") {
		m.refusedUsage.Store(true)
		m.book.Remark("stream_options is left out: the server refuses it, so usage may be estimated")
		stream = m.chat.Completions.NewStreaming(ctx, m.chatParams(req))
	}
	defer stream.Close()
	c := chatReader{m: m, yield: yield, calls: map[int64]*chatCall{}}
	for !c.done && stream.Next() {
		ev := stream.Current()
		c.chunk(&ev)
	}
	err := stream.Err()
	var event *ssestream.StreamError
	said := errors.As(err, &event)
	if err != nil && c.finish != "" && !said {
		err = nil // the message is over; what broke came after it
	}
	switch {
	case c.done:
	case err != nil:
		yield(writ.ModelEvent{}, m.failure(ctx, err))
	case c.failed != nil:
		yield(writ.ModelEvent{}, c.failed)
	default:
		c.end()
	}
}

// chatReader turns chunks into model events. Chat Completions marks no block's end: a text ends where a call begins, a
// call where a later index begins, if its arguments are a whole object by then, and all at the finish reason.
type chatReader struct {
	m      *Model
	yield  func(writ.ModelEvent, error) bool
	done   bool
	blocks int
	prose  writ.ModelEventKind // of the open prose block; 0 = none
	nprose int
	calls  map[int64]*chatCall // by the vendor's index; the newest of each
	order  []*chatCall
	last   *chatCall
	usage  writ.Usage
	finish writ.Finish
	failed error
	refuse bool
}

// chatCall is one call. Its name is held back until its arguments begin: it may come in pieces.
type chatCall struct {
	index    int64
	block    int
	id, name string
	said     bool // ModelToolOpen was emitted
	named    bool // with the name
	closed   bool
	depth    depth
}

func (c *chatReader) emit(e writ.ModelEvent) {
	if !c.done && !c.yield(e, nil) {
		c.done = true
	}
}

func (c *chatReader) chunk(ev *sdk.ChatCompletionChunk) {
	if ev.JSON.Usage.Valid() {
		u := &ev.Usage
		if got := usage(u.PromptTokens, u.CompletionTokens, u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens); got != c.usage {
			c.usage = got
			c.emit(writ.ModelEvent{Kind: writ.ModelUsage, Usage: got})
		}
	}
	for i := range ev.Choices {
		if ch := &ev.Choices[i]; ch.Index == 0 {
			c.delta(&ch.Delta)
			c.reason(ch.FinishReason)
		}
	}
}

func (c *chatReader) delta(d *sdk.ChatCompletionChunkChoiceDelta) {
	if s := reasoning(d.JSON.ExtraFields); s != "" {
		c.say(writ.ModelThinking, s)
	}
	c.say(writ.ModelText, d.Content)
	if d.Refusal != "" {
		c.refuse = true
		c.say(writ.ModelText, d.Refusal)
	}
	for i := range d.ToolCalls {
		t := &d.ToolCalls[i]
		c.tool(c.find(t), t.ID, t.Function.Name, arguments(t.Function.Arguments, t.Function.JSON.Arguments))
	}
	//lint:ignore SA1019 old servers still send it
	if f := &d.FunctionCall; f.Name != "" || f.Arguments != "" { // the form before tool_calls
		t := &sdk.ChatCompletionChunkChoiceDeltaToolCall{}
		c.tool(c.find(t), "", f.Name, f.Arguments)
	}
}

// reasoning reads what vLLM, llama.cpp, DeepSeek (reasoning_content) and Ollama, OpenRouter (reasoning) add.
func reasoning(extra map[string]respjson.Field) string {
	for _, k := range []string{"reasoning_content", "reasoning"} {
		var s string
		if f, ok := extra[k]; ok && json.Unmarshal([]byte(f.Raw()), &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// arguments are a string of JSON; some servers send the object itself.
func arguments(s string, f respjson.Field) string {
	if raw := f.Raw(); len(raw) > 0 && raw[0] == '{' {
		return raw
	}
	return s
}

func (c *chatReader) say(kind writ.ModelEventKind, s string) {
	if s == "" {
		return
	}
	if c.prose != kind {
		c.endProse()
		c.prose, c.nprose = kind, c.block()
	}
	c.emit(writ.ModelEvent{Kind: kind, Block: c.nprose, Text: s})
}

func (c *chatReader) endProse() {
	if c.prose != 0 {
		c.prose = 0
		c.emit(writ.ModelEvent{Kind: writ.ModelBlockEnd, Block: c.nprose})
	}
}

func (c *chatReader) block() int {
	c.blocks++
	return c.blocks - 1
}

// find returns the call a delta belongs to: by index, which some servers leave out or repeat for every call. A new id
// together with a name begins a new call there.
func (c *chatReader) find(t *sdk.ChatCompletionChunkChoiceDeltaToolCall) *chatCall {
	index := t.Index
	call := c.calls[index]
	begins := t.ID != "" && t.Function.Name != ""
	switch {
	case !t.JSON.Index.Valid() && c.last != nil && (t.ID == "" || t.ID == c.last.id):
		return c.last
	case !t.JSON.Index.Valid() && begins && c.last != nil:
		index = c.last.index + 1
		call = nil
	case call != nil && !(begins && call.id != "" && t.ID != call.id):
		c.last = call
		return call
	}
	return c.open(index)
}

func (c *chatReader) open(index int64) *chatCall {
	c.endProse()
	for _, o := range c.order {
		o.announce(c) // the order of calls is the order of their beginnings
		if !o.closed && o.index <= index && o.depth.whole() && !c.m.late.Load() {
			c.close(o)
		}
	}
	call := &chatCall{index: index, block: c.block()}
	c.calls[index] = call
	c.order = append(c.order, call)
	c.last = call
	return call
}

func (c *chatReader) tool(call *chatCall, id, name, args string) {
	if call.id == "" {
		call.id = id
	}
	if name != call.name { // some servers repeat the whole name in every delta
		call.name += name
	}
	if args == "" {
		return
	}
	c.endProse()
	if call.closed {
		if !blank(args) && !c.m.late.Swap(true) {
			c.m.book.Remark("a call's arguments went on after a later call had begun: calls close only at the end of the message now")
		}
	} else {
		call.announce(c)
		call.depth.add(args)
	}
	c.emit(writ.ModelEvent{Kind: writ.ModelToolArgs, Block: call.block, Text: args})
}

// announce says what is known of the call: that it began, and its name once there is one.
func (call *chatCall) announce(c *chatReader) {
	if call.said && (call.named || call.name == "") {
		return
	}
	call.said, call.named = true, call.name != ""
	c.emit(writ.ModelEvent{Kind: writ.ModelToolOpen, Block: call.block, ID: call.id, Name: call.name})
}

func (c *chatReader) close(call *chatCall) {
	call.announce(c)
	call.closed = true
	c.emit(writ.ModelEvent{Kind: writ.ModelBlockEnd, Block: call.block})
}

// reason keeps the finish reason: the last one, but a cut or a filter is never taken back.
func (c *chatReader) reason(s string) {
	switch s {
	case "":
		return
	case "error", "network_error":
		c.failed = &writ.ModelError{Class: writ.ErrorInternal, Message: "the provider ended the message with the finish reason " + s}
	}
	if c.finish != writ.FinishLength && c.finish != writ.FinishFilter {
		c.finish = chatFinish(s)
	}
}

// chatFinish maps the finish reasons of OpenAI and of the servers that speak like it. An unknown one is no end that
// anyone vouches for: it counts as cut.
func chatFinish(s string) writ.Finish {
	switch s {
	case "stop", "eos", "end_turn", "stop_sequence":
		return writ.FinishStop
	case "tool_calls", "function_call":
		return writ.FinishTools
	case "length", "max_tokens", "model_length":
		return writ.FinishLength
	case "content_filter", "sensitive":
		return writ.FinishFilter
	case "refusal":
		return writ.FinishRefused
	}
	return ""
}

// end closes everything at the finish reason. Without one the message was cut, [DONE] or not, and nothing more closes.
func (c *chatReader) end() {
	if c.finish == "" {
		return
	}
	if c.refuse && c.finish == writ.FinishStop {
		c.finish = writ.FinishRefused
	}
	c.endProse()
	for _, call := range c.order {
		call.announce(c)
		// Cut by its limit or by a filter, the message ended inside its last call, however whole that looks.
		cut := (c.finish == writ.FinishLength || c.finish == writ.FinishFilter) && (call == c.last || !call.depth.whole())
		if !call.closed && !cut {
			c.close(call)
		}
	}
	c.emit(writ.ModelEvent{Kind: writ.ModelFinish, Finish: c.finish})
	c.done = true
}

// depth follows the brackets of JSON: whether one object has begun and ended.
type depth struct {
	n       int
	begun   bool
	str     bool
	escaped bool
}

func (d *depth) add(s string) {
	for i := range len(s) {
		ch := s[i]
		switch {
		case d.str && d.escaped:
			d.escaped = false
		case d.str:
			d.escaped = ch == '\\'
			d.str = ch != '"'
		case ch == '"':
			d.str = true
		case ch == '{' || ch == '[':
			d.n++
			d.begun = true
		case ch == '}' || ch == ']':
			d.n--
		}
	}
}

func (d *depth) whole() bool { return d.begun && d.n == 0 && !d.str }

func blank(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(b byte) bool { return b != ' ' && b != '\n' && b != '\t' && b != '\r' })
}
