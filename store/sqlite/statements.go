package sqlite

import (
	"context"
	"database/sql"
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

	batch, fence, convIns, convUpd, convSeq, turnIns, turnUpd, block, doc *sql.Stmt

	actionStatements
	recordStatements
	quarantineStatements
	chainStatements
}

// prepared is where a statement goes and what it says.
type prepared struct {
	to  **sql.Stmt
	sql string
}

func (s *statements) prepare(ctx context.Context, c *sql.Conn) error {
	all := []prepared{
		{&s.begin, `BEGIN IMMEDIATE`}, {&s.commit, `COMMIT`}, {&s.savepoint, `SAVEPOINT batch`}, {&s.release, `RELEASE batch`},
		{&s.batch, `INSERT INTO batches (id, time) VALUES (?, ?)`},
		{&s.fence, `SELECT lease_token, generation FROM conversations WHERE id = ?`},
		{&s.convIns, `INSERT INTO conversations (id, tenant, owner, agent, lease_token, lease_until, holder, generation, next_seq, created, changed)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?)`},
		{&s.convUpd, `UPDATE conversations SET lease_token = ?, lease_until = ?, holder = ?, generation = ?, changed = ?
			WHERE id = ? AND lease_token = ?`},
		{&s.convSeq, `UPDATE conversations SET next_seq = next_seq + ?, changed = ? WHERE id = ? RETURNING next_seq`},
		{&s.turnIns, `INSERT INTO turns (` + turnColumns + `) VALUES (` + marks(turnColumns) + `)`},
		{&s.turnUpd, `UPDATE turns SET state = ?, reason = ?, holder = ?, ended = ? WHERE id = ? AND state = ?`},
		{&s.block, `INSERT INTO blocks (conversation, seq, key, turn, kind, action, body, time) VALUES (?, ?, nullif(?, ''), ?, ?, ?, ?, ?)`},
		{&s.doc, `INSERT INTO documents (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING`},
	}
	all = append(all, s.actionStatements.all()...)
	all = append(all, s.recordStatements.all()...)
	all = append(all, s.quarantineStatements.all()...)
	all = append(all, s.chainStatements.all()...)
	for _, p := range all {
		st, err := c.PrepareContext(ctx, p.sql)
		if err != nil {
			return fmt.Errorf("preparing %q: %w", p.sql, err)
		}
		*p.to = st
	}
	return s.quarantineStatements.load(ctx, c)
}

// write runs the statements of one batch, in the order of its fields. An empty part runs none.
func (s *statements) write(ctx context.Context, b *store.Batch) error {
	if _, err := s.batch.ExecContext(ctx, b.ID, micros(time.Now())); err != nil {
		return &partError{"batch", b.ID, err}
	}
	if f := b.Fence; f != nil {
		if err := s.fenced(ctx, f); err != nil {
			return err
		}
	}
	for _, part := range [...]func(context.Context, *store.Batch) error{s.free, s.conversations, s.turns, s.actions, s.blocks,
		s.documents, s.claims, s.approvals, s.operations, s.history, s.heads, s.schedules, s.tokens, s.quarantine} {
		if err := part(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

func (s *statements) fenced(ctx context.Context, f *store.Fence) error {
	var token, generation int64
	err := s.fence.QueryRowContext(ctx, f.Conversation).Scan(&token, &generation)
	switch {
	case err == sql.ErrNoRows || (err == nil && token != f.Token):
		return &store.Conflict{Part: "fence", ID: f.Conversation, Why: "the lease is held under another token"}
	case err != nil:
		return &partError{"fence", f.Conversation, err}
	case generation != f.Generation:
		return &store.Conflict{Part: "fence", ID: f.Conversation, Why: "the generation is another one"}
	}
	return nil
}

func (s *statements) conversations(ctx context.Context, b *store.Batch) error {
	now := micros(b.Time)
	for i := range b.Conversations {
		w := &b.Conversations[i]
		if w.Create {
			if _, err := s.convIns.ExecContext(ctx, w.ID, w.Tenant, w.Owner, w.Agent, w.LeaseToken, micros(w.LeaseUntil), w.Holder,
				w.Generation, now, now); err != nil {
				return &partError{"conversation", w.ID, err}
			}
			continue
		}
		res, err := s.convUpd.ExecContext(ctx, w.LeaseToken, micros(w.LeaseUntil), w.Holder, w.Generation, now, w.ID, w.ExpectToken)
		if err := expectOne(res, err, "conversation", w.ID, "the lease token is another one"); err != nil {
			return err
		}
	}
	return nil
}

func (s *statements) turns(ctx context.Context, b *store.Batch) error {
	for i := range b.Turns {
		w := &b.Turns[i]
		if w.Expect == "" {
			if _, err := s.turnIns.ExecContext(ctx, w.ID, w.Conversation, w.Agent, w.State, w.Reason, w.Kind, w.Tenant, w.Owner,
				blob(w.Body), w.ConfigDigest, w.Holder, micros(w.Started), micros(w.Ended)); err != nil {
				return &partError{"turn", w.ID, err}
			}
			continue
		}
		res, err := s.turnUpd.ExecContext(ctx, w.State, w.Reason, w.Holder, micros(w.Ended), w.ID, w.Expect)
		if err := expectOne(res, err, "turn", w.ID, "not in state "+w.Expect); err != nil {
			return err
		}
	}
	return nil
}

// blocks appends in order. The numbers of a conversation are taken from its row, so they have no gaps.
func (s *statements) blocks(ctx context.Context, b *store.Batch) error {
	if len(b.Blocks) == 0 {
		return nil
	}
	now := micros(b.Time)
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
		if _, err := s.block.ExecContext(ctx, bl.Conversation, seq, bl.Key, bl.Turn, bl.Kind, bl.ActionID, blob(bl.Body), micros(bl.Time)); err != nil {
			id := bl.Key
			if id == "" {
				id = bl.Kind
			}
			return &partError{"block", id, err}
		}
	}
	return nil
}

func (s *statements) documents(ctx context.Context, b *store.Batch) error {
	for _, d := range b.Documents {
		if _, err := s.doc.ExecContext(ctx, d.Digest, blob(d.Body)); err != nil {
			return &partError{"document", d.Digest, err}
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

// blob is a body for a column that is never NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
