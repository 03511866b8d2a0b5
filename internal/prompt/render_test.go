package prompt

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"writ"
	"writ/internal/timeline"
	"writ/store"
)

var t0 = time.Date(2026, 7, 12, 9, 0, 0, 0, time.UTC)

// story is a conversation of some turns with rounds of one call each, as blocks.
func story(turns, rounds int) []store.Block {
	var out []store.Block
	add := func(turn, kind, action string, body any) {
		b := timeline.New("c", turn, kind, t0, body)
		b.Seq, b.ActionID = int64(len(out)+1), action
		out = append(out, b)
	}
	for t := 1; t <= turns; t++ {
		turn := fmt.Sprint("turn", t)
		add(turn, timeline.KindUser, "", timeline.User{Text: "question " + turn})
		for n := 1; n <= rounds; n++ {
			id, call := fmt.Sprintf("act_%d_%d", t, n), fmt.Sprintf("tc_%d_%d", t, n)
			add(turn, timeline.KindCall, id, timeline.Call{Tool: "t.get", ToolCallID: call, Round: n, Attempt: 1, Params: json.RawMessage(`{"n":1}`)})
			add(turn, timeline.KindResult, id, timeline.Result{Tool: "t.get", ToolCallID: call, State: writ.Succeeded, Content: []timeline.Content{{Kind: writ.ContentText, Text: "result " + call}}})
			add(turn, timeline.KindRound, "", timeline.Round{Round: n, Attempt: 1, Items: []timeline.Item{{Tool: "t.get", ToolCallID: call, ActionID: id}}})
		}
		add(turn, timeline.KindAnswer, "", timeline.Answer{Text: "answer " + turn})
		add(turn, timeline.KindTurnEnd, "", timeline.TurnEnd{State: store.TurnAnswered})
	}
	return out
}

func rendered(t *testing.T, d writ.Dialect, blocks []store.Block) *Renderer {
	t.Helper()
	r := NewRenderer(d, nil)
	for _, b := range blocks {
		if err := r.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

var kit = BuildKit(writ.Native, []Tool{{ID: "t.get", Name: "t__get", Description: "Get.", Traits: writ.Traits{Strategy: writ.Exploration}}}, "be kind")

func TestSameBlocksSameBytes(t *testing.T) {
	for _, d := range []writ.Dialect{writ.Channel, writ.Native} {
		blocks := story(3, 5)
		one, two := rendered(t, d, blocks), rendered(t, d, blocks)
		if diff := cmp.Diff(one.Request(kit, "m", "c", "tail", false), two.Request(kit, "m", "c", "tail", false)); diff != "" {
			t.Errorf("%s: %s", d, diff)
		}
	}
}

// TestThePrefixOnlyGrows: each request's messages are the beginning of the next one's, whatever the block in between.
func TestThePrefixOnlyGrows(t *testing.T) {
	for _, d := range []writ.Dialect{writ.Channel, writ.Native} {
		r := NewRenderer(d, nil)
		prev := []writ.Message{}
		for _, b := range story(3, 6) {
			if err := r.Add(b); err != nil {
				t.Fatal(err)
			}
			req := plain(r.Request(kit, "m", "c", "", false))
			if len(req) < len(prev) || cmp.Diff(prev, req[:len(prev)]) != "" {
				t.Fatalf("%s: after block %d (%s) the prompt does not begin as before", d, b.Seq, b.Kind)
			}
			prev = req
		}
	}
}

// plain drops the cache marks, which move.
func plain(req *writ.ModelRequest) []writ.Message {
	out := make([]writ.Message, len(req.Messages))
	for i, m := range req.Messages {
		out[i] = writ.Message{Role: m.Role, Parts: append([]writ.Part(nil), m.Parts...)}
		for j := range out[i].Parts {
			out[i].Parts[j].Cache = false
		}
	}
	return out
}

func TestCachePoints(t *testing.T) {
	marks := func(r *Renderer) (texts []string) {
		for _, m := range r.Request(kit, "m", "c", "tail", false).Messages {
			for _, p := range m.Parts {
				if p.Cache {
					texts = append(texts, strings.TrimSpace(strings.SplitN(strings.TrimPrefix(p.Text, "[your answer, as the person saw it]\n"), "\n", 2)[0]))
				}
			}
		}
		return texts
	}
	blocks := story(2, 6)
	for _, c := range []struct {
		name string
		n    int
		want []string
	}{
		{"a first message", 1, []string{"question turn1"}},
		{"the second turn begins", 22, []string{"[round 2]", "answer turn1", "question turn2"}},
		{"its sixth round", 22 + 18, []string{"answer turn1", "[round 2]", "[round 6]"}},
	} {
		got := marks(rendered(t, writ.Channel, blocks[:c.n]))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got): %s", c.name, diff)
		}
	}
	if req := rendered(t, writ.Channel, blocks).Request(kit, "m", "c", "tail", false); req.Messages[len(req.Messages)-1].Parts[0].Cache || !req.System[0].Cache {
		t.Error("the tail is cached, or the system block is not")
	}
}

func TestPrefixRecord(t *testing.T) {
	blocks := story(2, 3)
	r := rendered(t, writ.Channel, blocks[:4])
	p1, first := r.Prefix(kit, nil)
	if first.Break != "" || first.PrefixBytes != 0 || first.Segments != 2 {
		t.Errorf("the first request: %+v", first)
	}
	for _, b := range blocks[4:7] {
		if err := r.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	_, second := r.Prefix(kit, p1)
	if second.Break != "" || second.PrefixBytes != first.Bytes || second.Bytes <= first.Bytes {
		t.Errorf("the second request: %+v after %+v", second, first)
	}
	other := kit
	other.System += " and quick"
	if _, rec := r.Prefix(other, p1); rec.Break != "system" || rec.PrefixBytes != 0 || rec.Announced {
		t.Errorf("another system block: %+v", rec)
	}
	tools := kit
	tools.Tools = nil
	if _, rec := r.Prefix(tools, p1); rec.Break != "tools" || rec.PrefixBytes != len(kit.System) {
		t.Errorf("other tools: %+v", rec)
	}
	// Across turns only hashes are kept; they find the same.
	later := rendered(t, writ.Channel, blocks[:7])
	stored := timeline.New("c", "turn1", timeline.KindRequest, t0, second)
	stored.Seq = 8
	if err := later.Add(stored); err != nil {
		t.Fatal(err)
	}
	if _, rec := later.Prefix(kit, nil); rec.Break != "" || rec.PrefixBytes != second.Bytes {
		t.Errorf("the next turn: %+v", rec)
	}
	if _, rec := later.Prefix(other, nil); rec.Break != "system" {
		t.Errorf("the next turn under another system block: %+v", rec)
	}
}

func TestHideRewritesOnlyTheTailAndSaysSo(t *testing.T) {
	blocks := story(1, 6)
	r := rendered(t, writ.Native, blocks[:19])
	if ok, known := r.CanHide("tc_1_1"); ok || !known {
		t.Errorf("a result before the cache point: %v %v", ok, known)
	}
	if ok, known := r.CanHide("tc_1_6"); !ok || !known {
		t.Errorf("a result in the tail: %v %v", ok, known)
	}
	if _, known := r.CanHide("tc_none"); known {
		t.Error("an unknown result is known")
	}
	prev, _ := r.Prefix(kit, nil)
	hide := timeline.New("c", "turn1", timeline.KindHide, t0, timeline.Hide{ToolCallID: "tc_1_6", Replacement: "(seen)"})
	hide.Seq = 100
	if err := r.Add(hide); err != nil {
		t.Fatal(err)
	}
	req := r.Request(kit, "m", "c", "", false)
	last := req.Messages[len(req.Messages)-1].Parts[0]
	if last.Kind != writ.PartToolResult || len(last.Content) != 1 || last.Content[0].Text != "(seen)" {
		t.Errorf("the hidden result: %+v", last)
	}
	if _, rec := r.Prefix(kit, prev); rec.Break == "" || !rec.Announced {
		t.Errorf("the break: %+v", rec)
	}
}

func TestALateOutcomeIsAnEventThatNamesItsCall(t *testing.T) {
	blocks := story(1, 1)
	round := blocks[3]
	body, err := timeline.Decode[timeline.Round](round)
	if err != nil {
		t.Fatal(err)
	}
	body.Items[0].Running = true
	for _, d := range []writ.Dialect{writ.Channel, writ.Native} {
		r := rendered(t, d, blocks[:2]) // user and call: the outcome is not there yet
		rb := timeline.New("c", "turn1", timeline.KindRound, t0, body)
		rb.Seq = 3
		late := blocks[2]
		late.Seq = 4
		for _, b := range []store.Block{rb, late} {
			if err := r.Add(b); err != nil {
				t.Fatal(err)
			}
		}
		text := fmt.Sprintf("%+v", r.Request(kit, "m", "c", "", false).Messages)
		if !strings.Contains(text, "running, outcome not known yet") || !strings.Contains(text, "the outcome of tc_1_1 (t.get) is now known: succeeded") || strings.Count(text, "result tc_1_1") != 1 {
			t.Errorf("%s: %s", d, text)
		}
	}
}

func TestBlocksOutOfOrderAndOfLaterVersions(t *testing.T) {
	r := rendered(t, writ.Channel, story(1, 1))
	if err := r.Add(store.Block{Seq: 1, Kind: timeline.KindUser, Body: []byte(`{}`)}); err == nil {
		t.Error("an old block was added again")
	}
	before := len(r.Request(kit, "m", "c", "", false).Messages)
	if err := r.Add(store.Block{Seq: 1000, Kind: "from the future", Body: []byte(`[`)}); err != nil {
		t.Errorf("a kind of a later version: %v", err)
	}
	if after := len(r.Request(kit, "m", "c", "", false).Messages); after != before {
		t.Error("a kind of a later version is shown")
	}
	if err := r.Add(store.Block{Seq: 1001, Kind: timeline.KindUser, Body: []byte(`{`)}); err == nil || !strings.Contains(err.Error(), "block 1001 (user)") {
		t.Errorf("a damaged block: %v", err)
	}
}

func TestAdditionalInstructionsStandOnceAndVerbatim(t *testing.T) {
	text := "line one\n  {{ two }} <b> ```\n"
	for _, d := range []writ.Dialect{writ.Channel, writ.Native} {
		sys := BuildKit(d, nil, text).System
		if strings.Count(sys, text) != 1 || !strings.HasSuffix(sys, text) {
			t.Errorf("%s: %q", d, sys)
		}
		if strings.Contains((Announce{Round: 1, MaxRounds: 2, Now: t0}).Text(), "line one") {
			t.Error("instructions in ANNOUNCE")
		}
	}
}

func TestAnnounceSaysOnlyWhatThereIs(t *testing.T) {
	got := Announce{Round: 2, MaxRounds: 5, Attempt: 1, Now: t0}.Text()
	want := "ANNOUNCE\n[ROUND] 2 of 5\n[BUDGET] 3 rounds left after this, 0s elapsed, 0 input and 0 output tokens so far\n[TIME] Sunday 2026-07-12 09:00 UTC\n"
	if got != want {
		t.Errorf("%q", got)
	}
	full := Announce{Round: 5, MaxRounds: 5, Attempt: 2, Last: true, AnswerOnly: true, Now: t0, Workspace: []string{"conv:fi:files/a (3 bytes)"},
		Plans:   []timeline.Plan{{ID: "old", Closed: true}, {ID: "p", Active: true, Steps: []timeline.Step{{Text: "do", Status: "open"}}}},
		Unknown: []timeline.Result{{ToolCallID: "tc", Tool: "mail.send", Failure: "timeout"}}, Started: []string{"x"}, Vanished: []string{"gone.tool"}}.Text()
	for _, s := range []string{", try 2: the last one", "plan p (current)", "1. [open] do", "tc mail.send (timeout)", "[ALREADY STARTED", "gone.tool", "no tool is available"} {
		if !strings.Contains(full, s) {
			t.Errorf("%q is missing in %s", s, full)
		}
	}
	if strings.Contains(full, "plan old") {
		t.Error("a closed plan is announced")
	}
}
