package runtime

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"writ"
	"writ/internal/prompt"
	"writ/internal/stream"
	"writ/internal/timeline"
	"writ/store"
)

const (
	largeResult   = 2000 // characters: a result above it gives way to a ref when room is needed
	coldResult    = 8000 // likewise when the cache is cold anyway
	resultHead    = 400  // characters of it that stay
	refText       = 150  // characters that the ref costs, about
	cacheLifetime = 5 * time.Minute
	summaryTokens = 800 // what a summary is asked to have at most

	// Codes of the notices.
	noticeCompacted = "compacted"
	noticeSkipped   = "compaction_skipped"
)

// compactIfNeeded makes the prompt smaller at a round's boundary when it is above the agent's context_tokens, or, with
// force, because the provider has refused it as too large. Old large results give way to refs; where that is not
// enough, one model call summarises the older rounds. It appends blocks and changes none; until they are durable the old
// prompt stands. At most one try a round, and one forced one. At a turn's start it also prunes a prompt whose cache has
// expired. changed reports whether the next request differs; the error is the store's.
func (t *turn) compactIfNeeded(ctx context.Context, force bool) (changed bool, err error) {
	tried := &t.compactTried
	if force {
		tried = &t.compactForced
	}
	if *tried == t.rounds {
		return false, nil
	}
	*tried = t.rounds
	if !force && t.rounds == 1 {
		if changed, err = t.prune(ctx); err != nil {
			return changed, err
		}
	}
	c := &compacting{t: t, reason: prompt.ReasonLimit, limit: t.in.Agent.ContextTokens, tokens: t.render.Tokens(t.agent.kit)}
	if force { // the provider's window is smaller than the limit, or its count is larger than the guess
		c.reason, c.limit = prompt.ReasonContextLimit, min(c.limit, c.tokens)
	} else if c.tokens <= c.limit {
		return changed, nil
	}
	did, err := c.run(ctx, force)
	return changed || did, err
}

// compacting is one try.
type compacting struct {
	t      *turn
	reason string
	limit  int // tokens
	tokens int // of the prompt as it stands, estimated
	freed  int // tokens that the shortened results free
	short  []timeline.Shortened
}

// costly are the reasons that a model call has found.
var costly = []string{"summary_failed", "summary_truncated", "summary_empty", "summary_too_long"}

// tenth is the least that is worth a break of the cached prefix.
func (c *compacting) tenth() int { return c.tokens / 10 }

// again reports whether the last try came to nothing for one of the reasons and the prompt has not grown much since.
func (c *compacting) again(reasons ...string) bool {
	s, ok := c.t.render.Skipped()
	return ok && slices.Contains(reasons, s.Reason) && c.tokens < s.Tokens+c.limit/10
}

func (c *compacting) run(ctx context.Context, force bool) (bool, error) {
	t := c.t
	c.short, c.freed = t.shortened(t.render.Old(largeResult, false))
	c.freed = int(float64(c.freed) * c.ratio())
	enough := len(c.short) > 0 && c.freed >= c.tenth() && c.tokens-c.freed <= c.limit*4/5
	if enough || force && len(c.short) > 0 { // what the provider refused cannot be forked from: it is made smaller first
		if err := c.write(ctx, c.results()); err != nil || enough {
			return err == nil, err
		}
		did, err := (&compacting{t: t, reason: c.reason, limit: c.limit, tokens: t.render.Tokens(t.agent.kit)}).summarise(ctx)
		return did || err == nil, err
	}
	return c.summarise(ctx)
}

// ratio is the provider's tokens for a guessed one.
func (c *compacting) ratio() float64 {
	if guess := c.t.render.Guess(c.t.agent.kit); guess > 0 {
		return float64(c.tokens) / float64(guess)
	}
	return 1
}

func (c *compacting) results() store.Block {
	return c.t.block(timeline.KindCompactResults, timeline.CompactResults{Reason: c.reason, Results: c.short})
}

// write makes blocks durable, and the prompt with them. A crash before leaves the old prompt, one after it the new one.
func (c *compacting) write(ctx context.Context, blocks ...store.Block) error {
	if err := c.t.write(ctx, blocks...); err != nil {
		return err
	}
	if err := c.t.sync(ctx); err != nil {
		return err
	}
	c.tell(blocks)
	return nil
}

func (c *compacting) tell(blocks []store.Block) {
	for _, b := range blocks {
		e := Event{Type: EventNotice, Round: c.t.rounds, Code: noticeCompacted, Reason: c.reason}
		switch b.Kind {
		case timeline.KindCompactResults:
			e.Text = fmt.Sprintf("old large results are shown by their beginning and a ref: %d", len(c.short))
		case timeline.KindCompactSummary:
			v, err := timeline.Decode[timeline.CompactSummary](b)
			if err != nil {
				continue
			}
			e.Text = fmt.Sprintf("a summary stands for the rounds before: %d", v.Rounds)
		case timeline.KindCompactSkipped:
			v, err := timeline.Decode[timeline.CompactSkipped](b)
			if err != nil {
				continue
			}
			e.Code, e.Reason, e.Text = noticeSkipped, v.Reason, strings.TrimSuffix("the prompt stays as it is: "+v.Reason+": "+v.Detail, ": ")
		}
		c.t.emit(e)
	}
}

// skip records why there is no summary. The shortened results stand if they free enough by themselves.
func (c *compacting) skip(ctx context.Context, reason, detail string) (bool, error) {
	var blocks []store.Block
	if len(c.short) > 0 && c.freed >= c.tenth() {
		blocks = append(blocks, c.results())
	}
	after := c.tokens
	if len(blocks) > 0 {
		after -= c.freed
	}
	changed := len(blocks) > 0
	if changed || !c.again(reason) { // else it has been said
		blocks = append(blocks, c.t.block(timeline.KindCompactSkipped, timeline.CompactSkipped{Reason: reason, Detail: clip(detail, 500), Tokens: after}))
	}
	return changed, c.write(ctx, blocks...)
}

// summarise puts a summary in the place of the rounds before a cut, and the shortened results of this try with it.
func (c *compacting) summarise(ctx context.Context) (bool, error) {
	t := c.t
	kit := t.agent.kit
	weight := func(tokens int) int { return int(float64(tokens) / c.ratio() * prompt.CharsPerToken) }
	room := max(c.limit-int(float64(t.render.KitWeight(kit))/prompt.CharsPerToken*c.ratio()), c.limit/5)
	cut, ok := t.render.Cut(weight(room / 2))
	if !ok {
		return c.skip(ctx, "nothing_to_summarise", "nothing but the newest rounds is shown")
	}
	v := timeline.CompactSummary{Reason: c.reason, UptoSeq: cut.Seq, Rounds: cut.Rounds, Before: c.tokens,
		Call: fmt.Sprintf("%s/%d/%s", t.id, t.rounds, timeline.PurposeSummary), Kept: t.render.Kept(cut, weight(c.limit/10))}
	frees := func(summary int) int { // tokens
		return int(float64(cut.Removed-t.render.Weight(v)-summary) / prompt.CharsPerToken * c.ratio())
	}
	switch {
	case frees(summaryTokens*prompt.CharsPerToken) < c.tenth():
		return c.skip(ctx, "frees_too_little", "")
	case c.again(costly...): // not a model call each round for nothing
		s, _ := t.render.Skipped()
		return c.skip(ctx, s.Reason, s.Detail)
	}
	text, why, detail := c.generate(ctx, cut, v.Call)
	switch {
	case ctx.Err() != nil:
		return false, nil // the turn was stopped: its end takes the record along
	case why != "":
		return c.skip(ctx, why, detail)
	}
	v.Summary = text
	if frees(0) < c.tenth() {
		return c.skip(ctx, "summary_too_long", fmt.Sprintf("it has %d characters", len(text)))
	}
	v.After = max(c.tokens-frees(0), 0)
	blocks := []store.Block{t.block(timeline.KindCompactSummary, v)}
	if late := t.render.Shown(c.short, cut); len(late) > 0 { // those of kept rounds
		c.short = late
		blocks = append([]store.Block{c.results()}, blocks...)
	}
	return true, c.write(ctx, blocks...)
}

// generate makes the one model call. It returns the summary, or why there is none.
func (c *compacting) generate(ctx context.Context, cut prompt.Cut, call string) (text, why, detail string) {
	t := c.t
	model, name, err := t.model(ctx)
	if err != nil {
		return "", "summary_failed", err.Error()
	}
	req, rec := t.render.Fork(t.agent.kit, t.prefix, cut.Segment, name, call)
	began := time.Now()
	s := &summary{finish: writ.FinishCut}
	gctx, stop := context.WithCancel(ctx)
	defer stop()
	for ev, serr := range model.Stream(gctx, req) {
		if err = serr; err != nil {
			break
		}
		s.take(ev)
	}
	s.account(t, rec, name, time.Since(began))
	text = s.text(t.in.Agent.Dialect)
	switch {
	case err != nil:
		return "", "summary_failed", err.Error()
	case s.finish == writ.FinishLength || s.finish == writ.FinishCut:
		return "", "summary_truncated", string(s.finish)
	case s.finish == writ.FinishFilter || s.finish == writ.FinishRefused:
		return "", "summary_failed", string(s.finish)
	case text == "":
		return "", "summary_empty", ""
	}
	return text, "", ""
}

// summary is what a model writes of one. Calls in it are nobody's: no overseer sees them and nothing runs.
type summary struct {
	raw    strings.Builder
	usage  writ.Usage
	finish writ.Finish
}

func (s *summary) take(ev writ.ModelEvent) {
	switch ev.Kind {
	case writ.ModelText:
		s.raw.WriteString(ev.Text)
	case writ.ModelUsage:
		s.usage = ev.Usage
	case writ.ModelFinish:
		s.finish = ev.Finish
	}
}

// text is the summary itself: in the channel dialect what stands in the channel of that name, or the whole message when
// it holds no channel.
func (s *summary) text(d writ.Dialect) string {
	raw := strings.TrimSpace(strings.ToValidUTF8(s.raw.String(), "\uFFFD"))
	if d == writ.Native {
		return raw
	}
	var out strings.Builder
	plain := false
	emit := func(e stream.Event) bool {
		switch e.Kind {
		case stream.Summary:
			out.WriteString(e.Text)
		case stream.Impossible:
			plain = true
		}
		return true
	}
	p := stream.New(d, stream.Options{})
	p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: raw}, emit)
	p.Finish(writ.FinishStop, emit)
	if plain && out.Len() == 0 {
		return raw
	}
	return strings.TrimSpace(out.String())
}

// account records what the call cost, as for a decision; the record is written with the compaction.
func (s *summary) account(t *turn, rec timeline.Request, model string, took time.Duration) {
	estimated := s.usage.IsZero()
	if estimated {
		s.usage = writ.Usage{Input: rec.Bytes / prompt.CharsPerToken, Output: s.raw.Len() / prompt.CharsPerToken}
	}
	t.usage = t.usage.Add(s.usage)
	cost, priced := t.cost(model, s.usage)
	if priced {
		t.spent += cost
		rec.Cost = cost
	}
	rec.Call, rec.Model, rec.Usage, rec.Milliseconds = fmt.Sprintf("%s/%d/%s", t.id, t.rounds, timeline.PurposeSummary), model, s.usage, took.Milliseconds()
	t.emit(Event{Type: EventUsage, Round: t.rounds, Usage: &s.usage, Estimated: estimated, Model: model, Cost: cost})
	t.owed = append(t.owed, t.block(timeline.KindRequest, rec))
}

// prune shortens large results of old turns when the provider's cache has expired since the last call: the prefix is
// written anew anyway. While the cache is warm nothing below the limit is touched.
func (t *turn) prune(ctx context.Context) (bool, error) {
	last := t.render.LastCall()
	if last.IsZero() || t.rt.cfg.Now().Sub(last) <= cacheLifetime {
		return false, nil
	}
	c := &compacting{t: t, reason: prompt.ReasonCold}
	if c.short, _ = t.shortened(t.render.Old(coldResult, true)); len(c.short) == 0 {
		return false, nil
	}
	return true, c.write(ctx, c.results())
}

// shortened stores results whole in the workspace and says what is shown of each instead. A result that cannot be stored
// stays as it is. freed is in tokens, guessed.
func (t *turn) shortened(results []timeline.Result) (short []timeline.Shortened, freed int) {
	for _, res := range results {
		s, err := t.byRef(res)
		if err != nil {
			t.rt.cfg.Log.Warn("a result could not be stored to make room", "tool_call_id", res.ToolCallID, "error", err)
			continue
		}
		short = append(short, s)
		freed += max(s.Chars-len(s.Head)-refText, 0)
	}
	return short, freed / prompt.CharsPerToken
}

// byRef makes sure that all of a result is in the workspace. One part that is there already keeps its ref.
func (t *turn) byRef(res timeline.Result) (timeline.Shortened, error) {
	s := timeline.Shortened{ToolCallID: res.ToolCallID, Ref: res.Ref, Chars: prompt.Chars(res)}
	content, err := timeline.Load(res.Content)
	if err != nil {
		return s, err
	}
	var whole strings.Builder
	for i, c := range content {
		switch c.Kind {
		case writ.ContentText:
			whole.WriteString(c.Text + "\n")
		case writ.ContentJSON:
			whole.WriteString(string(c.JSON) + "\n")
		case writ.ContentBlob:
			if c = t.blobRef(res.ToolCallID, i, c); c.URI == "" {
				return s, fmt.Errorf("content %d could not be stored", i)
			}
			fallthrough
		default:
			fmt.Fprintf(&whole, "(%s %s %s %s)\n", c.Kind, c.MIME, c.Name, c.URI)
		}
	}
	s.Head = clip(strings.ToValidUTF8(whole.String(), "\uFFFD"), resultHead)
	if s.Ref != "" && len(content) == 1 {
		return s, nil // what is shown is the beginning of what is stored
	}
	ext := ".shown.txt"
	if len(content) == 1 && content[0].Kind == writ.ContentJSON {
		ext = ".json"
	}
	s.Ref, err = t.ws.Offload(res.ToolCallID+ext, []byte(strings.TrimSuffix(whole.String(), "\n")))
	return s, err
}

func (t *turn) blobRef(callID string, i int, c writ.Content) writ.Content {
	ref, err := t.ws.Offload(fmt.Sprintf("%s.%d.bin", callID, i), c.Data)
	if err != nil {
		return writ.Content{}
	}
	return writ.Content{Kind: writ.ContentLink, URI: ref, MIME: c.MIME, Name: c.Name}
}
