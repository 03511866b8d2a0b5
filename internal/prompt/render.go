// Package prompt renders durable state into a model request: the kit into the cached system block, the timeline's
// blocks into messages, and what is true right now into the uncached tail. It is pure: the same blocks give the same
// bytes, so the cached prefix only grows.
package prompt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strings"
	"unicode/utf8"

	"writ"
	"writ/internal/stream"
	"writ/internal/timeline"
	"writ/store"
)

// Renderer turns blocks into messages as they are appended. Add costs what the block holds, not what came before.
type Renderer struct {
	dialect writ.Dialect
	names   func(tool string) string // vendor-safe names, native dialect

	segs     []segment
	calls    map[string]timeline.Call   // by action id
	results  map[string]timeline.Result // by action id
	done     map[string]bool            // action ids whose call and result have been rendered
	byCall   map[string]int             // tool call id → segment
	hidden   map[string]string
	plans    []timeline.Plan
	unknown  map[string]timeline.Result // indeterminate, by action id, in order of unknownOrder
	order    []string
	resolved []string // since the last turn
	last     timeline.Request
	haveReq  bool
	seq      int64
	turn     string
	rewrite  string // what changed rendered segments since the last request, if anything

	compaction
}

// segment is one thing the prompt shows: messages of one or two roles that are never split.
type segment struct {
	msgs  []writ.Message
	turn  string
	round int
	bytes int
	sum   [32]byte // of this segment
	build func() []writ.Message

	seq    int64           // of the block that made it
	ends   byte            // endRound, endAnswer
	items  []timeline.Item // of a settled round
	weight int             // bytes, but an image counts as what it costs
}

// NewRenderer renders for a dialect; names maps tool ids to the names a provider sees and may be nil.
func NewRenderer(d writ.Dialect, names func(string) string) *Renderer {
	if names == nil {
		names = func(s string) string { return s }
	}
	return &Renderer{dialect: d, names: names, calls: map[string]timeline.Call{}, results: map[string]timeline.Result{},
		done: map[string]bool{}, byCall: map[string]int{}, hidden: map[string]string{}, unknown: map[string]timeline.Result{},
		compaction: compaction{short: map[string]timeline.Shortened{}}}
}

// Seq is the number of the last block that was added.
func (r *Renderer) Seq() int64 { return r.seq }

// Add takes the next block of the conversation, in order.
func (r *Renderer) Add(b store.Block) error {
	if b.Seq <= r.seq {
		return fmt.Errorf("prompt: block %d after %d", b.Seq, r.seq)
	}
	r.seq, r.turn = b.Seq, b.Turn
	switch b.Kind {
	case timeline.KindUser:
		return add(r, b, func(v timeline.User) {
			r.said = append(r.said, said{b.Seq, timeline.Said{Turn: b.Turn, Text: v.Text}})
			r.text(b.Turn, 0, writ.RoleUser, v.Text)
		})
	case timeline.KindCall:
		return add(r, b, func(v timeline.Call) { r.calls[b.ActionID] = v })
	case timeline.KindResult:
		return add(r, b, func(v timeline.Result) { r.result(b, v) })
	case timeline.KindAttempt:
		return add(r, b, func(v timeline.Attempt) {
			if v.Told() {
				r.text(b.Turn, v.Round, writ.RoleUser, attemptText(v))
			}
		})
	case timeline.KindRound:
		return add(r, b, func(v timeline.Round) { r.round(b.Turn, v) })
	case timeline.KindAnswer:
		return add(r, b, func(v timeline.Answer) { r.answer(b.Turn, v) })
	case timeline.KindNotice:
		return add(r, b, func(v timeline.Notice) { r.text(b.Turn, 0, writ.RoleUser, noticeText(v.Code, v.Message)) })
	case timeline.KindResolved:
		return add(r, b, func(v timeline.Resolved) { r.resolve(b, v) })
	case timeline.KindPlan:
		return add(r, b, func(v timeline.Plan) { r.plan(v) })
	case timeline.KindHide:
		return add(r, b, func(v timeline.Hide) { r.hide(v) })
	case timeline.KindRequest:
		return add(r, b, func(v timeline.Request) { r.request(b.Time, v) })
	case timeline.KindCompactResults:
		return add(r, b, func(v timeline.CompactResults) { r.shorten(v) })
	case timeline.KindCompactSummary:
		return add(r, b, func(v timeline.CompactSummary) { r.summarise(v) })
	case timeline.KindCompactSkipped:
		return add(r, b, func(v timeline.CompactSkipped) { r.skipped = &v })
	case timeline.KindTurnEnd:
		return add(r, b, func(v timeline.TurnEnd) { r.turnEnd(b.Turn, v) })
	}
	return nil // a kind of a later version: it has no place in this prompt
}

func add[T any](r *Renderer, b store.Block, fn func(T)) error {
	v, err := timeline.Decode[T](b)
	if err == nil {
		fn(v)
	}
	return err
}

func (r *Renderer) push(turn string, round int, build func() []writ.Message) {
	s := segment{turn: turn, round: round, build: build, seq: r.seq}
	s.render()
	if len(s.msgs) > 0 {
		r.segs = append(r.segs, s)
	}
}

func (s *segment) render() {
	s.msgs = s.build()
	h := sha256.New()
	s.bytes, s.weight = 0, 0
	for _, m := range s.msgs {
		fmt.Fprintf(h, "%s\x00", m.Role)
		for i := range m.Parts {
			n := hashPart(h, &m.Parts[i])
			s.bytes += n
			s.weight += n - overweight(&m.Parts[i])
		}
	}
	h.Sum(s.sum[:0])
}

func hashPart(h hash.Hash, p *writ.Part) int {
	n := 0
	w := func(b ...[]byte) {
		for _, x := range b {
			fmt.Fprintf(h, "%d:", len(x))
			h.Write(x)
			n += len(x)
		}
	}
	w([]byte(p.Kind), []byte(p.Text), p.Data, []byte(p.MIME), p.Opaque, []byte(p.ID), []byte(p.Name), p.Args)
	for _, c := range p.Content {
		w([]byte(c.Kind), []byte(c.Text), c.JSON, c.Data, []byte(c.MIME), []byte(c.Name), []byte(c.URI))
	}
	if p.IsError {
		w([]byte("error"))
	}
	return n
}

func (r *Renderer) text(turn string, round int, role writ.Role, s string) {
	r.push(turn, round, func() []writ.Message {
		return []writ.Message{{Role: role, Parts: []writ.Part{{Kind: writ.PartText, Text: r.esc(s)}}}}
	})
}

// esc keeps quoted text from becoming an action: in the channel dialect no rendered block but the protocol's own
// text holds a channel tag.
func (r *Renderer) esc(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if r.dialect == writ.Channel {
		return stream.Escape(s)
	}
	return s
}

// result keeps an outcome for its round, or tells one that was learnt after its round.
func (r *Renderer) result(b store.Block, v timeline.Result) {
	r.results[b.ActionID] = v
	if v.State == writ.Indeterminate {
		r.unknown[b.ActionID] = v
		r.order = append(r.order, b.ActionID)
	}
	if r.done[b.ActionID] {
		content := contentText(v)
		r.text(b.Turn, 0, writ.RoleUser, fmt.Sprintf("[event] the outcome of %s (%s) is now known: %s\n%s", v.ToolCallID, v.Tool, stateText(v), content))
	}
}

func (r *Renderer) round(turn string, v timeline.Round) {
	for _, it := range v.Items {
		if it.ToolCallID != "" {
			r.byCall[it.ToolCallID] = len(r.segs)
		}
		if it.ActionID != "" {
			r.done[it.ActionID] = true
		}
	}
	for _, id := range v.Orphans {
		r.done[id] = true
	}
	build := func() []writ.Message { return r.channelRound(v) }
	if r.dialect == writ.Native {
		build = func() []writ.Message { return r.nativeRound(v) }
	}
	n := len(r.segs)
	r.push(turn, v.Round, build)
	if len(r.segs) > n {
		r.segs[n].ends, r.segs[n].items = endRound, v.Items
	}
}

// channelRound tells a round as text: what the model asked for, in order, and what came of each.
func (r *Renderer) channelRound(v timeline.Round) []writ.Message {
	var parts []writ.Part
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			parts = append(parts, writ.Part{Kind: writ.PartText, Text: r.esc(b.String())})
			b.Reset()
		}
	}
	fmt.Fprintf(&b, "[round %d]\n", v.Round)
	for _, t := range v.Thinking {
		if t.Text != "" {
			fmt.Fprintf(&b, "[your thinking]\n%s\n", t.Text)
		}
	}
	if v.Text != "" {
		fmt.Fprintf(&b, "[your notes]\n%s\n", v.Text)
	}
	for _, it := range v.Items {
		if it.Notes != "" {
			fmt.Fprintf(&b, "[your notes on action %d]\n%s\n", it.Index, it.Notes)
		}
		if it.ActionID == "" {
			continue
		}
		call := r.calls[it.ActionID]
		fmt.Fprintf(&b, "[action %d] %s %s\nparams: %s\n", it.Index, it.ToolCallID, call.Tool, call.Params)
		if it.Conflict != "" {
			fmt.Fprintf(&b, "note: %s\n", it.Conflict)
		}
	}
	for _, it := range v.Items {
		if it.ActionID == "" {
			fmt.Fprintf(&b, "[not run] action %d%s: %s: %s\n", it.Index, toolSuffix(it.Tool), it.Code, it.Reason)
			continue
		}
		res := r.outcome(it)
		fmt.Fprintf(&b, "[result of %s] %s\n%s\n", it.ToolCallID, stateText(res), contentText(res))
		if blobs := r.blobs(res); len(blobs) > 0 {
			flush()
			parts = append(parts, blobs...)
		}
	}
	for _, n := range v.Notices {
		fmt.Fprintf(&b, "[notice] %s\n", n)
	}
	flush()
	return []writ.Message{{Role: writ.RoleUser, Parts: parts}}
}

func toolSuffix(tool string) string {
	if tool == "" {
		return ""
	}
	return " (" + tool + ")"
}

// nativeRound renders the provider's own shapes: one assistant message with the calls, one user message with exactly
// one result for each, in call order, refused calls as opened with {} and an error.
func (r *Renderer) nativeRound(v timeline.Round) []writ.Message {
	var say, got []writ.Part
	for _, t := range v.Thinking {
		say = append(say, writ.Part{Kind: writ.PartThinking, Text: t.Text, Opaque: t.Opaque})
	}
	if v.Text != "" {
		say = append(say, writ.Part{Kind: writ.PartText, Text: r.esc(v.Text)})
	}
	for _, it := range v.Items {
		if it.ActionID == "" {
			if it.Tool == "" || it.ToolCallID == "" {
				got = append(got, writ.Part{Kind: writ.PartText, Text: r.esc(fmt.Sprintf("[not run] action %d: %s: %s", it.Index, it.Code, it.Reason))})
				continue
			}
			say = append(say, writ.Part{Kind: writ.PartToolUse, ID: it.ToolCallID, Name: r.names(it.Tool), Args: json.RawMessage(`{}`)})
			got = append(got, writ.Part{Kind: writ.PartToolResult, ID: it.ToolCallID, IsError: true,
				Content: []writ.Content{{Kind: writ.ContentText, Text: fmt.Sprintf("not run: %s: %s%s", it.Code, it.Reason, rawSuffix(it.Raw))}}})
			continue
		}
		call := r.calls[it.ActionID]
		say = append(say, writ.Part{Kind: writ.PartToolUse, ID: it.ToolCallID, Name: r.names(call.Tool), Args: call.Params})
		got = append(got, r.nativeResult(it))
	}
	got = toolResultsFirst(got)
	for _, n := range v.Notices {
		got = append(got, writ.Part{Kind: writ.PartText, Text: r.esc("[notice] " + n)})
	}
	var out []writ.Message
	if len(say) > 0 {
		out = append(out, writ.Message{Role: writ.RoleAssistant, Parts: say})
	}
	if len(got) > 0 {
		out = append(out, writ.Message{Role: writ.RoleUser, Parts: got})
	}
	return out
}

func rawSuffix(raw string) string {
	if raw == "" {
		return ""
	}
	return "\nyou wrote: " + raw
}

func toolResultsFirst(parts []writ.Part) []writ.Part {
	var first, rest []writ.Part
	for _, p := range parts {
		if p.Kind == writ.PartToolResult {
			first = append(first, p)
		} else {
			rest = append(rest, p)
		}
	}
	return append(first, rest...)
}

func (r *Renderer) nativeResult(it timeline.Item) writ.Part {
	res := r.outcome(it)
	p := writ.Part{Kind: writ.PartToolResult, ID: it.ToolCallID, IsError: res.State != writ.Succeeded && !it.Running}
	head := ""
	if it.Conflict != "" {
		head = "note: " + it.Conflict
	}
	if res.State != writ.Succeeded || res.Note != "" {
		if head != "" {
			head += "\n"
		}
		head += stateText(res)
	}
	if head != "" {
		p.Content = append(p.Content, writ.Content{Kind: writ.ContentText, Text: head})
	}
	if rep, ok := r.replaced(it.ToolCallID); ok {
		p.Content = append(p.Content, writ.Content{Kind: writ.ContentText, Text: rep})
		return p
	}
	content, err := timeline.Load(res.Content)
	if err != nil {
		content = []writ.Content{{Kind: writ.ContentText, Text: "(the stored result cannot be read: " + err.Error() + ")"}}
	}
	for _, c := range content {
		c.Text = r.esc(c.Text)
		p.Content = append(p.Content, c)
	}
	if len(p.Content) == 0 {
		p.Content = []writ.Content{{Kind: writ.ContentText, Text: "(no content)"}}
	}
	return p
}

// outcome is the result that stood when the round ended.
func (r *Renderer) outcome(it timeline.Item) timeline.Result {
	res, ok := r.results[it.ActionID]
	if it.Held {
		return timeline.Result{Tool: it.Tool, ToolCallID: it.ToolCallID, State: writ.Held, Note: "it waits for a person's approval and has not run. You will be told what comes of it"}
	}
	if !ok || it.Running {
		return timeline.Result{Tool: it.Tool, ToolCallID: it.ToolCallID, Note: "running, outcome not known yet"}
	}
	if rep, ok := r.replaced(it.ToolCallID); ok {
		res.Content = []timeline.Content{{Kind: writ.ContentText, Text: rep}}
	}
	return res
}

func (r *Renderer) blobs(v timeline.Result) []writ.Part {
	var out []writ.Part
	for _, c := range v.Content {
		if c.Kind == writ.ContentBlob && strings.HasPrefix(c.MIME, "image/") {
			out = append(out, writ.Part{Kind: writ.PartBlob, Data: c.Data, MIME: c.MIME})
		}
	}
	return out
}

// stateText says what became of a call, in words a model acts on.
func stateText(v timeline.Result) string {
	s := string(v.State)
	switch v.State {
	case writ.Indeterminate:
		s = "outcome UNKNOWN: it may have happened; it will not be repeated. Do not call it again before you know"
	case writ.Withheld:
		s = "not executed"
	case "":
		return v.Note
	}
	if v.Failure != "" {
		s += " (" + v.Failure + ")"
	}
	if v.Note != "" {
		s += ": " + v.Note
	}
	return s
}

func contentText(v timeline.Result) string {
	content, err := timeline.Load(v.Content)
	if err != nil {
		return "(the stored result cannot be read: " + err.Error() + ")"
	}
	var b strings.Builder
	for i, c := range content {
		if i > 0 {
			b.WriteByte('\n')
		}
		switch c.Kind {
		case writ.ContentText:
			b.WriteString(c.Text)
		case writ.ContentJSON:
			b.Write(c.JSON)
		case writ.ContentBlob:
			fmt.Fprintf(&b, "(%s, %d bytes%s)", orUnknown(c.MIME), len(c.Data), nameSuffix(c.Name))
		case writ.ContentLink:
			fmt.Fprintf(&b, "(link %s%s)", c.URI, nameSuffix(c.Name))
		}
	}
	return b.String()
}

func orUnknown(mime string) string {
	if mime == "" {
		return "unknown type"
	}
	return mime
}

func nameSuffix(name string) string {
	if name == "" {
		return ""
	}
	return ", " + name
}

func attemptText(v timeline.Attempt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[notice] your previous try at round %d was discarded: %s: %s", v.Round, v.Code, v.Message)
	for _, d := range v.Details {
		b.WriteString("\n- " + d)
	}
	if v.Raw != "" {
		b.WriteString("\nit began: " + v.Raw)
	}
	if v.Answer != "" {
		b.WriteString("\nthis much of an answer had been shown and was taken back: " + v.Answer)
	}
	return b.String()
}

func noticeText(code, message string) string { return "[notice] " + code + ": " + message }

func (r *Renderer) answer(turn string, v timeline.Answer) {
	text, n := v.Text, len(r.segs)
	defer func() {
		if len(r.segs) > n {
			r.segs[n].ends = endAnswer
		}
	}()
	if r.dialect == writ.Channel {
		text = "[your answer, as the person saw it]\n" + text
		r.text(turn, 0, writ.RoleUser, text)
		return
	}
	if strings.TrimSpace(text) != "" {
		r.text(turn, 0, writ.RoleAssistant, text)
	}
}

func (r *Renderer) turnEnd(turn string, v timeline.TurnEnd) {
	r.resolved = nil
	if v.State != store.TurnAnswered {
		r.text(turn, 0, writ.RoleUser, noticeText("turn_"+v.State, "the previous turn ended without an answer: "+v.Reason))
	}
}

func (r *Renderer) plan(v timeline.Plan) {
	for i := range r.plans {
		if r.plans[i].ID == v.ID {
			r.plans = append(r.plans[:i], r.plans[i+1:]...)
			break
		}
	}
	if v.Active {
		for i := range r.plans {
			r.plans[i].Active = false
		}
	}
	r.plans = append(r.plans, v)
}

// Call returns the call block of an action.
func (r *Renderer) Call(actionID string) (timeline.Call, bool) {
	c, ok := r.calls[actionID]
	return c, ok
}

// Plans returns the newest snapshot of each plan, the one touched last at the end.
func (r *Renderer) Plans() []timeline.Plan { return r.plans }

// Unknown returns the unresolved indeterminate actions of the conversation, oldest first.
func (r *Renderer) Unknown() []timeline.Result {
	var out []timeline.Result
	for _, id := range r.order {
		if v, ok := r.unknown[id]; ok {
			out = append(out, v)
		}
	}
	return out
}

// resolve takes an unknown outcome off the list and tells what was found out.
func (r *Renderer) resolve(b store.Block, v timeline.Resolved) {
	delete(r.unknown, b.ActionID)
	what := map[string]string{"effect_applied": "it did happen", "effect_absent": "it did not happen",
		"accept_unknown": "nobody can find out, and that is accepted"}[v.Disposition]
	line := fmt.Sprintf("%s %s: %s (%s)", v.ToolCallID, v.Tool, what, v.Disposition)
	if v.Note != "" {
		line += ": " + v.Note
	}
	r.resolved = append(r.resolved, line)
	r.text(b.Turn, 0, writ.RoleUser, "[event] an unknown outcome has been resolved: "+line)
}

// Resolved returns what was resolved since the last answer or end of a turn.
func (r *Renderer) Resolved() []string { return r.resolved }

// hide replaces a result's content and renders its segment anew.
func (r *Renderer) hide(v timeline.Hide) {
	r.hidden[v.ToolCallID] = v.Replacement
	r.notes = append(r.notes, v)
	r.again(v.ToolCallID, "hide")
}

// again renders the segment of a call anew; why is what announces that the prefix changes.
func (r *Renderer) again(toolCallID, why string) {
	if i, ok := r.byCall[toolCallID]; ok && i < len(r.segs) {
		r.segs[i].render()
		r.rewrite = why
	}
}

// CanHide reports whether the result of a call may still be replaced: only behind the cache point four rounds before
// the tail, so that the prefix above it stays as it is.
func (r *Renderer) CanHide(toolCallID string) (ok, known bool) {
	i, known := r.byCall[toolCallID]
	return known && i > r.preTail(), known
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil))[:32] }
