package prompt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"writ"
	"writ/internal/timeline"
	"writ/store"
)

// appended adds blocks of turn "turn9" to a story and returns it.
func appended(blocks []store.Block, turn string, bodies ...any) []store.Block {
	blocks = slices.Clone(blocks)
	for _, body := range bodies {
		kind := map[string]string{"timeline.User": timeline.KindUser, "timeline.Request": timeline.KindRequest, "timeline.CompactSummary": timeline.KindCompactSummary,
			"timeline.CompactResults": timeline.KindCompactResults, "timeline.CompactSkipped": timeline.KindCompactSkipped, "timeline.Hide": timeline.KindHide,
			"timeline.Plan": timeline.KindPlan}[fmt.Sprintf("%T", body)]
		b := timeline.New("c", turn, kind, t0, body)
		b.Seq = blocks[len(blocks)-1].Seq + 1
		blocks = append(blocks, b)
	}
	return blocks
}

func TestTokens(t *testing.T) {
	blocks := story(1, 4)
	r := rendered(t, writ.Native, blocks)
	size := len(kit.System) + len(kit.Tools[0].Name) + len(kit.Tools[0].Description) + len(kit.Tools[0].Schema)
	for _, s := range r.segs {
		size += s.bytes
	}
	if got := r.Tokens(kit); got != size/CharsPerToken {
		t.Errorf("%d tokens without a count, of %d bytes", got, size)
	}
	_, rec := r.Prefix(kit, nil)
	rec.Usage = writ.Usage{Input: 100, CacheRead: 10_000, CacheWrite: 1000, Output: 7}
	counted := rendered(t, writ.Native, appended(blocks, "turn2", rec))
	if got := counted.Tokens(kit); got != 11_100 {
		t.Errorf("%d tokens, the provider counted 11100", got)
	}
	grown := rendered(t, writ.Native, appended(blocks, "turn2", rec, timeline.User{Text: strings.Repeat("x", 4000)}))
	if got := grown.Tokens(kit); got < 12_095 || got > 12_105 {
		t.Errorf("%d tokens after 4000 bytes more", got)
	}
	rec.Purpose = timeline.PurposeSummary
	if got := rendered(t, writ.Native, appended(blocks, "turn2", rec)).Tokens(kit); got != size/CharsPerToken {
		t.Errorf("the count of a summary was taken for that of a decision: %d", got)
	}
}

// TestCut: for every length of a conversation and every budget a cut is the end of a round, at least two rounds stay, and
// after it no call is without its result.
func TestCut(t *testing.T) {
	for _, d := range []writ.Dialect{writ.Channel, writ.Native} {
		blocks := story(3, 4)
		for n := range len(blocks) {
			for keep := 0; keep < 2000; keep += 200 {
				r := rendered(t, d, blocks[:n+1])
				c, ok := r.Cut(keep)
				if !ok {
					continue
				}
				before := r.segs[c.Segment]
				if before.ends == 0 {
					t.Fatalf("%s, %d blocks, keep %d: cut after a segment that ends nothing", d, n+1, keep)
				}
				var units, weight int
				for i, s := range r.segs[c.Segment+1:] {
					weight += s.weight
					if s.ends == endRound || s.ends == endAnswer && i == 0 {
						units++
					}
				}
				if units < 2 {
					t.Errorf("%s, %d blocks, keep %d: %d rounds stay", d, n+1, keep, units)
				}
				all := appended(blocks[:n+1], r.turn, timeline.CompactSummary{UptoSeq: c.Seq, Rounds: c.Rounds, Summary: "so far", Kept: r.Kept(c, 1000)})
				req := rendered(t, d, all).Request(kit, "m", "c", "", false)
				if err := paired(req.Messages); err != nil {
					t.Errorf("%s, %d blocks, keep %d: %v", d, n+1, keep, err)
				}
				if !strings.Contains(req.Messages[0].Parts[0].Text, "question "+r.turn) && before.turn == r.turn {
					t.Errorf("%s, %d blocks, keep %d: the message of the running turn is gone", d, n+1, keep)
				}
			}
		}
	}
}

// paired reports a call without its result or a result without its call.
func paired(msgs []writ.Message) error {
	open := map[string]bool{}
	for _, m := range msgs {
		for _, p := range m.Parts {
			switch p.Kind {
			case writ.PartToolUse:
				open[p.ID] = true
			case writ.PartToolResult:
				if !open[p.ID] {
					return fmt.Errorf("an orphan result %s", p.ID)
				}
				delete(open, p.ID)
			}
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("orphan calls %v", open)
	}
	return nil
}

func TestCutPrefersTheEndOfATurn(t *testing.T) {
	r := rendered(t, writ.Channel, story(3, 4))
	all := 0
	for _, s := range r.segs {
		all += s.weight
	}
	c, ok := r.Cut(all * 6 / 10)
	if next := r.segs[c.Segment+1]; !ok || next.turn == r.segs[c.Segment].turn && next.turn != "turn3" {
		t.Errorf("cut inside %s though a turn's end was near: %+v", next.turn, c)
	}
	// One turn that is too large to keep is cut at the end of one of its rounds.
	blocks := append(story(1, 8), timeline.New("c", "turn2", timeline.KindUser, t0, timeline.User{Text: "and now"}))
	blocks[len(blocks)-1].Seq = blocks[len(blocks)-2].Seq + 1
	r = rendered(t, writ.Channel, blocks)
	if c, ok := r.Cut(500); !ok || r.segs[c.Segment].ends != endRound || r.segs[c.Segment+1].turn != "turn1" {
		t.Errorf("%+v %v", c, ok)
	}
}

func TestSummaryKeepsWordForWord(t *testing.T) {
	blocks := appended(story(2, 3), "turn2", timeline.Plan{ID: "old", Steps: []timeline.Step{{Text: "gone", Status: "done"}}},
		timeline.Plan{ID: "old", Closed: true}, timeline.Plan{ID: "p", Active: true, Steps: []timeline.Step{{Text: "first", Status: "open"}}},
		timeline.Plan{ID: "p", Active: true, Steps: []timeline.Step{{Text: "first", Status: "done"}}},
		timeline.Hide{ToolCallID: "tc_1_1", Replacement: "<channel:action> and a note"}, timeline.User{Text: "third question"})
	r := rendered(t, writ.Channel, blocks)
	c := Cut{Segment: len(r.segs) - 2, Seq: r.segs[len(r.segs)-2].seq, Rounds: 6}
	k := r.Kept(c, 10_000)
	want := timeline.Kept{Said: []timeline.Said{{Turn: "turn1", Text: "question turn1"}, {Turn: "turn2", Text: "question turn2"}},
		Plans: []timeline.Plan{{ID: "p", Active: true, Steps: []timeline.Step{{Text: "first", Status: "done"}}}}, Notes: []timeline.Hide{{ToolCallID: "tc_1_1", Replacement: "<channel:action> and a note"}}}
	if d := cmp.Diff(want, k); d != "" {
		t.Errorf("kept (-want +got): %s", d)
	}
	if k := r.Kept(c, 5); len(k.Said) != 1 || k.Said[0].Turn != "turn2" {
		t.Errorf("without room only the message of the running turn stays: %+v", k.Said)
	}
	v := timeline.CompactSummary{UptoSeq: c.Seq, Rounds: 6, Summary: "it <channel:action> went well", Kept: k}
	r = rendered(t, writ.Channel, appended(blocks, "turn2", v))
	first := r.Request(kit, "m", "c", "", false).Messages
	if len(first) != 2 || strings.Contains(first[0].Parts[0].Text, "<channel:") || !strings.Contains(first[0].Parts[0].Text, "went well") || first[1].Parts[0].Text != "third question" {
		t.Errorf("%+v", first)
	}
	if _, known := r.CanHide("tc_1_1"); known {
		t.Error("a result that is no longer shown can be hidden")
	}
}

func TestShortenedResults(t *testing.T) {
	for _, d := range []writ.Dialect{writ.Channel, writ.Native} {
		blocks := story(2, 6)
		r := rendered(t, d, blocks)
		var ids []string
		for _, res := range r.Old(0, false) {
			ids = append(ids, res.ToolCallID)
		}
		if d := cmp.Diff([]string{"tc_1_1", "tc_1_2", "tc_1_3", "tc_1_4", "tc_1_5", "tc_1_6", "tc_2_1", "tc_2_2"}, ids); d != "" {
			t.Errorf("old results: %s", d)
		}
		if got := r.Old(0, true); len(got) != 0 {
			t.Errorf("with two turns nothing is older than the last one: %v", got)
		}
		if got := r.Old(1000, false); len(got) != 0 {
			t.Errorf("small results are taken: %v", got)
		}
		prev, rec := r.Prefix(kit, nil)
		all := appended(blocks, "turn2", rec, timeline.CompactResults{Reason: ReasonLimit, Results: []timeline.Shortened{{ToolCallID: "tc_1_2", Head: "res", Ref: "conv:fi:results/x", Chars: 13}}})
		for _, b := range all[len(blocks):] {
			if err := r.Add(b); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(rendered(t, d, all).Request(kit, "m", "c", "", false), r.Request(kit, "m", "c", "", false)); diff != "" {
			t.Errorf("%s: block by block is not the same as from the first: %s", d, diff)
		}
		text := string(mustJSON(t, r.Request(kit, "m", "c", "", false).Messages))
		if strings.Contains(text, "result tc_1_2") || !strings.Contains(text, "13 characters had been shown. The whole is at conv:fi:results/x") {
			t.Errorf("%s: %s", d, text)
		}
		if _, rec := r.Prefix(kit, prev); rec.Break == "" || !rec.Announced || rec.Reason != "results by reference" {
			t.Errorf("the break: %+v", rec)
		}
		if _, rec := rendered(t, d, append(all, blockAfter(all, rec))).Prefix(Kit{System: "other"}, nil); rec.Announced {
			t.Errorf("an old announcement covers a new break: %+v", rec)
		}
	}
}

func blockAfter(blocks []store.Block, rec timeline.Request) store.Block {
	b := timeline.New("c", "turn2", timeline.KindRequest, t0.Add(time.Minute), rec)
	b.Seq = blocks[len(blocks)-1].Seq + 1
	return b
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReplayRefusesWhatItCannotMake(t *testing.T) {
	blocks := story(1, 2)
	none := func(string) ([]byte, error) { return nil, store.ErrNotFound }
	r := NewRenderer(writ.Native, kit.name)
	for _, b := range blocks {
		if err := r.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	_, rec := r.Prefix(kit, nil)
	for name, c := range map[string][]store.Block{
		"nothing":               nil,
		"no record":             blocks,
		"no document":           append(slices.Clone(blocks), blockAfter(blocks, rec)),
		"an old record":         append(slices.Clone(blocks), blockAfter(blocks, timeline.Request{Segments: 1})),
		"more segments than is": append(slices.Clone(blocks), blockAfter(blocks, timeline.Request{Segments: 99, Kit: kit.digest})),
	} {
		doc := none
		if name == "more segments than is" {
			doc = func(string) ([]byte, error) { return kit.doc, nil }
		}
		if _, err := Replay(c, doc); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	good := append(slices.Clone(blocks), blockAfter(blocks, rec))
	got, err := Replay(good, func(string) ([]byte, error) { return kit.doc, nil })
	if err != nil || !got.Same {
		t.Fatalf("%+v %v", got, err)
	}
	rec.PrefixHash = "other"
	if got, err := Replay(append(slices.Clone(blocks), blockAfter(blocks, rec)), func(string) ([]byte, error) { return kit.doc, nil }); err != nil || got.Same {
		t.Errorf("another hash is called the same: %v", err)
	}
}
