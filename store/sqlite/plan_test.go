package sqlite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"writ"
	"writ/store"
)

func plan(t *testing.T, s *Store, q string, args ...any) string {
	t.Helper()
	rows, err := s.read.Query("EXPLAIN QUERY PLAN "+q, args...)
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		out = append(out, detail)
	}
	return strings.Join(out, "; ")
}

// TestEveryReadHasAnIndex pins the plans: which index leads, and that a page is not sorted.
func TestEveryReadHasAnIndex(t *testing.T) {
	s := open1(t, t.TempDir())
	page, at := &store.ActionCursor{After: 5, Limit: 10}, time.Unix(1, 0)
	for _, c := range []struct {
		f     store.ActionFilter
		index string
	}{
		{store.ActionFilter{Limit: 5}, "SCAN actions"}, {store.ActionFilter{Page: page}, "INTEGER PRIMARY KEY (rowid>?)"},
		{store.ActionFilter{Turn: "x"}, "(turn=?)"}, {store.ActionFilter{Turn: "x", Owner: "x", Participant: "x", Conversation: "x", Round: 1}, "(turn=?"},
		{store.ActionFilter{Conversation: "x", Owner: "x", Participant: "x"}, "actions_conversation (conversation=?)"},
		{store.ActionFilter{Conversation: "x", Page: page}, "actions_conversation (conversation=? AND n>?)"},
		{store.ActionFilter{Participant: "x", Owner: "x", Tenant: "x", Page: page}, "actions_participant (participant=? AND n>?)"},
		{store.ActionFilter{Owner: "x", Tenant: "x", Page: page}, "actions_owner (owner=? AND n>?)"},
		{store.ActionFilter{Owner: "x", Since: at, Page: page}, "actions_owner (owner=? AND n>?)"},
		{store.ActionFilter{Since: at, Page: page}, "INTEGER PRIMARY KEY (rowid>?)"},
		{store.ActionFilter{Since: at, Page: &store.ActionCursor{}}, "COVERING INDEX actions_time (admitted_at>?)"},
		{store.ActionFilter{Since: at}, "COVERING INDEX actions_time (admitted_at>?)"},
		{store.ActionFilter{Unresolved: true}, "actions_unresolved"}, {store.ActionFilter{Unresolved: true, Owner: "x", Page: page}, "actions_unresolved"},
		{store.ActionFilter{Unresolved: true, Conversation: "x"}, "(conversation=?)"},
		{store.ActionFilter{States: []writ.ActionState{writ.Held, writ.Dispatched}}, "actions_open"},
	} {
		q, args := actionQuery(&c.f)
		got := plan(t, s, q, args...)
		sorted := strings.Contains(got, "TEMP B-TREE") && c.f.Turn == ""
		if !strings.Contains(got, c.index) || sorted {
			t.Errorf("%+v: %s, want %s", c.f, got, c.index)
		}
	}
	for _, c := range []struct {
		f     store.ApprovalFilter
		index string
	}{
		{store.ApprovalFilter{}, "SCAN approvals"}, {store.ApprovalFilter{Turn: "x", Conversation: "x", States: []string{"pending"}}, "approvals_turn"},
		{store.ApprovalFilter{Conversation: "x", States: []string{"pending"}}, "approvals_conversation"},
		{store.ApprovalFilter{States: []string{"pending"}}, "approvals_state"},
	} {
		q, args := approvalQuery(&c.f)
		if got := plan(t, s, q, args...); !strings.Contains(got, c.index) || strings.Contains(got, "TEMP B-TREE") {
			t.Errorf("%+v: %s, want %s", c.f, got, c.index)
		}
	}
	for q, index := range map[string]string{
		`SELECT id FROM turns WHERE state IN ('running', 'parked', 'draining') ORDER BY n`:                                        "turns_open",
		`SELECT conversation FROM chains WHERE seq > sealed ORDER BY conversation`:                                                "chains_unsealed",
		`SELECT conversation FROM chains ORDER BY conversation`:                                                                   "chains",
		`SELECT n FROM operations WHERE parent = 'x' ORDER BY n`:                                                                  "operations_parent",
		`SELECT n FROM tokens WHERE kind = 'x' ORDER BY n`:                                                                        "tokens_kind",
		`DELETE FROM quarantine WHERE action = 'x'`:                                                                               "quarantine_action",
		`SELECT action FROM quarantine WHERE tenant = 'x' AND owner = 'x' AND target = 'x'`:                                       "PRIMARY KEY",
		`SELECT seq FROM history WHERE conversation = 'x' AND seq > 1 ORDER BY seq`:                                               "PRIMARY KEY",
		`UPDATE actions SET resolved = EXISTS (SELECT 1 FROM operations WHERE parent = actions.id AND kind = 'x') WHERE id = 'x'`: "operations_parent",
	} {
		if got := plan(t, s, q); !strings.Contains(got, index) || strings.Contains(got, "TEMP B-TREE") {
			t.Errorf("%s: %s, want %s", q, got, index)
		}
	}
}

// TestOneGroupOneChain: batches that share a commit append to one chain, and one that is taken back amid them leaves
// no gap, no quarantine and no head.
func TestOneGroupOneChain(t *testing.T) {
	s := open1(t, t.TempDir())
	first := newBatch("first")
	first.Claims = []store.Claim{{Scope: "s", Key: "taken"}}
	if err := s.Apply(context.Background(), first); err != nil {
		t.Fatal(err)
	}
	batches := make([]*store.Batch, 6)
	errs := gather(t, s, len(batches), func(i int) *store.Batch {
		b := newBatch(fmt.Sprint("b", i))
		for range i%2 + 1 {
			b.History = append(b.History, store.Event{Conversation: "c", Type: fmt.Sprint(i), Time: b.Time})
		}
		b.Quarantine = []store.Quarantine{{Target: fmt.Sprint(i), Action: "a"}}
		if i == 2 || i == 3 { // refused after their events were appended
			b.Schedules = []store.ScheduleWrite{{Expect: 1}}
		}
		batches[i] = b
		return b
	})
	list, err := s.History(context.Background(), "c", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	prev, types := "", ""
	for i := range list {
		if list[i].Seq != int64(i)+1 || list[i].Prev != prev || list[i].Hash != store.ChainHash(&list[i]) {
			t.Errorf("event %d does not follow: %+v", i, list[i])
		}
		prev, types = list[i].Hash, types+list[i].Type
	}
	if types != "011455" {
		t.Errorf("events of %s", types)
	}
	for i, err := range errs {
		if (err != nil) != (i == 2 || i == 3) {
			t.Errorf("batch %d: %v", i, err)
		}
	}
	if last := batches[5].History[1]; last.Hash != prev || last.Seq != 6 {
		t.Errorf("the last batch was told %+v", last)
	}
	if q, err := s.Quarantined(context.Background()); err != nil || len(q) != 4 {
		t.Errorf("quarantine %v %v", q, err)
	}
}
