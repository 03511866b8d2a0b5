package model_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"writ"
	"writ/internal/stream"
	"writ/model/anthropic"
)

// script reads a stream's shape out of fuzz bytes: any bytes give a well-formed stream.
type script struct {
	in []byte
}

func (s *script) next(n int) int {
	if len(s.in) == 0 {
		return 0
	}
	b := s.in[0]
	s.in = s.in[1:]
	return int(b) % n
}

// fragments are what deltas are made of: JSON in pieces, characters of all lengths, escapes, what looks like the wire.
var fragments = []string{"", " ", "a", "é", "日本", "🙂", "{", "}", `{"n":`, "1}", `{"n":1}`, `"`, `\`, "\n", "data: x", "\r\n\r\n", "\u2028", `{"s":"`, `}"}`, "<channel:action>", "\x00", "[DONE]"}

func (s *script) fragment() string { return fragments[s.next(len(fragments))] }

var fuzzNames = []string{"probe__add", "probe__look", "", "x"}
var fuzzIDs = []string{"id_1", "", "id_1", "id_2"}

func sse(b *strings.Builder, event string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	if event != "" {
		fmt.Fprintf(b, "event: %s\n", event)
	}
	fmt.Fprintf(b, "data: %s\n\n", data)
}

// noise is what may stand between events.
func (s *script) noise(b *strings.Builder) {
	b.WriteString([]string{"", "", "", ": ping\n\n", "\n", ":\n"}[s.next(6)])
}

type obj = map[string]any

// anthropicStream makes content blocks that open, interleave and close, and an end that may be missing.
func anthropicStream(s *script) string {
	var b strings.Builder
	ev := func(o obj) { s.noise(&b); sse(&b, o["type"].(string), o) }
	ev(obj{"type": "message_start", "message": obj{"id": "m", "type": "message", "role": "assistant", "content": []any{}, "usage": obj{"input_tokens": s.next(100), "output_tokens": 1}}})
	kinds := map[int]string{}
	var open []int
	for n := 0; len(s.in) > 4; {
		switch op := s.next(8); {
		case op < 2 || len(open) == 0:
			kind := []string{"text", "tool_use", "thinking", "redacted_thinking", "server_tool_use"}[s.next(5)]
			ev(obj{"type": "content_block_start", "index": n, "content_block": obj{"type": kind, "text": "", "thinking": "", "data": s.fragment(), "id": fuzzIDs[s.next(4)], "name": fuzzNames[s.next(4)], "input": obj{}}})
			kinds[n] = kind
			open = append(open, n)
			n++
		case op == 2:
			i := s.next(len(open))
			ev(obj{"type": "content_block_stop", "index": open[i]})
			open = append(open[:i:i], open[i+1:]...)
		case op == 3:
			ev(obj{"type": "ping"})
		default:
			i := open[s.next(len(open))]
			f := s.fragment()
			ev(obj{"type": "content_block_delta", "index": i, "delta": map[string]obj{"text": {"type": "text_delta", "text": f}, "tool_use": {"type": "input_json_delta", "partial_json": f},
				"thinking": {"type": []string{"thinking_delta", "signature_delta"}[s.next(2)], "thinking": f, "signature": f}, "server_tool_use": {"type": "input_json_delta", "partial_json": f},
				"redacted_thinking": {"type": "text_delta", "text": ""}}[kinds[i]]})
		}
	}
	switch s.next(6) {
	case 0:
	case 1:
		ev(obj{"type": "error", "error": obj{"type": "overloaded_error", "message": "x"}})
	default:
		ev(obj{"type": "message_delta", "delta": obj{"stop_reason": []string{"end_turn", "tool_use", "max_tokens", "refusal", "new"}[s.next(5)]}, "usage": obj{"output_tokens": s.next(50)}})
		ev(obj{"type": "message_stop"})
	}
	return b.String()
}

// chatStream makes deltas of text, reasoning and calls at any index, in any order, with ids and names that come and go.
func chatStream(s *script) string {
	var b strings.Builder
	ev := func(o obj) { s.noise(&b); sse(&b, "", o) }
	choice := func(delta obj, finish any) {
		ev(obj{"choices": []any{obj{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	for len(s.in) > 4 {
		switch s.next(6) {
		case 0:
			choice(obj{"content": s.fragment()}, nil)
		case 1:
			choice(obj{"reasoning_content": s.fragment()}, nil)
		case 2:
			ev(obj{"choices": []any{}, "usage": obj{"prompt_tokens": s.next(50), "completion_tokens": s.next(50), "prompt_tokens_details": obj{"cached_tokens": s.next(60)}}})
		default:
			f := obj{"arguments": s.fragment()}
			t := obj{"function": f}
			if i := s.next(4); i < 3 {
				t["index"] = i
			}
			if s.next(3) == 0 {
				t["id"], f["name"] = fuzzIDs[s.next(4)], fuzzNames[s.next(4)]
			}
			choice(obj{"tool_calls": []any{t}}, nil)
		}
	}
	if s.next(6) > 0 {
		choice(obj{}, []string{"stop", "tool_calls", "length", "content_filter", "new"}[s.next(5)])
	}
	if s.next(3) > 0 {
		b.WriteString("data: [DONE]\n\n")
	}
	return b.String()
}

// responsesStream makes output items that open, interleave and end.
func responsesStream(s *script) string {
	var b strings.Builder
	ev := func(o obj) { s.noise(&b); sse(&b, o["type"].(string), o) }
	ev(obj{"type": "response.created", "response": obj{"id": "r", "status": "in_progress"}})
	type item struct {
		kind, id, name, text string
		index                int
	}
	var open []*item
	body := func(it *item) obj {
		return obj{"type": it.kind, "id": fmt.Sprint("i", it.index), "call_id": it.id, "name": it.name, "arguments": it.text, "summary": []any{}, "content": []any{}, "encrypted_content": it.id}
	}
	for n := 0; len(s.in) > 4; {
		switch op := s.next(8); {
		case op < 2 || len(open) == 0:
			it := &item{kind: []string{"message", "function_call", "reasoning", "web_search_call"}[s.next(4)], id: fuzzIDs[s.next(4)], name: fuzzNames[s.next(4)], index: n}
			ev(obj{"type": "response.output_item.added", "output_index": n, "item": body(it)})
			open = append(open, it)
			n += s.next(2) // some servers repeat the index
		case op == 2:
			i := s.next(len(open))
			ev(obj{"type": "response.output_item.done", "output_index": open[i].index, "item": body(open[i])})
			open = append(open[:i:i], open[i+1:]...)
		default:
			it := open[s.next(len(open))]
			f := s.fragment()
			it.text += f
			ev(obj{"type": map[string]string{"message": "response.output_text.delta", "function_call": "response.function_call_arguments.delta",
				"reasoning": "response.reasoning_summary_text.delta", "web_search_call": "response.web_search_call.searching"}[it.kind], "output_index": it.index, "delta": f})
		}
	}
	switch s.next(6) {
	case 0:
	case 1:
		ev(obj{"type": "response.incomplete", "response": obj{"incomplete_details": obj{"reason": "max_output_tokens"}}})
	case 2:
		ev(obj{"type": "response.failed", "response": obj{"error": obj{"code": "server_error", "message": "x"}}})
	default:
		ev(obj{"type": "response.completed", "response": obj{"usage": obj{"input_tokens": s.next(50), "output_tokens": s.next(50)}}})
	}
	return b.String()
}

// fuzzChunks plays a stream whole, byte by byte and in pieces of any size: the events are the same, blocks are opened
// before they are used, and the parser takes whatever comes.
func fuzzChunks(f *testing.F, vendor string, make func(*script) string) {
	for _, seed := range []string{"", "0123456789abcdefghijklmnopqrstuvwxyz", "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15",
		strings.Repeat("\x00\x01\x02\x07\x05\x04\x03", 12), strings.Repeat("zY!7#qa{", 9)} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		if len(in) > 400 {
			in = in[:400]
		}
		data := make(&script{in: in})
		var first string
		for i, chunk := range []func() int{nil, func() int { return 1 }, func() int { return 1 + int(size) }} {
			w := &wire{data: []byte(data), chunk: chunk}
			m := openWire(t, vendor, w)
			got := lines(m.Stream(t.Context(), request()))
			_ = m.Close()
			if i == 0 {
				first = got
				parse(t, openWire(t, vendor, &wire{data: []byte(data)}))
				continue
			}
			if got != first {
				t.Fatalf("another cutting gives other events\nwhole:\n%s\ncut:\n%s\nstream:\n%s", first, got, data)
			}
		}
	})
}

func openWire(t testing.TB, vendor string, w *wire) closer {
	t.Helper()
	for _, v := range vendors {
		if v.name == vendor {
			m, err := v.open("http://wire.invalid", anthropic.Timeouts{}, w.client())
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	t.Fatalf("no vendor %s", vendor)
	return nil
}

// parse feeds the events to the parser of the native dialect: every call that opened is closed once, in whatever way.
func parse(t *testing.T, m closer) {
	t.Helper()
	p := stream.NewNative(stream.Options{})
	opened, closed := map[int]bool{}, map[int]bool{}
	emit := func(e stream.Event) bool {
		switch e.Kind {
		case stream.ActionOpened:
			opened[e.Index] = true
		case stream.ActionClosed:
			if closed[e.Index] || !opened[e.Index] {
				t.Errorf("action %d is closed twice or without a beginning", e.Index)
			}
			closed[e.Index] = true
		}
		return true
	}
	finish := writ.FinishCut
	for e, err := range m.Stream(t.Context(), request()) {
		if err != nil {
			break
		}
		if e.Kind == writ.ModelFinish {
			finish = e.Finish
		}
		p.Feed(e, emit)
	}
	p.Finish(finish, emit)
	if len(opened) != len(closed) {
		t.Errorf("%d calls opened, %d closed", len(opened), len(closed))
	}
}

func FuzzAnthropicChunks(f *testing.F) { fuzzChunks(f, "anthropic", anthropicStream) }

func FuzzChatChunks(f *testing.F) { fuzzChunks(f, "openai-chat", chatStream) }

func FuzzResponsesChunks(f *testing.F) { fuzzChunks(f, "openai-responses", responsesStream) }
