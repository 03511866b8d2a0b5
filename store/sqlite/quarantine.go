package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"writ/store"
)

type quarantineStatements struct {
	isBarred, barIns, barDel, actTargets, actResolved *sql.Stmt

	// barred holds every action with entries, and perhaps some that have none any more: an ordinary settlement needs no
	// statement to learn that there is nothing to take out. Only this process writes, so nothing can be missing in it.
	barred map[string]bool
}

func (s *quarantineStatements) all() []prepared {
	return []prepared{
		{&s.isBarred, `SELECT action FROM quarantine WHERE tenant = ? AND owner = ? AND target = ? ORDER BY action LIMIT 1`},
		{&s.barIns, `INSERT INTO quarantine (tenant, owner, target, action) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`},
		{&s.barDel, `DELETE FROM quarantine WHERE action = ?`},
		{&s.actTargets, `SELECT tenant, owner, targets FROM actions WHERE id = ?`},
		{&s.actResolved, `UPDATE actions SET resolved = EXISTS (SELECT 1 FROM operations WHERE parent = actions.id AND kind = ?) WHERE id = ?`},
	}
}

func (s *quarantineStatements) load(ctx context.Context, c *sql.Conn) error {
	s.barred = map[string]bool{}
	rows, err := c.QueryContext(ctx, `SELECT DISTINCT action FROM quarantine`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var action string
		if err := rows.Scan(&action); err != nil {
			return err
		}
		s.barred[action] = true
	}
	return rows.Err()
}

// free refuses keys that are in quarantine.
func (s *quarantineStatements) free(ctx context.Context, b *store.Batch) error {
	for _, k := range b.Free {
		var action string
		err := s.isBarred.QueryRowContext(ctx, valid(k.Tenant), valid(k.Owner), valid(k.Target)).Scan(&action)
		switch {
		case err == nil:
			return &store.Conflict{Part: "quarantine", ID: k.Target, Why: "in quarantine by action " + action}
		case !errors.Is(err, sql.ErrNoRows):
			return &partError{"quarantine", k.Target, err}
		}
	}
	return nil
}

func (s *quarantineStatements) quarantine(ctx context.Context, b *store.Batch) error {
	for _, q := range b.Quarantine {
		if err := s.bar(ctx, q.Tenant, q.Owner, q.Target, q.Action); err != nil {
			return &partError{"quarantine", q.Target, err}
		}
	}
	return nil
}

func (s *quarantineStatements) bar(ctx context.Context, tenant, owner, target, action string) error {
	s.barred[action] = true
	_, err := s.barIns.ExecContext(ctx, valid(tenant), valid(owner), valid(target), action)
	return err
}

// barAction puts the targets of an action in quarantine, as its row has them: a write that moves a row need not carry
// what it does not write.
func (s *quarantineStatements) barAction(ctx context.Context, id string) error {
	var tenant, owner, targets string
	if err := s.actTargets.QueryRowContext(ctx, id).Scan(&tenant, &owner, &targets); err != nil {
		return err
	}
	keys, err := unlist(targets)
	if err != nil {
		return err
	}
	for _, t := range keys {
		if err := s.bar(ctx, tenant, owner, t, id); err != nil {
			return err
		}
	}
	_, err = s.actResolved.ExecContext(ctx, store.OperationResolution, id)
	return err
}

// unbar takes all keys of an action out.
func (s *quarantineStatements) unbar(ctx context.Context, action string) error {
	if !s.barred[action] {
		return nil
	}
	_, err := s.barDel.ExecContext(ctx, action)
	return err
}

// resolve lifts the quarantine of an action that a resolution names.
func (s *quarantineStatements) resolve(ctx context.Context, action string) error {
	if err := s.unbar(ctx, action); err != nil {
		return err
	}
	_, err := s.actResolved.ExecContext(ctx, store.OperationResolution, action)
	return err
}

// valid is a string as the JSON of a row's targets gives it back, so that a key compares equal wherever it came from.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// keysMax bounds how many keys one query asks for.
const keysMax = 1000

// Quarantined implements store.Store.
func (s *Store) Quarantined(ctx context.Context, keys ...store.Key) ([]store.Quarantine, error) {
	const columns, order = `SELECT q.tenant, q.owner, q.target, q.action FROM `, ` ORDER BY q.tenant, q.owner, q.target, q.action`
	scan := func(row interface{ Scan(...any) error }) (q store.Quarantine, err error) {
		return q, row.Scan(&q.Tenant, &q.Owner, &q.Target, &q.Action)
	}
	if len(keys) == 0 {
		return query(ctx, s.read, scan, columns+`quarantine q`+order)
	}
	sorted := make([]store.Key, len(keys))
	for i, k := range keys {
		sorted[i] = store.Key{Tenant: valid(k.Tenant), Owner: valid(k.Owner), Target: valid(k.Target)}
	}
	slices.SortFunc(sorted, func(a, b store.Key) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Target, b.Target))
	})
	sorted = slices.Compact(sorted)
	var out []store.Quarantine
	for chunk := range slices.Chunk(sorted, keysMax) {
		var args []any
		for _, k := range chunk {
			args = append(args, k.Tenant, k.Owner, k.Target)
		}
		// The keys lead: one look into the primary key for each, however much is in quarantine.
		rows, err := query(ctx, s.read, scan, `WITH k (tenant, owner, target) AS (VALUES `+
			strings.TrimSuffix(strings.Repeat("(?, ?, ?), ", len(chunk)), ", ")+`) `+
			columns+`k CROSS JOIN quarantine q ON q.tenant = k.tenant AND q.owner = k.owner AND q.target = k.target`+order, args...)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}
