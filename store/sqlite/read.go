package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"writ"
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

const convColumns = `id, tenant, owner, agent, lease_token, lease_until, holder, created, changed`

func scanConv(row interface{ Scan(...any) error }) (c store.Conversation, err error) {
	var until, created, changed int64
	err = row.Scan(&c.ID, &c.Tenant, &c.Owner, &c.Agent, &c.LeaseToken, &until, &c.Holder, &created, &changed)
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

const turnColumns = `id, conversation, agent, state, reason, config_digest, holder, started, ended`

func scanTurn(row interface{ Scan(...any) error }) (t store.Turn, err error) {
	var started, ended int64
	err = row.Scan(&t.ID, &t.Conversation, &t.Agent, &t.State, &t.Reason, &t.ConfigDigest, &t.Holder, &started, &ended)
	t.Started, t.Ended = fromMicros(started), fromMicros(ended)
	return t, notFound(err)
}

// Turn implements store.Store.
func (s *Store) Turn(ctx context.Context, id string) (store.Turn, error) {
	return scanTurn(s.read.QueryRowContext(ctx, `SELECT `+turnColumns+` FROM turns WHERE id = ?`, id))
}

// OpenTurns implements store.Store.
func (s *Store) OpenTurns(ctx context.Context) ([]store.Turn, error) {
	return query(ctx, s.read, scanTurn, `SELECT `+turnColumns+` FROM turns WHERE state = 'running' ORDER BY n`)
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

const actionColumns = `id, tenant, conversation, turn, ordinal, round, attempt, idx, tool, tool_call_id, fingerprint,
	request_digest, argument_digest, participant, implementation, affordance, contract, boundary, targets, scope, generation,
	lease_token, strategy, execution, effect, policy_digest, idempotency_key, observation, early, admitted_at,
	state, failure, evidence, result_digest, dispatched_at, settled_at`

var actionMarks = strings.TrimSuffix(strings.Repeat("?, ", strings.Count(actionColumns, ",")+1), ", ")

func actionValues(a *store.Action) []any {
	return []any{a.ID, a.Tenant, a.Conversation, a.Turn, a.Ordinal, a.Round, a.Attempt, a.Index, a.Tool, a.ToolCallID, a.Fingerprint,
		a.RequestDigest, a.ArgumentDigest, a.Participant, a.Implementation, a.Affordance, a.Contract, a.Boundary, list(a.Targets), a.Scope,
		a.Generation, a.LeaseToken, a.Strategy, a.Execution, a.Effect, a.PolicyDigest, a.IdempotencyKey, a.Observation, a.Early,
		micros(a.AdmittedAt), string(a.State), a.Failure, list(a.Evidence), a.ResultDigest, micros(a.DispatchedAt), micros(a.SettledAt)}
}

func scanAction(row interface{ Scan(...any) error }) (a store.Action, err error) {
	var targets, evidence, state string
	var admitted, dispatched, settled int64
	err = row.Scan(&a.ID, &a.Tenant, &a.Conversation, &a.Turn, &a.Ordinal, &a.Round, &a.Attempt, &a.Index, &a.Tool, &a.ToolCallID,
		&a.Fingerprint, &a.RequestDigest, &a.ArgumentDigest, &a.Participant, &a.Implementation, &a.Affordance, &a.Contract, &a.Boundary,
		&targets, &a.Scope, &a.Generation, &a.LeaseToken, &a.Strategy, &a.Execution, &a.Effect, &a.PolicyDigest, &a.IdempotencyKey,
		&a.Observation, &a.Early, &admitted, &state, &a.Failure, &evidence, &a.ResultDigest, &dispatched, &settled)
	if err != nil {
		return a, notFound(err)
	}
	a.State = writ.ActionState(state)
	a.AdmittedAt, a.DispatchedAt, a.SettledAt = fromMicros(admitted), fromMicros(dispatched), fromMicros(settled)
	if err := json.Unmarshal([]byte(targets), &a.Targets); err != nil {
		return a, fmt.Errorf("sqlite: action %s: targets: %w", a.ID, err)
	}
	if err := json.Unmarshal([]byte(evidence), &a.Evidence); err != nil {
		return a, fmt.Errorf("sqlite: action %s: evidence: %w", a.ID, err)
	}
	if len(a.Targets) == 0 {
		a.Targets = nil
	}
	if len(a.Evidence) == 0 {
		a.Evidence = nil
	}
	return a, nil
}

// Action implements store.Store.
func (s *Store) Action(ctx context.Context, id string) (store.Action, error) {
	return scanAction(s.read.QueryRowContext(ctx, `SELECT `+actionColumns+` FROM actions WHERE id = ?`, id))
}

// Actions implements store.Store.
func (s *Store) Actions(ctx context.Context, f store.ActionFilter) ([]store.Action, error) {
	var where []string
	var args []any
	add := func(cond string, vals ...any) {
		where = append(where, cond)
		args = append(args, vals...)
	}
	if f.Conversation != "" {
		add("conversation = ?", f.Conversation)
	}
	if f.Turn != "" {
		add("turn = ?", f.Turn)
	}
	if f.Round != 0 {
		add("round = ?", f.Round)
	}
	if f.Tool != "" {
		add("tool = ?", f.Tool)
	}
	if len(f.States) > 0 {
		var marks []string
		for _, st := range f.States {
			marks = append(marks, "?")
			args = append(args, string(st))
		}
		where = append(where, "state IN ("+strings.Join(marks, ", ")+")")
	}
	q := `SELECT ` + actionColumns + ` FROM actions`
	if len(where) > 0 {
		q += ` WHERE ` + strings.Join(where, " AND ")
	}
	limit := f.Limit
	if limit == 0 {
		limit = -1
	}
	out, err := query(ctx, s.read, scanAction, q+` ORDER BY n DESC LIMIT ?`, append(args, limit)...)
	slices.Reverse(out)
	return out, err
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
