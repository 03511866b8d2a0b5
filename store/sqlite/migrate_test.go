package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"writ"
	"writ/store"
)

// schema1 makes a data directory as the first release left it, with rows.
func schema1(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, File), "rwc"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	p, err := provider(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	exec := func(q string, args ...any) {
		t.Helper()
		if _, err := db.Exec(q, args...); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	exec(`INSERT INTO conversations (id, tenant, owner, agent, lease_token, lease_until, holder, next_seq, created, changed)
		VALUES ('c1', 'local', 'ann', 'main', 3, 0, 'h', 2, 1000000, 2000000), ('c2', 'local', 'bob', 'main', 1, 0, '', 1, 1000000, 1000000)`)
	exec(`INSERT INTO turns (n, id, conversation, agent, state, reason, config_digest, holder, started, ended)
		VALUES (4, 'z', 'c1', 'main', 'answered', '', 'cd', 'h', 1000000, 2000000), (7, 'y', 'c2', 'main', 'running', '', 'cd', 'h', 1000000, 0),
		(9, 'x', 'c1', 'main', 'running', 'r', 'cd', 'h', 1000000, 0)`)
	exec(`INSERT INTO blocks (conversation, seq, key, turn, kind, action, body, time) VALUES ('c1', 1, 'k', 'z', 'user', '', x'00ff', 1000000)`)
	for i, a := range []struct{ id, conversation, state, targets string }{
		{"a1", "c1", "succeeded", `["t0"]`}, {"a2", "c1", "indeterminate", `["t1","a \"quoted\" é\u003c"]`}, {"a3", "c2", "indeterminate", `["t1","t1"]`},
		{"a4", "c2", "indeterminate", `[]`}, {"a5", "lost", "indeterminate", `["t5"]`}, {"a6", "c2", "dispatched", `["t6"]`},
	} {
		exec(`INSERT INTO actions (id, tenant, conversation, turn, ordinal, round, attempt, idx, tool, tool_call_id, fingerprint, request_digest,
			argument_digest, participant, implementation, affordance, contract, boundary, targets, scope, generation, lease_token, strategy,
			execution, effect, policy_digest, idempotency_key, observation, early, admitted_at, state, failure, evidence, result_digest,
			dispatched_at, settled_at) VALUES (?, 'local', ?, 'z', ?, 1, 1, ?, 'tool', ?, '', '', '', 'p', '', '', '', '', ?, '', 0, 3, '', '', '',
			'', '', '', 0, 1000000, ?, '', '["e"]', '', 0, 0)`, a.id, a.conversation, i+1, i, a.id, a.targets, a.state)
	}
	exec(`INSERT INTO batches (id, time) VALUES ('b', ?)`, micros(time.Now()))
	return dir
}

func check(t *testing.T, what string, got, want any, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// checkSchema1 reads what schema1 wrote.
func checkSchema1(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	at := time.Unix(1, 0).UTC()
	c, err := s.Conversation(ctx, "c1")
	check(t, "conversation", c, store.Conversation{ID: "c1", Tenant: "local", Owner: "ann", Agent: "main", LeaseToken: 3, Holder: "h", Created: at,
		Changed: at.Add(time.Second)}, err)
	turn, err := s.Turn(ctx, "z")
	check(t, "turn", turn, store.Turn{ID: "z", Conversation: "c1", Agent: "main", State: store.TurnAnswered, Tenant: "local", Owner: "ann",
		ConfigDigest: "cd", Holder: "h", Started: at, Ended: at.Add(time.Second)}, err)
	open, err := s.OpenTurns(ctx)
	var ids []string
	for _, o := range open {
		ids = append(ids, o.ID)
	}
	check(t, "open turns", ids, []string{"y", "x"}, err)
	blocks, err := s.Blocks(ctx, "c1", 0, 0)
	check(t, "blocks", blocks, []store.Block{{Conversation: "c1", Seq: 1, Key: "k", Turn: "z", Kind: "user", Body: []byte{0, 0xff}, Time: at}}, err)
	a, err := s.Action(ctx, "a2")
	check(t, "action", a, store.Action{Seq: 2, ID: "a2", Tenant: "local", Owner: "ann", Conversation: "c1", Turn: "z", Ordinal: 2, Round: 1, Attempt: 1,
		Index: 1, Tool: "tool", ToolCallID: "a2", Participant: "p", Targets: []string{"t1", `a "quoted" é<`}, LeaseToken: 3, AdmittedAt: at,
		State: writ.Indeterminate, Evidence: []string{"e"}}, err)
	of := func(f store.ActionFilter) []string {
		t.Helper()
		rows, err := s.Actions(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		return ids
	}
	check(t, "of an owner", of(store.ActionFilter{Owner: "bob"}), []string{"a3", "a4", "a6"}, nil)
	check(t, "unresolved", of(store.ActionFilter{Unresolved: true}), []string{"a2", "a3", "a4", "a5"}, nil)
	check(t, "a page", of(store.ActionFilter{Since: at, Page: &store.ActionCursor{After: 1, Limit: 2}}), []string{"a2", "a3"}, nil)
	q, err := s.Quarantined(ctx)
	check(t, "quarantine", q, []store.Quarantine{{Tenant: "local", Target: "t5", Action: "a5"},
		{Tenant: "local", Owner: "ann", Target: `a "quoted" é<`, Action: "a2"}, {Tenant: "local", Owner: "ann", Target: "t1", Action: "a2"},
		{Tenant: "local", Owner: "bob", Target: "t1", Action: "a3"}}, err)
	q, err = s.Quarantined(ctx, store.Key{Tenant: "local", Owner: "bob", Target: "t1"})
	check(t, "a quarantined key", q, []store.Quarantine{{Tenant: "local", Owner: "bob", Target: "t1", Action: "a3"}}, err)
	if ok, err := s.Applied(ctx, "b"); !ok || err != nil {
		t.Errorf("the batch id is gone: %v", err)
	}
	for what, n := range map[string]func() (int, error){
		"history": func() (int, error) { v, err := s.History(ctx, "c1", 0, 0); return len(v), err },
		"tips":    func() (int, error) { v, err := s.Tips(ctx, true); return len(v), err },
		"heads":   func() (int, error) { v, err := s.Heads(ctx, -1); return len(v), err },
		"approvals": func() (int, error) {
			v, err := s.Approvals(ctx, store.ApprovalFilter{States: []string{"pending"}})
			return len(v), err
		},
		"operations": func() (int, error) { v, err := s.Operations(ctx, "a2"); return len(v), err },
		"schedules":  func() (int, error) { v, err := s.Schedules(ctx); return len(v), err },
		"tokens":     func() (int, error) { v, err := s.Tokens(ctx, store.TokenAPI); return len(v), err },
	} {
		if n, err := n(); n != 0 || err != nil {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	if _, err := s.Claim(ctx, "s", "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("claim: %v", err)
	}
}

func TestMigrationKeepsTheRows(t *testing.T) {
	dir := schema1(t)
	s := open1(t, dir)
	checkSchema1(t, s)
	ctx := context.Background()
	var n int
	if err := s.read.QueryRow(`SELECT n FROM turns WHERE id = 'x'`).Scan(&n); err != nil || n != 9 {
		t.Errorf("turn x is at %d, %v", n, err)
	}
	rows, err := s.read.Query(`PRAGMA foreign_key_check`)
	if err != nil || rows.Next() {
		t.Errorf("foreign keys: %v", err)
	}
	rows.Close()
	var ok string
	if err := s.read.QueryRow(`PRAGMA integrity_check`).Scan(&ok); err != nil || ok != "ok" {
		t.Errorf("integrity: %s %v", ok, err)
	}

	// What was in quarantine by the migration is lifted like any other; and turns take the new states.
	b := newBatch("resolve")
	b.Operations = []store.Operation{{ID: "op", Kind: store.OperationResolution, Parent: "a2"}}
	b.Turns = []store.TurnWrite{{Turn: store.Turn{ID: "x", State: store.TurnParked}, Expect: store.TurnRunning},
		{Turn: store.Turn{ID: "y", State: store.TurnDraining}, Expect: store.TurnRunning},
		{Turn: store.Turn{ID: "new", Conversation: "c1", State: store.TurnRunning}}}
	b.Fence = &store.Fence{Conversation: "c1", Token: 3}
	if err := s.Apply(ctx, b); err != nil {
		t.Fatal(err)
	}
	q, err := s.Quarantined(ctx)
	check(t, "quarantine", len(q), 2, err)
	open, err := s.OpenTurns(ctx)
	check(t, "open turns", len(open), 3, err)
	check(t, "the last of them", open[2].ID, "new", nil)
	stray := newBatch("stray")
	stray.Turns = []store.TurnWrite{{Turn: store.Turn{ID: "stray", Conversation: "none", State: store.TurnRunning}}}
	if err := s.Apply(ctx, stray); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a turn without a conversation: %v", err)
	}
	stray.Turns[0].Conversation, stray.Turns[0].State = "c1", "no state"
	if err := s.Apply(ctx, stray); err == nil || errors.Is(err, store.ErrConflict) {
		t.Errorf("a turn in no state: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open1(t, dir) // migrates once
	if q, err := s.Quarantined(ctx); err != nil || len(q) != 2 {
		t.Errorf("after reopening: %v %v", q, err)
	}
}

func TestAReaderSeesAnOlderDatabaseAndLeavesItAlone(t *testing.T) {
	dir := schema1(t)
	r, err := OpenReadOnly(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	checkSchema1(t, r)
	var version int
	if err := r.read.QueryRow(`SELECT max(version_id) FROM goose_db_version`).Scan(&version); err != nil || version != 1 {
		t.Errorf("schema %d, %v", version, err)
	}
	open1(t, dir)
	checkSchema1(t, r) // also when it is migrated under the reader
}
