package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"writ"
	"writ/internal/prompt"
	"writ/internal/timeline"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

const compactionMark = "[compaction] "

func isSummary(req *writ.ModelRequest) bool {
	last := req.Messages[len(req.Messages)-1].Parts
	return strings.HasPrefix(last[0].Text, compactionMark)
}

// untailed are the messages without the uncached tail.
func untailed(req *writ.ModelRequest) []writ.Message {
	if isSummary(req) {
		return req.Messages
	}
	return req.Messages[:len(req.Messages)-1]
}

// plain drops the cache marks, which move.
func plain(in []writ.Message) []writ.Message {
	out := make([]writ.Message, len(in))
	for i, m := range in {
		out[i] = writ.Message{Role: m.Role, Parts: append([]writ.Part(nil), m.Parts...)}
		for j := range out[i].Parts {
			out[i].Parts[j].Cache = false
		}
	}
	return out
}

func (b *bench) blocks() []store.Block {
	b.t.Helper()
	blocks, err := b.store.Blocks(context.Background(), "conv", 0, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return blocks
}

func decode[T any](t failer, b store.Block) T {
	t.Helper()
	v, err := timeline.Decode[T](b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// checkReplay makes every n-th recorded request, and every one for a summary, again from the blocks up to its record: it
// must be what the model got, cache points included. So the incremental rendering is the full one.
func (b *bench) checkReplay(every int) {
	b.t.Helper()
	sent := map[string]*writ.ModelRequest{}
	for _, req := range b.model.requests {
		sent[req.Call] = req
	}
	blocks := b.blocks()
	n := 0
	for i, bl := range blocks {
		if bl.Kind != timeline.KindRequest {
			continue
		}
		rec := decode[timeline.Request](b.t, bl)
		n++
		if n%every != 0 && rec.Purpose == "" {
			continue
		}
		got, err := prompt.Replay(blocks[:i+1], func(d string) ([]byte, error) { return b.store.Document(context.Background(), d) })
		if err != nil {
			b.t.Errorf("%s: %v", rec.Call, err)
			continue
		}
		want := sent[rec.Call]
		if want == nil {
			b.t.Errorf("%s was never sent", rec.Call)
			continue
		}
		if !got.Same {
			b.t.Errorf("%s: its hash is another one", rec.Call)
		}
		if d := cmp.Diff(untailed(want), got.Request.Messages); d != "" {
			b.t.Errorf("%s made again (-sent +again):\n%s", rec.Call, d)
		}
		if d := cmp.Diff(want.System, got.Request.System) + cmp.Diff(want.Tools, got.Request.Tools); d != "" {
			b.t.Errorf("%s: system and tools (-sent +again):\n%s", rec.Call, d)
		}
	}
}

// checkPrefix holds what was sent against the records: each request begins with the one before it unless its record
// announced a break, and a request for a summary is a fork of the one before it.
func (b *bench) checkPrefix() (announced int) {
	b.t.Helper()
	records := map[string]timeline.Request{}
	for _, bl := range b.blocks() {
		if bl.Kind == timeline.KindRequest {
			rec := decode[timeline.Request](b.t, bl)
			records[rec.Call] = rec
		}
	}
	prev := []writ.Message{}
	for _, req := range b.model.requests {
		cur := plain(untailed(req))
		rec, ok := records[req.Call]
		switch {
		case !ok:
			b.t.Errorf("%s has no record", req.Call)
		case isSummary(req):
			fork := cur[:len(cur)-1]
			if rec.Purpose != timeline.PurposeSummary || len(fork) > len(prev) || cmp.Diff(prev[:len(fork)], fork) != "" {
				b.t.Errorf("%s is no fork of the request before it", req.Call)
			}
			if rec.PrefixBytes != rec.Bytes {
				b.t.Errorf("%s reads %d of %d bytes from the cache", req.Call, rec.PrefixBytes, rec.Bytes)
			}
			continue
		case rec.Break != "" && (!rec.Announced || rec.Reason == ""):
			b.t.Errorf("%s: a break that nothing announced: %+v", req.Call, rec)
		case rec.Announced:
			announced++
		case len(cur) < len(prev) || cmp.Diff(prev, cur[:len(prev)]) != "":
			b.t.Errorf("%s does not begin as the request before it, and its record says nothing", req.Call)
		}
		points := 0
		for i, m := range req.Messages {
			for _, p := range m.Parts {
				if p.Cache {
					points++
				}
			}
			if i == len(req.Messages)-1 && m.Parts[0].Cache {
				b.t.Errorf("%s: the tail is cached", req.Call)
			}
		}
		if points > 3 {
			b.t.Errorf("%s: %d cache points, beside the system block's", req.Call, points)
		}
		prev = cur
	}
	return announced
}

// reader is a model that calls one tool a round for some rounds and then answers; asked for a summary it writes one. It
// counts tokens as four bytes each.
type reader struct {
	mu     sync.Mutex
	rounds int // of a turn
	n      int
	sizes  []int // bytes of each request
}

func (m *reader) Stream(_ context.Context, req *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := requestBytes(req)
	m.sizes = append(m.sizes, size)
	events := []writ.ModelEvent{}
	switch {
	case isSummary(req) && req.Dialect == writ.Channel:
		events = append(events, text("<channel:summary>"+strings.Repeat("what was read so far. ", 40)+"</channel:summary>"))
	case isSummary(req):
		events = append(events, text(strings.Repeat("what was read so far. ", 40)), writ.ModelEvent{Kind: writ.ModelBlockEnd})
	default:
		m.n++
		if m.n%(m.rounds+1) == 0 {
			events = append(events, m.answer(req.Dialect)...)
		} else {
			events = append(events, m.call(req.Dialect)...)
		}
	}
	events = append(events, writ.ModelEvent{Kind: writ.ModelUsage, Usage: writ.Usage{Input: size / 4, Output: 10}}, stop)
	return func(yield func(writ.ModelEvent, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (m *reader) answer(d writ.Dialect) []writ.ModelEvent {
	if d == writ.Channel {
		return []writ.ModelEvent{text(finalDone)}
	}
	return []writ.ModelEvent{text("done"), {Kind: writ.ModelBlockEnd}}
}

func (m *reader) call(d writ.Dialect) []writ.ModelEvent {
	params := fmt.Sprintf(`{"page":%d}`, m.n)
	if d == writ.Channel {
		return []writ.ModelEvent{text(callOf("read", params))}
	}
	return []writ.ModelEvent{{Kind: writ.ModelThinking, Text: fmt.Sprint("page ", m.n)}, {Kind: writ.ModelBlockEnd, Opaque: json.RawMessage(`"signed"`)},
		{Kind: writ.ModelToolOpen, Block: 1, ID: "same", Name: "t__read"}, {Kind: writ.ModelToolArgs, Block: 1, Text: params}, {Kind: writ.ModelBlockEnd, Block: 1}}
}

func requestBytes(req *writ.ModelRequest) int {
	n := 0
	for _, s := range req.System {
		n += len(s.Text)
	}
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			n += len(p.Text) + len(p.Data) + len(p.Opaque) + len(p.ID) + len(p.Name) + len(p.Args)
			for _, c := range p.Content {
				n += len(c.Text) + len(c.JSON) + len(c.Data)
			}
		}
	}
	return n
}

// TestTwoHundredRounds: a conversation of 200 rounds, each with a result of a megabyte, under a window of 12,000 tokens.
func TestTwoHundredRounds(t *testing.T) {
	const turns, rounds, window, result = 4, 50, 12_000, 1 << 20
	for _, d := range []writ.Dialect{writ.Channel, writ.Native} {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, transcript{archive: &txtar.Archive{Files: []txtar.File{
				{Name: "agent.yaml", Data: []byte(agentWith(fmt.Sprintf("dialect: %s, max_rounds: 60, context_tokens: %d", d, window), ""))},
				{Name: "model", Data: []byte("writ_recording: 1\ndialect: channel\nrounds: [{text: unused}]\n")}}}}, memory.Open())
			m := &reader{rounds: rounds}
			b.model = &watched{Model: m}
			page := strings.Repeat("a line of a page\n", result/17)
			b.custom = funcs{"read": {strategy: writ.Exploration, call: func(_ context.Context, params string) (writ.Result, error) {
				return writ.TextResult("%s", params+page), nil
			}}}
			rt := b.runtime()
			for i := range turns {
				out, err := b.say(rt, fmt.Sprint("read part ", i+1))
				if err != nil || out.State != store.TurnAnswered || out.Rounds != rounds+1 {
					t.Fatalf("turn %d: %+v %v", i+1, out, err)
				}
			}
			if err := rt.Close(); err != nil {
				t.Fatal(err)
			}
			b.checkHistory()
			b.checkReplay(20)
			announced := b.checkPrefix()
			sent, most := 0, 0
			for _, n := range m.sizes {
				sent, most = sent+n, max(most, n)
			}
			// The newest round comes on top before the next boundary: a result's beginning, its call, and ANNOUNCE.
			if limit := 4*window + 12_000; most > limit {
				t.Errorf("a request of %d bytes, above %d", most, limit)
			}
			short, summaries, skipped := b.compactions()
			if summaries < 3 || announced < summaries {
				t.Errorf("%d summaries, %d announced breaks", summaries, announced)
			}
			everything := 0 // each round sends all results before it
			for i := range turns * rounds {
				everything += i * result
			}
			t.Logf("%s: %d requests, largest %d KB; %d times results by ref, %d summaries, %d skipped; sent %.1f MB, an append-everything loop %.0f MB (%.0f×)",
				d, len(m.sizes), most/1000, short, summaries, skipped, float64(sent)/1e6, float64(everything)/1e6, float64(everything)/float64(sent))
		})
	}
}

func (b *bench) compactions() (short, summaries, skipped int) {
	b.t.Helper()
	for _, bl := range b.blocks() {
		switch bl.Kind {
		case timeline.KindCompactResults:
			short++
		case timeline.KindCompactSummary:
			summaries++
		case timeline.KindCompactSkipped:
			skipped++
		}
	}
	return short, summaries, skipped
}

// stoppable is a model during whose summary the person stops the turn.
type stoppable struct {
	reader
	stop context.CancelFunc
}

func (m *stoppable) Stream(ctx context.Context, req *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	if !isSummary(req) {
		return m.reader.Stream(ctx, req)
	}
	return func(yield func(writ.ModelEvent, error) bool) {
		if yield(text("<channel:summary>half a summ"), nil) {
			m.stop()
			<-ctx.Done()
			yield(writ.ModelEvent{}, ctx.Err())
		}
	}
}

// TestStoppedDuringTheSummary: the turn ends as interrupted, the call is accounted, and the old prompt stands.
func TestStoppedDuringTheSummary(t *testing.T) {
	b := newBench(t, transcript{archive: &txtar.Archive{Files: []txtar.File{
		{Name: "agent.yaml", Data: []byte(agentWith("context_tokens: 4000", ""))},
		{Name: "model", Data: []byte("writ_recording: 1\ndialect: channel\nrounds: [{text: unused}]\n")}}}}, memory.Open())
	ctx, cancel := context.WithCancel(t.Context())
	b.model = &watched{Model: &stoppable{reader: reader{rounds: 20}, stop: cancel}}
	b.custom = funcs{"read": {strategy: writ.Exploration, call: func(context.Context, string) (writ.Result, error) {
		return writ.TextResult("%s", strings.Repeat("page ", 380)), nil
	}}}
	rt := b.runtime()
	out, err := rt.Run(ctx, runtime.Input{Agent: b.agent, Connections: b.connections(), Conversation: "conv", Message: "go",
		Model: func(context.Context) (writ.Model, string, error) { return b.model, "fake", nil }})
	if err != nil || out.State != store.TurnInterrupted {
		t.Fatalf("%+v %v", out, err)
	}
	if short, summaries, skipped := b.compactions(); short+summaries+skipped != 0 {
		t.Errorf("%d results, %d summaries, %d skipped", short, summaries, skipped)
	}
	found := false
	for _, bl := range b.blocks() {
		found = found || bl.Kind == timeline.KindRequest && decode[timeline.Request](t, bl).Purpose == timeline.PurposeSummary
	}
	if !found {
		t.Error("the call for the summary has no record")
	}
	b.nextTurn(rt)
	b.checkHistory()
}
