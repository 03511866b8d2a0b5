package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"writ/store"
)

type chainStatements struct {
	eventIns, tip, tipPut, headLast, headIns, seal *sql.Stmt
}

const eventColumns = `conversation, seq, participant, turn, action, type, body, prev, hash, time`

func (s *chainStatements) all() []prepared {
	return []prepared{
		{&s.eventIns, `INSERT INTO history (` + eventColumns + `) VALUES (` + marks(eventColumns) + `)`},
		{&s.tip, `SELECT seq, hash FROM chains WHERE conversation = ?`},
		{&s.tipPut, `INSERT INTO chains (conversation, seq, hash, sealed) VALUES (?, ?, ?, 0)
			ON CONFLICT (conversation) DO UPDATE SET seq = excluded.seq, hash = excluded.hash`},
		{&s.headLast, `SELECT n, hash FROM heads ORDER BY n DESC LIMIT 1`},
		{&s.headIns, `INSERT INTO heads (n, time, tips, prev, hash) VALUES (?, ?, ?, ?, ?)`},
		{&s.seal, `UPDATE chains SET sealed = max(sealed, min(seq, ?)) WHERE conversation = ?`},
	}
}

// history appends to the chains. A tip is read from the database each time: a batch of the same group that was rolled
// back has left nothing behind, and one that was not is already in it.
func (s *chainStatements) history(ctx context.Context, b *store.Batch) error {
	var at store.Tip
	for i := range b.History {
		e := &b.History[i]
		if i == 0 || e.Conversation != at.Conversation {
			at = store.Tip{Conversation: e.Conversation}
			err := s.tip.QueryRowContext(ctx, e.Conversation).Scan(&at.Seq, &at.Hash)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return &partError{"history", e.Conversation, err}
			}
		}
		e.Seq, e.Prev = at.Seq+1, at.Hash
		e.Time = hashedTime(e.Time.UnixMicro()) // before it is hashed, so that what is read back hashes the same
		e.Hash = store.ChainHash(e)
		if _, err := s.eventIns.ExecContext(ctx, e.Conversation, e.Seq, e.Participant, e.Turn, e.Action, e.Type, blob(e.Body),
			e.Prev, e.Hash, e.Time.UnixMicro()); err != nil {
			return &partError{"history", e.Conversation, err}
		}
		at.Seq, at.Hash = e.Seq, e.Hash
		if i+1 == len(b.History) || b.History[i+1].Conversation != e.Conversation {
			if _, err := s.tipPut.ExecContext(ctx, at.Conversation, at.Seq, at.Hash); err != nil {
				return &partError{"history", e.Conversation, err}
			}
		}
	}
	return nil
}

func (s *chainStatements) heads(ctx context.Context, b *store.Batch) error {
	for i := range b.Heads {
		h := &b.Heads[i]
		id := fmt.Sprint(h.N)
		var n int64
		var hash string
		if err := s.headLast.QueryRowContext(ctx).Scan(&n, &hash); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return &partError{"head", id, err}
		}
		switch {
		case h.N != n+1:
			return &store.Conflict{Part: "head", ID: id, Why: fmt.Sprintf("the last one is %d", n)}
		case h.Prev != hash:
			return &store.Conflict{Part: "head", ID: id, Why: "it does not name the hash of the last one"}
		case h.Hash != store.HeadHash(h):
			return &store.Conflict{Part: "head", ID: id, Why: "its hash is not that of its fields"}
		}
		tips, err := json.Marshal(h.Tips)
		if err != nil {
			return &partError{"head", id, err}
		}
		if _, err := s.headIns.ExecContext(ctx, h.N, h.Time.UnixMicro(), string(tips), h.Prev, h.Hash); err != nil {
			return &partError{"head", id, err}
		}
		for _, t := range h.Tips {
			if _, err := s.seal.ExecContext(ctx, t.Seq, t.Conversation); err != nil {
				return &partError{"head", id, err}
			}
		}
	}
	return nil
}

// hashedTime is a time of these tables: unlike elsewhere no value means that there is none, since the value was hashed.
func hashedTime(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func scanEvent(row interface{ Scan(...any) error }) (e store.Event, err error) {
	var at int64
	err = row.Scan(&e.Conversation, &e.Seq, &e.Participant, &e.Turn, &e.Action, &e.Type, &e.Body, &e.Prev, &e.Hash, &at)
	e.Body, e.Time = body(e.Body), hashedTime(at)
	return e, err
}

// History implements store.Store.
func (s *Store) History(ctx context.Context, conversation string, after int64, limit int) ([]store.Event, error) {
	if limit == 0 {
		limit = -1
	}
	return query(ctx, s.read, scanEvent, `SELECT `+eventColumns+` FROM history WHERE conversation = ? AND seq > ? ORDER BY seq LIMIT ?`,
		conversation, after, limit)
}

// Tips implements store.Store.
func (s *Store) Tips(ctx context.Context, unsealed bool) ([]store.Tip, error) {
	q := `SELECT conversation, seq, hash FROM chains ORDER BY conversation`
	if unsealed {
		q = `SELECT conversation, seq, hash FROM chains WHERE seq > sealed ORDER BY conversation` // the condition of chains_unsealed
	}
	return query(ctx, s.read, func(row interface{ Scan(...any) error }) (t store.Tip, err error) {
		return t, row.Scan(&t.Conversation, &t.Seq, &t.Hash)
	}, q)
}

func scanHead(row interface{ Scan(...any) error }) (h store.Head, err error) {
	var at int64
	var tips string
	if err := row.Scan(&h.N, &at, &tips, &h.Prev, &h.Hash); err != nil {
		return h, err
	}
	h.Time = hashedTime(at)
	if err := json.Unmarshal([]byte(tips), &h.Tips); err != nil {
		return h, fmt.Errorf("sqlite: head %d: tips: %w", h.N, err)
	}
	if len(h.Tips) == 0 {
		h.Tips = nil
	}
	return h, nil
}

// Heads implements store.Store.
func (s *Store) Heads(ctx context.Context, after int64) ([]store.Head, error) {
	const columns = `SELECT n, time, tips, prev, hash FROM heads `
	if after < 0 {
		return query(ctx, s.read, scanHead, columns+`ORDER BY n DESC LIMIT 1`)
	}
	return query(ctx, s.read, scanHead, columns+`WHERE n > ? ORDER BY n`, after)
}
