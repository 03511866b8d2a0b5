package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"writ"
	"writ/admission"
	"writ/store"
)

// audited is a store with the histories of three invocations, an unknown outcome, a resolution and two heads.
func audited(t *testing.T) (*world, []string) {
	t.Helper()
	w := newWorld(limits{Total: 8, Concurrent: 8})
	var convs []string
	for i := range 3 {
		p, err := w.begins(nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			d := p.Admit(ctx, request(p, fmt.Sprint(n)), admission.Slot{Traits: writ.Traits{Strategy: writ.Exploration}}, callBlock)
			p.Dispatch(ctx, d.ActionID)
			if i == 2 && n == 1 {
				p.ReportUnknown(ctx, d.ActionID, "timeout", resultBlock)
			} else {
				p.Complete(ctx, d.ActionID, admission.Outcome{State: writ.Succeeded, ResultDigest: "d", Evidence: []string{"ref:a"}}, resultBlock)
			}
		}
		if err := p.End(ctx, admission.Ending{Status: admission.StatusSucceeded}, resultBlock); err != nil {
			t.Fatal(err)
		}
		convs = append(convs, p.Invocation().Conversation)
		if i > 0 {
			if _, ok, err := w.ledger.Seal(ctx); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
	return w, convs
}

// tampered is a store whose reads somebody has changed.
type tampered struct {
	store.Store
	events func([]store.Event) []store.Event
	heads  func([]store.Head) []store.Head
	row    func(*store.Action)
	tips   func([]store.Tip) []store.Tip
}

func (s *tampered) History(ctx context.Context, conv string, after int64, limit int) ([]store.Event, error) {
	all, err := s.Store.History(ctx, conv, 0, 0)
	if s.events != nil {
		all = s.events(slices.Clone(all))
	}
	all = slices.DeleteFunc(all, func(e store.Event) bool { return e.Seq <= after })
	if limit > 0 && len(all) > limit {
		all = all[:limit]
	}
	return all, err
}

func (s *tampered) Heads(ctx context.Context, after int64) ([]store.Head, error) {
	all, err := s.Store.Heads(ctx, 0)
	if s.heads != nil {
		all = s.heads(slices.Clone(all))
	}
	return slices.DeleteFunc(all, func(h store.Head) bool { return h.N <= after }), err
}

func (s *tampered) Tips(ctx context.Context, unsealed bool) ([]store.Tip, error) {
	all, err := s.Store.Tips(ctx, unsealed)
	if s.tips != nil {
		all = s.tips(slices.Clone(all))
	}
	return all, err
}

func (s *tampered) Action(ctx context.Context, id string) (store.Action, error) {
	row, err := s.Store.Action(ctx, id)
	if s.row != nil {
		s.row(&row)
	}
	return row, err
}

// Whatever a person changes is found, where it is.
func TestVerifyFinds(t *testing.T) {
	w, convs := audited(t)
	clean, err := admission.Verify(ctx, w.mem, "")
	if err != nil || len(clean.Findings) != 0 || clean.Conversations != 3 || clean.Events != 27 || clean.Heads != 2 || clean.Unsealed != 0 {
		t.Fatalf("%+v %v", clean, err)
	}
	in := func(conv string, fn func([]store.Event) []store.Event) func([]store.Event) []store.Event {
		return func(all []store.Event) []store.Event {
			if len(all) > 0 && all[0].Conversation == conv {
				return fn(all)
			}
			return all
		}
	}
	rehash := func(all []store.Event) []store.Event { // by somebody who knows how
		prev := ""
		for i := range all {
			all[i].Seq, all[i].Prev = int64(i+1), prev
			all[i].Hash = store.ChainHash(&all[i])
			prev = all[i].Hash
		}
		return all
	}
	for name, c := range map[string]struct {
		st   tampered
		what string
		seq  int64
	}{
		"an event's body": {tampered{events: in(convs[0], func(all []store.Event) []store.Event {
			all[2].Body = bytes.Replace(slices.Clone(all[2].Body), []byte("succeeded"), []byte("withheld"), 1)
			return all
		})}, "its hash is not that of its content", 3},
		"an event's time": {tampered{events: in(convs[0], func(all []store.Event) []store.Event {
			all[3].Time = all[3].Time.Add(time.Hour)
			return all
		})}, "its hash is not that of its content", 4},
		"an event removed": {tampered{events: in(convs[1], func(all []store.Event) []store.Event { return slices.Delete(all, 4, 5) })}, "events 5 to 5 are missing", 6},
		"two events swapped": {tampered{events: in(convs[1], func(all []store.Event) []store.Event {
			all[1], all[2] = all[2], all[1]
			return all
		})}, "", 0},
		"the end cut off": {tampered{events: in(convs[1], func(all []store.Event) []store.Event { return all[:6] })}, "does not end where its tip says", 9},
		"a history rewritten as a whole": {tampered{events: in(convs[0], func(all []store.Event) []store.Event {
			all[0].Body = []byte(`{"event_type":"action_attempted"}`)
			return rehash(all)
		})}, "a head has sealed another event in its place", 9},
		"a history removed": {tampered{tips: func(all []store.Tip) []store.Tip { return all[min(1, len(all)):] }}, "the whole history is missing", 9},
		"a row's state": {tampered{row: func(r *store.Action) {
			if r.State == writ.Indeterminate {
				r.State = writ.Succeeded
			}
		}}, "the row was changed", 0},
		"a row's digest": {tampered{row: func(r *store.Action) { r.ResultDigest = "other" }}, "the row was changed", 0},
		"a head removed": {tampered{heads: func(all []store.Head) []store.Head { return all[1:] }}, "the head is missing", 0},
		"a head changed": {tampered{heads: func(all []store.Head) []store.Head {
			all[0].Tips = all[0].Tips[:1]
			return all
		}}, "hash is not that of its content", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.st.Store = w.mem
			v, err := admission.Verify(ctx, &c.st, "")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(v.Findings, func(f admission.Finding) bool {
				return strings.Contains(f.What, c.what) && (c.seq == 0 || f.Seq == c.seq)
			}) {
				t.Errorf("%+v", v.Findings)
			}
		})
	}
}

// Against a head that was kept elsewhere a store that was rewritten as a whole is found out.
func TestVerifyAgainstAHead(t *testing.T) {
	w, _ := audited(t)
	heads, err := w.mem.Heads(ctx, 0)
	if err != nil || len(heads) != 2 {
		t.Fatal(heads, err)
	}
	for _, h := range heads {
		if v, err := admission.Verify(ctx, w.mem, h.Hash); err != nil || len(v.Findings) != 0 {
			t.Errorf("%+v %v", v.Findings, err)
		}
	}
	other, _ := audited(t) // another store, sound in itself
	other.pass(time.Hour)
	v, err := admission.Verify(ctx, other.mem, strings.Repeat("0", 64))
	if err != nil || len(v.Findings) != 1 || !strings.Contains(v.Findings[0].What, "the given head") {
		t.Errorf("%+v %v", v.Findings, err)
	}
}

// A settled action of an ended invocation that no history tells of is found.
func TestVerifyMissesNoRow(t *testing.T) {
	w, convs := audited(t)
	st := &tampered{Store: w.mem, tips: func(all []store.Tip) []store.Tip {
		return slices.DeleteFunc(all, func(t store.Tip) bool { return t.Conversation == convs[2] })
	}}
	v, err := admission.Verify(ctx, st, "")
	if err != nil || !slices.ContainsFunc(v.Findings, func(f admission.Finding) bool {
		return strings.Contains(f.What, "no history tells of it") && f.Action != ""
	}) {
		t.Errorf("%+v %v", v.Findings, err)
	}
}

func TestSeal(t *testing.T) {
	w := newWorld(limits{Total: 8, Concurrent: 8})
	if h, ok, err := w.ledger.Seal(ctx); ok || err != nil || h.N != 0 {
		t.Errorf("nothing to seal: %+v %v %v", h, ok, err)
	}
	w, _ = audited(t)
	n := w.st.writes.Load()
	h, ok, err := w.ledger.Seal(ctx)
	if ok || err != nil || h.N != 2 || w.st.writes.Load() != n {
		t.Errorf("nothing has grown: %+v %v %v", h, ok, err)
	}
}

// The export has the fields that docs/history.md lists, and no others.
func TestExport(t *testing.T) {
	w, convs := audited(t)
	rows := w.rows()
	for _, r := range rows {
		if r.State == writ.Indeterminate {
			if _, err := resolve(w, r.ID, owner, func(r *admission.Resolution) { r.Note = "a secret note" }); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out bytes.Buffer
	n, err := admission.Export(ctx, w.mem, &out, admission.ExportFilter{})
	if err != nil || n != 28 {
		t.Fatalf("%d %v", n, err)
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("the export has a note")
	}
	page, err := os.ReadFile("../docs/history.md")
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]int{}
	for line := range strings.Lines(out.String()) {
		var fields, event map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		_ = json.Unmarshal(fields["event"], &event)
		types[string(fields["type"])]++
		for _, m := range []map[string]json.RawMessage{fields, event} {
			for name := range m {
				if !bytes.Contains(page, []byte("`"+name+"`")) && !bytes.Contains(page, []byte("`"+name+".")) && name != "lifecycle_phase" && name != "phase_realization" && name != "observation_point" {
					t.Errorf("docs/history.md does not know the field %s", name)
				}
			}
		}
	}
	if types[`"event"`] != 28 || types[`"head"`] != 2 {
		t.Errorf("%v", types)
	}
	for _, f := range []admission.ExportFilter{{Since: w.clock().Add(time.Hour)}, {Participant: "participant.behavior.nobody"}} {
		out.Reset()
		if n, err := admission.Export(ctx, w.mem, &out, f); n != 0 || err != nil {
			t.Errorf("%+v: %d %v", f, n, err)
		}
	}
	_ = convs
}

// T78: a reader never sees the events of an invocation's actions without its end.
func TestOneCommit(t *testing.T) {
	w := newWorld(limits{Total: 8, Concurrent: 8})
	p, err := w.begins(nil)
	if err != nil {
		t.Fatal(err)
	}
	admit(p, "a")
	w.st.set(refused)
	if err := p.End(ctx, admission.Ending{Status: admission.StatusSucceeded}, resultBlock); err == nil {
		t.Fatal("ended without a write")
	}
	w.st.set(sound)
	inv := p.Invocation()
	if h, _ := w.mem.History(ctx, inv.Conversation, 0, 0); len(h) != 0 || w.theTurn(inv.ID).State != store.TurnRunning {
		t.Errorf("%d events of a %s turn", len(h), w.theTurn(inv.ID).State)
	}
	if err := p.End(ctx, admission.Ending{Status: admission.StatusSucceeded}, resultBlock); err != nil {
		t.Fatal(err)
	}
	b := w.st.last
	if len(b.History) != 6 || len(b.Turns) != 1 || len(b.Actions) != 1 {
		t.Errorf("the end is not one write: %d events, %d turns, %d rows", len(b.History), len(b.Turns), len(b.Actions))
	}
}
