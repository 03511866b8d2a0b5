package openai

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3/responses"

	"writ"
	"writ/internal/modelhttp"
	"writ/internal/modelreq"
)

func (m *Model) streamResponses(ctx context.Context, req *writ.ModelRequest, yield func(writ.ModelEvent, error) bool) {
	stream := m.responses.NewStreaming(ctx, m.responsesParams(req))
	if err := stream.Err(); err != nil && m.encrypted(req) && refusedField(err, "include") {
		m.refusedInclude.Store(true)
		m.book.Remark("encrypted reasoning is not asked for: the model has none")
		stream = m.responses.NewStreaming(ctx, m.responsesParams(req))
	}
	defer stream.Close()
	r := responsesReader{yield: yield, key: m.cfg.APIKey, items: map[int64]*item{}}
	for !r.done && stream.Next() {
		ev := stream.Current()
		r.event(&ev)
	}
	if err := stream.Err(); err != nil && !r.done {
		yield(writ.ModelEvent{}, m.failure(ctx, err))
	}
}

// responsesReader turns the events of one response into model events. Each output item is a block; it ends at
// response.output_item.done, and the message at response.completed or response.incomplete.
type responsesReader struct {
	yield  func(writ.ModelEvent, error) bool
	key    string
	items  map[int64]*item // by output_index; the newest of each
	opened int
	place  modelreq.Place // of a reasoning item that would begin now
	refuse bool
	done   bool
}

type item struct {
	block  int
	kind   string
	name   string
	length int    // of the arguments or text that came as deltas
	think  string // the kind of event that brings this item's thinking
	after  modelreq.Place
}

// opaque is how a reasoning item is kept: what the vendor needs of it, and where it stood.
type opaque struct {
	Item  json.RawMessage `json:"item"`
	After modelreq.Place  `json:"after"`
}

func (r *responsesReader) emit(e writ.ModelEvent) {
	if !r.done && !r.yield(e, nil) {
		r.done = true
	}
}

func (r *responsesReader) fail(err error) {
	if !r.done {
		r.yield(writ.ModelEvent{}, err)
		r.done = true
	}
}

func (r *responsesReader) event(ev *responses.ResponseStreamEventUnion) {
	switch ev.Type {
	case "response.output_item.added":
		r.added(ev.OutputIndex, &ev.Item)
	case "response.output_text.delta":
		r.text(r.item(ev.OutputIndex, "message"), ev.Delta)
	case "response.refusal.delta":
		r.refuse = true
		r.text(r.item(ev.OutputIndex, "message"), ev.Delta)
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		r.think(r.item(ev.OutputIndex, "reasoning"), ev.Type, ev.Delta)
	case "response.reasoning_summary_part.added":
		if it := r.items[ev.OutputIndex]; it != nil && it.length > 0 {
			r.think(it, "response.reasoning_summary_text.delta", "\n\n")
		}
	case "response.function_call_arguments.delta":
		r.arguments(r.item(ev.OutputIndex, "function_call"), ev.Delta)
	case "response.function_call_arguments.done":
		if it := r.item(ev.OutputIndex, "function_call"); it.length == 0 {
			r.arguments(it, ev.Arguments)
		}
	case "response.output_item.done":
		r.ended(ev.OutputIndex, &ev.Item)
	case "response.completed", "response.incomplete", "response.failed":
		r.over(ev.Type, &ev.Response)
	case "error":
		r.fail(modelhttp.Failure{Code: ev.Code, Message: ev.Message}.ModelError(r.key))
	}
}

// item returns the item of an index; a server that leaves out output_item.added begins it here.
func (r *responsesReader) item(index int64, kind string) *item {
	if it := r.items[index]; it != nil {
		return it
	}
	return r.begin(index, kind)
}

func (r *responsesReader) begin(index int64, kind string) *item {
	it := &item{block: r.opened, kind: kind, after: r.place}
	r.items[index] = it
	r.opened++
	if kind == "function_call" {
		r.place.Calls++
	}
	return it
}

func (r *responsesReader) added(index int64, o *responses.ResponseOutputItemUnion) {
	it := r.begin(index, o.Type)
	if o.Type == "function_call" {
		it.name = o.Name
		r.emit(writ.ModelEvent{Kind: writ.ModelToolOpen, Block: it.block, ID: o.CallID, Name: o.Name})
	}
}

func (r *responsesReader) text(it *item, s string) {
	if s == "" {
		return
	}
	r.place.Text = true
	it.length += len(s)
	r.emit(writ.ModelEvent{Kind: writ.ModelText, Block: it.block, Text: s})
}

// think takes reasoning: a summary or the text itself, whichever comes first, not both.
func (r *responsesReader) think(it *item, by, s string) {
	if it.think == "" {
		it.think = by
	}
	if s == "" || it.think != by {
		return
	}
	it.length += len(s)
	r.emit(writ.ModelEvent{Kind: writ.ModelThinking, Block: it.block, Text: s})
}

func (r *responsesReader) arguments(it *item, s string) {
	if s == "" {
		return
	}
	it.length += len(s)
	r.emit(writ.ModelEvent{Kind: writ.ModelToolArgs, Block: it.block, Text: s})
}

// ended takes the whole item, of which the parts that no delta brought are still to be said.
func (r *responsesReader) ended(index int64, o *responses.ResponseOutputItemUnion) {
	it := r.item(index, o.Type)
	end := writ.ModelEvent{Kind: writ.ModelBlockEnd, Block: it.block}
	switch o.Type {
	case "message":
		if it.length == 0 {
			for i := range o.Content {
				r.refuse = r.refuse || o.Content[i].Type == "refusal"
				r.text(it, o.Content[i].Text+o.Content[i].Refusal)
			}
		}
	case "function_call":
		if it.name == "" && o.Name != "" {
			r.emit(writ.ModelEvent{Kind: writ.ModelToolOpen, Block: it.block, ID: o.CallID, Name: o.Name})
		}
		if it.length == 0 {
			r.arguments(it, o.Arguments.OfString)
		}
		if o.Status == "incomplete" {
			return // its block stays open: it is cut
		}
	case "reasoning":
		if it.length == 0 {
			var parts []string
			for i := range o.Summary {
				parts = append(parts, o.Summary[i].Text)
			}
			r.think(it, "done", strings.Join(parts, "\n\n"))
		}
		end.Opaque = kept(o, it.after)
	default:
		return // an item of the vendor's own tools, none of which are asked for
	}
	r.emit(end)
}

// kept is what goes back to the vendor: only a reasoning item with its encrypted content, because nothing is stored
// there under its id.
func kept(o *responses.ResponseOutputItemUnion, after modelreq.Place) json.RawMessage {
	if o.EncryptedContent == "" {
		return nil
	}
	in := struct {
		Type      string          `json:"type"`
		ID        string          `json:"id,omitempty"`
		Summary   json.RawMessage `json:"summary"`
		Encrypted string          `json:"encrypted_content"`
	}{"reasoning", o.ID, json.RawMessage(`[]`), o.EncryptedContent}
	if raw := o.JSON.Summary.Raw(); strings.HasPrefix(raw, "[") {
		in.Summary = json.RawMessage(raw)
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return nil
	}
	out, err := json.Marshal(opaque{Item: raw, After: after})
	if err != nil {
		return nil
	}
	return out
}

func (r *responsesReader) over(event string, res *responses.Response) {
	if u := &res.Usage; res.JSON.Usage.Valid() {
		r.emit(writ.ModelEvent{Kind: writ.ModelUsage, Usage: usage(u.InputTokens, u.OutputTokens, u.InputTokensDetails.CachedTokens, u.InputTokensDetails.CacheWriteTokens)})
	}
	finish := writ.FinishStop
	switch {
	case event == "response.failed":
		f := modelhttp.Failure{Code: string(res.Error.Code), Message: res.Error.Message}
		r.fail(f.ModelError(r.key))
		return
	case event == "response.incomplete" && res.IncompleteDetails.Reason == "content_filter":
		finish = writ.FinishFilter
	case event == "response.incomplete":
		finish = writ.FinishLength // max_output_tokens; another reason cut the message just the same
	case r.refuse:
		finish = writ.FinishRefused
	case r.place.Calls > 0:
		finish = writ.FinishTools
	}
	r.emit(writ.ModelEvent{Kind: writ.ModelFinish, Finish: finish})
	r.done = true
}
