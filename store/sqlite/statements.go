package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"writ/store"
)

// partError names the part of a batch whose statement failed.
type partError struct {
	part, id string
	err      error
}

func (e *partError) Error() string {
	return fmt.Sprintf("sqlite: writing %s %s: %v", e.part, e.id, e.err)
}
func (e *partError) Unwrap() error { return e.err }

// statements are prepared once on the write connection; each stands beside the code that fills it.
type statements struct {
	begin, commit, savepoint, release *sql.Stmt

	batch, fence, convIns, convUpd, convSeq, turnIns, turnUpd, actIns, actUpd, block, doc *sql.Stmt
}

func (s *statements) prepare(ctx context.Context, c *sql.Conn) error {
	for _, p := range []struct {
		to  **sql.Stmt
		sql string
	}{
		{&s.begin, `BEGIN IMMEDIATE`}, {&s.commit, `COMMIT`}, {&s.savepoint, `SAVEPOINT batch`}, {&s.release, `RELEASE batch`},
		{&s.batch, `INSERT INTO batches (id, time) VALUES (?, ?)`},
		{&s.fence, `SELECT lease_token FROM conversations WHERE id = ?`},
		{&s.convIns, `INSERT INTO conversations (id, tenant, owner, agent, lease_token, lease_until, holder, next_seq, created, changed)
			VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?)`},
		{&s.convUpd, `UPDATE conversations SET lease_token = ?, lease_until = ?, holder = ?, changed = ? WHERE id = ? AND lease_token = ?`},
		{&s.convSeq, `UPDATE conversations SET next_seq = next_seq + ?, changed = ? WHERE id = ? RETURNING next_seq`},
		{&s.turnIns, `INSERT INTO turns (id, conversation, agent, state, reason, config_digest, holder, started, ended)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`},
		{&s.turnUpd, `UPDATE turns SET state = ?, reason = ?, ended = ? WHERE id = ? AND state = ?`},
		{&s.actIns, `INSERT INTO actions (` + actionColumns + `) VALUES (` + actionMarks + `)`},
		{&s.actUpd, `UPDATE actions SET state = ?, failure = ?, evidence = ?, result_digest = ?, dispatched_at = ?, settled_at = ?
			WHERE id = ? AND state = ?`},
		{&s.block, `INSERT INTO blocks (conversation, seq, key, turn, kind, action, body, time) VALUES (?, ?, nullif(?, ''), ?, ?, ?, ?, ?)`},
		{&s.doc, `INSERT INTO documents (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING`},
	} {
		st, err := c.PrepareContext(ctx, p.sql)
		if err != nil {
			return fmt.Errorf("preparing %q: %w", p.sql, err)
		}
		*p.to = st
	}
	return nil
}

// write runs the statements of one batch, in the order of its fields.
func (s *statements) write(ctx context.Context, b *store.Batch) error {
	now := micros(b.Time)
	if f := b.Fence; f != nil {
		var token int64
		err := s.fence.QueryRowContext(ctx, f.Conversation).Scan(&token)
		if err == sql.ErrNoRows || (err == nil && token != f.Token) {
			return &store.Conflict{Part: "fence", ID: f.Conversation, Why: "the lease is held under another token"}
		}
		if err != nil {
			return &partError{"fence", f.Conversation, err}
		}
	}
	if _, err := s.batch.ExecContext(ctx, b.ID, micros(time.Now())); err != nil {
		return &partError{"batch", b.ID, err}
	}
	if err := s.conversations(ctx, b, now); err != nil {
		return err
	}
	if err := s.turns(ctx, b); err != nil {
		return err
	}
	if err := s.actions(ctx, b); err != nil {
		return err
	}
	if err := s.blocks(ctx, b, now); err != nil {
		return err
	}
	for _, d := range b.Documents {
		if _, err := s.doc.ExecContext(ctx, d.Digest, d.Body); err != nil {
			return &partError{"document", d.Digest, err}
		}
	}
	return nil
}

func (s *statements) conversations(ctx context.Context, b *store.Batch, now int64) error {
	for _, w := range b.Conversations {
		if w.Create {
			if _, err := s.convIns.ExecContext(ctx, w.ID, w.Tenant, w.Owner, w.Agent, w.LeaseToken, micros(w.LeaseUntil), w.Holder, now, now); err != nil {
				return &partError{"conversation", w.ID, err}
			}
			continue
		}
		res, err := s.convUpd.ExecContext(ctx, w.LeaseToken, micros(w.LeaseUntil), w.Holder, now, w.ID, w.ExpectToken)
		if err := expectOne(res, err, "conversation", w.ID, "the lease token is another one"); err != nil {
			return err
		}
	}
	return nil
}

func (s *statements) turns(ctx context.Context, b *store.Batch) error {
	for _, w := range b.Turns {
		if w.Expect == "" {
			if _, err := s.turnIns.ExecContext(ctx, w.ID, w.Conversation, w.Agent, w.State, w.Reason, w.ConfigDigest, w.Holder,
				micros(w.Started), micros(w.Ended)); err != nil {
				return &partError{"turn", w.ID, err}
			}
			continue
		}
		res, err := s.turnUpd.ExecContext(ctx, w.State, w.Reason, micros(w.Ended), w.ID, w.Expect)
		if err := expectOne(res, err, "turn", w.ID, "not in state "+w.Expect); err != nil {
			return err
		}
	}
	return nil
}

func (s *statements) actions(ctx context.Context, b *store.Batch) error {
	for i := range b.Actions {
		w := &b.Actions[i]
		if w.Expect == "" {
			if _, err := s.actIns.ExecContext(ctx, actionValues(&w.Action)...); err != nil {
				return &partError{"action", w.ID, err}
			}
			continue
		}
		res, err := s.actUpd.ExecContext(ctx, string(w.State), w.Failure, list(w.Evidence), w.ResultDigest,
			micros(w.DispatchedAt), micros(w.SettledAt), w.ID, string(w.Expect))
		if err := expectOne(res, err, "action", w.ID, "not in state "+string(w.Expect)); err != nil {
			return err
		}
	}
	return nil
}

// blocks appends in order. The numbers of a conversation are taken from its row, so they have no gaps.
func (s *statements) blocks(ctx context.Context, b *store.Batch, now int64) error {
	next := map[string]int64{}
	count := map[string]int64{}
	for i := range b.Blocks {
		count[b.Blocks[i].Conversation]++
	}
	for i := range b.Blocks {
		bl := &b.Blocks[i]
		seq, ok := next[bl.Conversation]
		if !ok {
			n := count[bl.Conversation]
			var after int64
			err := s.convSeq.QueryRowContext(ctx, n, now, bl.Conversation).Scan(&after)
			if err == sql.ErrNoRows {
				return &store.Conflict{Part: "block", ID: bl.Kind, Why: "no conversation " + bl.Conversation}
			}
			if err != nil {
				return &partError{"block", bl.Kind, err}
			}
			seq = after - n
		}
		bl.Seq = seq
		next[bl.Conversation] = seq + 1
		body := bl.Body
		if body == nil {
			body = []byte{}
		}
		if _, err := s.block.ExecContext(ctx, bl.Conversation, seq, bl.Key, bl.Turn, bl.Kind, bl.ActionID, body, micros(bl.Time)); err != nil {
			id := bl.Key
			if id == "" {
				id = bl.Kind
			}
			return &partError{"block", id, err}
		}
	}
	return nil
}

func expectOne(res sql.Result, err error, part, id, why string) error {
	if err != nil {
		return &partError{part, id, err}
	}
	n, err := res.RowsAffected()
	if err != nil {
		return &partError{part, id, err}
	}
	if n != 1 {
		return &store.Conflict{Part: part, ID: id, Why: why}
	}
	return nil
}

func list(v []string) string {
	if len(v) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(v) // strings always marshal
	return string(b)
}
