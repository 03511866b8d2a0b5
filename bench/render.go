package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"writ"
	"writ/internal/prompt"
	"writ/internal/stream"
	"writ/internal/timeline"
	"writ/store"
)

var dawn = time.Date(2026, 7, 12, 9, 0, 0, 0, time.UTC)

// roundBlocks are the blocks that one round of two calls leaves.
func roundBlocks(seq *int64, n int) []store.Block {
	var out []store.Block
	add := func(kind, action string, body any) {
		*seq++
		b := timeline.New("conv", "turn", kind, dawn, body)
		b.Seq, b.ActionID = *seq, action
		out = append(out, b)
	}
	body := timeline.Round{Round: n, Attempt: 1, Dialect: writ.Native, Finish: writ.FinishTools}
	for i := range 2 {
		id, call := fmt.Sprintf("act_%d_%d", n, i), fmt.Sprintf("tc_%d_%d", n, i)
		add(timeline.KindCall, id, timeline.Call{Tool: "probe.noop", ToolCallID: call, Round: n, Attempt: 1, Index: i, Params: fmt.Appendf(nil, `{"n":%d}`, i)})
		add(timeline.KindResult, id, timeline.Result{Tool: "probe.noop", ToolCallID: call, State: writ.Succeeded,
			Content: timeline.Store([]writ.Content{{Kind: writ.ContentText, Text: strings.Repeat("a line of a result\n", 50)}})})
		body.Items = append(body.Items, timeline.Item{Index: i, Tool: "probe.noop", ToolCallID: call, ActionID: id})
	}
	add(timeline.KindRound, "", body)
	add(timeline.KindRequest, "", timeline.Request{Call: fmt.Sprint("turn/", n, "/1")})
	return out
}

// RenderNext measures what the prompt of round n+1 costs when n rounds stand: reading the new round's blocks, comparing
// the prefix, and the request. It should cost what is new, not what is old.
func RenderNext(b *testing.B, n int) {
	kit := prompt.Kit{System: strings.Repeat("You act by calling tools. ", 100)}
	var blocks []store.Block
	var seq int64
	for i := range n {
		blocks = append(blocks, roundBlocks(&seq, i+1)...)
	}
	next := roundBlocks(&seq, n+1)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		r := prompt.NewRenderer(writ.Native, nil)
		feed(b, r, blocks)
		prefix, _ := r.Prefix(kit, nil)
		b.StartTimer()
		feed(b, r, next)
		_, rec := r.Prefix(kit, prefix)
		req := r.Request(kit, "fake", "turn/2/1", "ANNOUNCE", false)
		if rec.Break != "" || len(req.Messages) != 2*(n+1)+1 {
			b.Fatalf("break %q, %d messages", rec.Break, len(req.Messages))
		}
	}
}

// RenderAll measures reading a conversation of n rounds from its first block, as the beginning of each turn does.
func RenderAll(b *testing.B, n int) {
	var blocks []store.Block
	var seq int64
	for i := range n {
		blocks = append(blocks, roundBlocks(&seq, i+1)...)
	}
	b.ReportAllocs()
	for b.Loop() {
		feed(b, prompt.NewRenderer(writ.Native, nil), blocks)
	}
	b.ReportMetric(float64(len(blocks)), "blocks")
}

func feed(b *testing.B, r *prompt.Renderer, blocks []store.Block) {
	for _, bl := range blocks {
		if err := r.Add(bl); err != nil {
			b.Fatal(err)
		}
	}
}

// Parse measures the channel parser on one call with a megabyte of arguments. internal/stream has the whole set.
func Parse(b *testing.B, chunk int) {
	in := `<channel:thinking>x</channel:thinking><channel:action>{"action":"call_tool","tool_call":{"tool_id":"probe.noop","params":{"s":"` +
		strings.Repeat(`some text of a file, line by line.\n`, 1<<20/36) + `"}}}</channel:action>`
	b.SetBytes(int64(len(in)))
	emit := func(stream.Event) bool { return true }
	for b.Loop() {
		p := stream.NewChannel(stream.Options{})
		for i := 0; i < len(in); i += chunk {
			p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: in[i:min(i+chunk, len(in))]}, emit)
		}
		p.Finish(writ.FinishStop, emit)
	}
	chunks := (len(in) + chunk - 1) / chunk
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(chunks), "ns/chunk")
	b.ReportMetric(float64(len(in))*float64(b.N)/b.Elapsed().Seconds()/1e6, "MB/s.")
}

// PeakMemory is the most memory this process has held, as the system counts it, in bytes; 0 where it cannot be read.
func PeakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	var kb int64
	if _, err := fmt.Sscan(rest, &kb); !found || err != nil {
		return 0
	}
	return kb << 10
}
