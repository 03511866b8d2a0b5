package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"writ/store"
)

// Applied implements store.Store.
func (s *Store) Applied(ctx context.Context, id string) (bool, error) {
	var n int
	if err := s.read.QueryRowContext(ctx, `SELECT count(*) FROM batches WHERE id = ?`, id).Scan(&n); err != nil {
		return false, fmt.Errorf("sqlite: reading batch: %w", err)
	}
	return n > 0, nil
}

const convColumns = `id, tenant, owner, agent, lease_token, lease_until, holder, generation, created, changed`

func scanConv(row interface{ Scan(...any) error }) (c store.Conversation, err error) {
	var until, created, changed int64
	err = row.Scan(&c.ID, &c.Tenant, &c.Owner, &c.Agent, &c.LeaseToken, &until, &c.Holder, &c.Generation, &created, &changed)
	c.LeaseUntil, c.Created, c.Changed = fromMicros(until), fromMicros(created), fromMicros(changed)
	return c, notFound(err)
}

// Conversation implements store.Store.
func (s *Store) Conversation(ctx context.Context, id string) (store.Conversation, error) {
	return scanConv(s.read.QueryRowContext(ctx, `SELECT `+convColumns+` FROM conversations WHERE id = ?`, id))
}

// Conversations implements store.Store.
func (s *Store) Conversations(ctx context.Context, limit int) ([]store.Conversation, error) {
	if limit == 0 {
		limit = 100
	}
	return query(ctx, s.read, scanConv, `SELECT `+convColumns+` FROM conversations ORDER BY changed DESC, id LIMIT ?`, limit)
}

const turnColumns = `id, conversation, agent, state, reason, kind, tenant, owner, body, config_digest, holder, started, ended`

func scanTurn(row interface{ Scan(...any) error }) (t store.Turn, err error) {
	var started, ended int64
	err = row.Scan(&t.ID, &t.Conversation, &t.Agent, &t.State, &t.Reason, &t.Kind, &t.Tenant, &t.Owner, &t.Body,
		&t.ConfigDigest, &t.Holder, &started, &ended)
	t.Body = body(t.Body)
	t.Started, t.Ended = fromMicros(started), fromMicros(ended)
	return t, notFound(err)
}

// Turn implements store.Store.
func (s *Store) Turn(ctx context.Context, id string) (store.Turn, error) {
	return scanTurn(s.read.QueryRowContext(ctx, `SELECT `+turnColumns+` FROM turns WHERE id = ?`, id))
}

// OpenTurns implements store.Store.
func (s *Store) OpenTurns(ctx context.Context) ([]store.Turn, error) {
	return query(ctx, s.read, scanTurn, `SELECT `+turnColumns+` FROM turns WHERE state IN ('running', 'parked', 'draining') ORDER BY n`)
}

func scanBlock(row interface{ Scan(...any) error }) (b store.Block, err error) {
	var key sql.NullString
	var at int64
	err = row.Scan(&b.Conversation, &b.Seq, &key, &b.Turn, &b.Kind, &b.ActionID, &b.Body, &at)
	b.Key, b.Time = key.String, fromMicros(at)
	return b, err
}

// Blocks implements store.Store.
func (s *Store) Blocks(ctx context.Context, conversation string, after int64, limit int) ([]store.Block, error) {
	if limit == 0 {
		limit = -1
	}
	return query(ctx, s.read, scanBlock, `SELECT conversation, seq, key, turn, kind, action, body, time FROM blocks
		WHERE conversation = ? AND seq > ? ORDER BY seq LIMIT ?`, conversation, after, limit)
}

// Document implements store.Store.
func (s *Store) Document(ctx context.Context, digest string) ([]byte, error) {
	var body []byte
	err := s.read.QueryRowContext(ctx, `SELECT body FROM documents WHERE digest = ?`, digest).Scan(&body)
	return body, notFound(err)
}

func query[T any](ctx context.Context, db *sql.DB, scan func(interface{ Scan(...any) error }) (T, error), q string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, fmt.Errorf("sqlite: reading: %w", err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("sqlite: reading: %w", err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlite: reading: %w", err)
	}
	return out, nil
}

func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	return err
}

// marks are the placeholders for a list of columns.
func marks(columns string) string {
	return strings.TrimSuffix(strings.Repeat("?, ", strings.Count(columns, ",")+1), ", ")
}

// body is what a BLOB column held; an empty one is nil.
func body(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
