package recorded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"writ"
)

// Recorder writes down what a model streams, in the recording format, so that it can be played again. It adds nothing
// to the stream and takes nothing from it.
type Recorder struct {
	dialect writ.Dialect
	secrets []string

	mu     sync.Mutex
	rounds []map[string]any
}

// NewRecorder records a dialect. Every occurrence of a secret in what is written is replaced by "[secret]"; secrets
// shorter than four characters are left alone, since replacing them would damage everything else.
func NewRecorder(d writ.Dialect, secrets []string) *Recorder {
	return &Recorder{dialect: d, secrets: long(secrets)}
}

// long keeps the secrets that can be replaced, the longest first: one may be the beginning of another.
func long(secrets []string) []string {
	var out []string
	for _, s := range secrets {
		if len(s) < 4 {
			continue
		}
		out = append(out, s)
		for _, html := range []bool{false, true} { // as it stands inside JSON arguments
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(html)
			if enc.Encode(s) == nil {
				if q := strings.TrimSpace(b.String()); q[1:len(q)-1] != s {
					out = append(out, q[1:len(q)-1])
				}
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return len(out[i]) > len(out[j]) })
	return out
}

// Wrap returns the model with its streams written down. names turns the provider's tool names into tool ids; nil
// leaves them.
func (r *Recorder) Wrap(m writ.Model, names func(string) string) writ.Model {
	if names == nil {
		names = func(s string) string { return s }
	}
	return recording{m, r, names}
}

type recording struct {
	model writ.Model
	r     *Recorder
	names func(string) string
}

// Stream implements writ.Model.
func (m recording) Stream(ctx context.Context, req *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	return func(yield func(writ.ModelEvent, error) bool) {
		w := roundWriter{r: m.r, blocks: map[int]int{}, names: m.names}
		defer w.done()
		for ev, err := range m.model.Stream(ctx, req) {
			w.take(ev, err)
			if !yield(ev, err) {
				w.stopped = true
				return
			}
		}
	}
}

// roundWriter collects one call.
type roundWriter struct {
	r       *Recorder
	names   func(string) string
	parts   []map[string]any
	text    strings.Builder // channel dialect
	only    bool            // something else than text was said
	blocks  map[int]int     // text and thinking blocks: the part they are in
	usage   writ.Usage
	finish  string
	stopped bool
}

func (w *roundWriter) take(ev writ.ModelEvent, err error) {
	var me *writ.ModelError
	switch {
	case errors.As(err, &me):
		w.finish = "error:" + string(me.Class)
		return
	case err != nil:
		w.finish = "error:" + string(writ.ErrorNetwork)
		return
	}
	switch ev.Kind {
	case writ.ModelText:
		w.text.WriteString(ev.Text)
		w.prose("text", ev)
	case writ.ModelThinking:
		w.only = true
		w.prose("thinking", ev)
	case writ.ModelToolOpen:
		w.only = true
		open := map[string]any{"block": ev.Block, "id": ev.ID}
		if ev.Name != "" {
			open["tool"] = w.names(ev.Name)
		}
		w.parts = append(w.parts, map[string]any{"open": open})
	case writ.ModelToolArgs:
		w.args(ev)
	case writ.ModelBlockEnd:
		w.blockEnd(ev)
	case writ.ModelUsage:
		w.usage = ev.Usage
	case writ.ModelFinish:
		w.finish = string(ev.Finish)
	}
}

// prose appends to the part of the block, or begins one.
func (w *roundWriter) prose(kind string, ev writ.ModelEvent) {
	if i, ok := w.blocks[ev.Block]; ok {
		w.parts[i][kind] = w.parts[i][kind].(string) + ev.Text
		return
	}
	w.blocks[ev.Block] = len(w.parts)
	w.parts = append(w.parts, map[string]any{kind: ev.Text, "block": ev.Block, "unclosed": true})
}

func (w *roundWriter) args(ev writ.ModelEvent) {
	if n := len(w.parts); n > 0 {
		if a, ok := w.parts[n-1]["args"].(map[string]any); ok && a["block"] == ev.Block {
			a["text"] = a["text"].(string) + ev.Text
			return
		}
	}
	w.parts = append(w.parts, map[string]any{"args": map[string]any{"block": ev.Block, "text": ev.Text}})
}

func (w *roundWriter) blockEnd(ev writ.ModelEvent) {
	i, ok := w.blocks[ev.Block]
	if !ok {
		w.parts = append(w.parts, map[string]any{"close": map[string]any{"block": ev.Block}})
		return
	}
	delete(w.parts[i], "unclosed")
	if len(ev.Opaque) > 0 {
		if _, thinking := w.parts[i]["thinking"]; thinking {
			w.parts[i]["signature"] = signature(ev.Opaque)
		}
	}
}

// signature is the text of a signature; anything else opaque is kept as JSON text, which plays back as a string.
func signature(opaque json.RawMessage) string {
	var s string
	if json.Unmarshal(opaque, &s) == nil {
		return s
	}
	return string(opaque)
}

func (w *roundWriter) done() {
	round := map[string]any{}
	switch {
	case w.r.dialect == writ.Channel && !w.only:
		if w.text.Len() > 0 {
			round["text"] = w.text.String()
		}
	case len(w.parts) > 0:
		round["parts"] = w.parts
	}
	if w.finish == "" {
		w.finish = string(writ.FinishCut)
		if w.stopped { // Writ stopped it at a refusal; played again, it is stopped there again
			w.finish = string(writ.FinishStop)
		}
	}
	round["finish"] = w.finish
	if !w.usage.IsZero() {
		round["usage"] = map[string]int{"input": w.usage.Input, "output": w.usage.Output, "cache_read": w.usage.CacheRead, "cache_write": w.usage.CacheWrite}
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.rounds = append(w.r.rounds, round)
}

// join brings a secret back into one piece where another block's deltas have cut it in two.
func join(parts []map[string]any, secrets []string) {
	first := map[any]map[string]any{}
	for _, p := range parts {
		args, ok := p["args"].(map[string]any)
		if !ok {
			continue
		}
		if head := first[args["block"]]; head != nil {
			before, after := head["text"].(string), args["text"].(string)
			if slices.ContainsFunc(secrets, func(s string) bool {
				return strings.Contains(before+after, s) && !strings.Contains(before, s) && !strings.Contains(after, s)
			}) {
				head["text"], args["text"] = before+after, ""
				continue
			}
		}
		first[args["block"]] = args
	}
}

// scrub replaces the secrets in every string.
func scrub(v any, secrets []string) any {
	switch v := v.(type) {
	case string:
		for _, s := range secrets {
			v = strings.ReplaceAll(v, s, "[secret]")
		}
		return v
	case map[string]any:
		for k, x := range v {
			v[k] = scrub(x, secrets)
		}
	case []map[string]any:
		for i := range v {
			v[i] = scrub(v[i], secrets).(map[string]any)
		}
	}
	return v
}

// Bytes is the recording so far. It parses: what this writes, Parse reads.
// Further secrets may be named now, which were not known before.
func (r *Recorder) Bytes(secrets ...string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rounds) == 0 {
		return nil, errors.New("recorded: nothing was recorded: the model was not called")
	}
	r.secrets = long(append(r.secrets, secrets...))
	for i := range r.rounds {
		if parts, ok := r.rounds[i]["parts"].([]map[string]any); ok {
			join(parts, r.secrets)
		}
		r.rounds[i] = scrub(r.rounds[i], r.secrets).(map[string]any)
	}
	doc := yaml.MapSlice{{Key: "writ_recording", Value: 1}, {Key: "dialect", Value: string(r.dialect)}, {Key: "rounds", Value: r.rounds}}
	out, err := yaml.MarshalWithOptions(doc, yaml.JSON())
	if err != nil {
		return nil, fmt.Errorf("recorded: writing: %w", err)
	}
	if _, err := Parse("the recording just made", out); err != nil {
		return nil, fmt.Errorf("recorded: writing: %w", err)
	}
	return out, nil
}
