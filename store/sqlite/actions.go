package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"writ"
	"writ/store"
)

const actionColumns = `id, tenant, owner, conversation, turn, ordinal, round, attempt, idx, tool, tool_call_id, fingerprint,
	request_digest, argument_digest, participant, implementation, affordance, contract, boundary, targets, scope, generation,
	lease_token, strategy, execution, effect, policy_digest, idempotency_key, observation, early, offer, timeout, admitted_at,
	state, status, failure, evidence, result_digest, dispatched_at, settled_at`

func actionValues(a *store.Action) []any {
	return []any{a.ID, a.Tenant, a.Owner, a.Conversation, a.Turn, a.Ordinal, a.Round, a.Attempt, a.Index, a.Tool, a.ToolCallID, a.Fingerprint,
		a.RequestDigest, a.ArgumentDigest, a.Participant, a.Implementation, a.Affordance, a.Contract, a.Boundary, list(a.Targets), a.Scope,
		a.Generation, a.LeaseToken, a.Strategy, a.Execution, a.Effect, a.PolicyDigest, a.IdempotencyKey, a.Observation, a.Early,
		a.Offer, int64(a.Timeout), micros(a.AdmittedAt), string(a.State), a.Status, a.Failure, list(a.Evidence), a.ResultDigest,
		micros(a.DispatchedAt), micros(a.SettledAt)}
}

// scanAction reads n and actionColumns.
func scanAction(row interface{ Scan(...any) error }) (a store.Action, err error) {
	var targets, evidence, state string
	var timeout, admitted, dispatched, settled int64
	err = row.Scan(&a.Seq, &a.ID, &a.Tenant, &a.Owner, &a.Conversation, &a.Turn, &a.Ordinal, &a.Round, &a.Attempt, &a.Index, &a.Tool,
		&a.ToolCallID, &a.Fingerprint, &a.RequestDigest, &a.ArgumentDigest, &a.Participant, &a.Implementation, &a.Affordance, &a.Contract,
		&a.Boundary, &targets, &a.Scope, &a.Generation, &a.LeaseToken, &a.Strategy, &a.Execution, &a.Effect, &a.PolicyDigest,
		&a.IdempotencyKey, &a.Observation, &a.Early, &a.Offer, &timeout, &admitted, &state, &a.Status, &a.Failure, &evidence,
		&a.ResultDigest, &dispatched, &settled)
	if err != nil {
		return a, notFound(err)
	}
	a.State, a.Timeout = writ.ActionState(state), time.Duration(timeout)
	a.AdmittedAt, a.DispatchedAt, a.SettledAt = fromMicros(admitted), fromMicros(dispatched), fromMicros(settled)
	if a.Targets, err = unlist(targets); err != nil {
		return a, fmt.Errorf("sqlite: action %s: targets: %w", a.ID, err)
	}
	if a.Evidence, err = unlist(evidence); err != nil {
		return a, fmt.Errorf("sqlite: action %s: evidence: %w", a.ID, err)
	}
	return a, nil
}

type actionStatements struct{ actIns, actUpd, actUpdSame *sql.Stmt }

func (s *actionStatements) all() []prepared {
	const update, where = `UPDATE actions SET state = ?, status = ?, failure = ?, evidence = ?, result_digest = ?, generation = ?,
		lease_token = ?, dispatched_at = ?, settled_at = ?`, ` WHERE id = ? AND state = ?`
	return []prepared{
		{&s.actIns, `INSERT INTO actions (` + actionColumns + `) VALUES (` + marks(actionColumns) + `)`},
		{&s.actUpd, update + `, admitted_at = ?` + where},
		{&s.actUpdSame, update + where + ` AND admitted_at = ?`},
	}
}

// moveAction writes what a move may change. The time of admission changes with the release of a held row only; not to
// set it otherwise leaves the index of times alone, which SQLite would rewrite for an equal value too.
func (s *actionStatements) moveAction(ctx context.Context, w *store.ActionWrite) error {
	set := []any{string(w.State), w.Status, w.Failure, list(w.Evidence), w.ResultDigest, w.Generation, w.LeaseToken,
		micros(w.DispatchedAt), micros(w.SettledAt)}
	admitted, id, expect := micros(w.AdmittedAt), w.ID, string(w.Expect)
	res, err := s.actUpdSame.ExecContext(ctx, append(set, id, expect, admitted)...)
	if err != nil {
		return &partError{"action", id, err}
	}
	if n, err := res.RowsAffected(); err == nil && n == 1 {
		return nil
	}
	res, err = s.actUpd.ExecContext(ctx, append(set, admitted, id, expect)...)
	return expectOne(res, err, "action", id, "not in state "+expect)
}

func (s *statements) actions(ctx context.Context, b *store.Batch) error {
	for i := range b.Actions {
		w := &b.Actions[i]
		if w.Expect == "" {
			if _, err := s.actIns.ExecContext(ctx, actionValues(&w.Action)...); err != nil {
				return &partError{"action", w.ID, err}
			}
		} else if err := s.moveAction(ctx, w); err != nil {
			return err
		}
		var err error
		switch {
		case w.State == writ.Indeterminate:
			err = s.barAction(ctx, w.ID)
		case w.State.Settled():
			err = s.unbar(ctx, w.ID)
		}
		if err != nil {
			return &partError{"action", w.ID, err}
		}
	}
	return nil
}

// Action implements store.Store.
func (s *Store) Action(ctx context.Context, id string) (store.Action, error) {
	return scanAction(s.read.QueryRowContext(ctx, `SELECT n, `+actionColumns+` FROM actions WHERE id = ?`, id))
}

// Actions implements store.Store.
func (s *Store) Actions(ctx context.Context, f store.ActionFilter) ([]store.Action, error) {
	q, args := actionQuery(&f)
	out, err := query(ctx, s.read, scanAction, q, args...)
	if f.Page == nil {
		slices.Reverse(out)
	}
	return out, err
}

// openStates is the condition of the index actions_open, word for word.
const openStates = `state IN ('held', 'admitted', 'dispatched')`

// actionQuery writes the query so that one index leads and its order is that of admission: a page reads what it returns
// and little more. SQLite, which knows nothing of how many rows a value has, must not choose among the others, so their
// columns carry a plus.
func actionQuery(f *store.ActionFilter) (string, []any) {
	var where []string
	var args []any
	add := func(cond string, vals ...any) {
		where = append(where, cond)
		args = append(args, vals...)
	}
	led := false
	lead := func(column, value string) {
		switch {
		case value == "":
		case led:
			add("+"+column+" = ?", value)
		default:
			add(column+" = ?", value)
			led = true
		}
	}
	lead("turn", f.Turn)
	lead("conversation", f.Conversation)
	narrow := led
	if f.Unresolved {
		add("state = 'indeterminate' AND resolved = 0") // the condition of the index actions_unresolved
		led, narrow = true, true
	}
	if len(f.States) > 0 {
		for _, st := range f.States {
			args = append(args, string(st))
		}
		where = append(where, "state IN ("+strings.TrimSuffix(strings.Repeat("?, ", len(f.States)), ", ")+")")
		if !slices.ContainsFunc(f.States, writ.ActionState.Settled) {
			add(openStates)
			led, narrow = true, true
		}
	}
	lead("participant", f.Participant)
	lead("owner", f.Owner)
	if f.Tenant != "" {
		add("tenant = ?", f.Tenant)
	}
	if f.Round != 0 {
		add("round = ?", f.Round)
	}
	if f.Tool != "" {
		add("tool = ?", f.Tool)
	}
	if !f.Since.IsZero() {
		add("+admitted_at >= ?", micros(f.Since))
		// Rows are not admitted in the order of their time, since a held one is released later; but none before the
		// first of them can be wanted. A later page knows a better bound. The plus makes it read the index of times, not
		// the rows from the first on.
		if !narrow && (f.Page == nil || f.Page.After <= 0) {
			add("n >= (SELECT min(+n) FROM actions WHERE admitted_at >= ?)", micros(f.Since))
		}
	}
	limit, order := f.Limit, "n DESC"
	if f.Page != nil {
		add("n > ?", f.Page.After)
		order = "n"
		if limit <= 0 || f.Page.Limit > 0 && f.Page.Limit < limit {
			limit = f.Page.Limit
		}
	}
	if limit <= 0 {
		limit = -1
	}
	q := `SELECT n, ` + actionColumns + ` FROM actions`
	if len(where) > 0 {
		q += ` WHERE ` + strings.Join(where, " AND ")
	}
	return q + ` ORDER BY ` + order + ` LIMIT ?`, append(args, limit)
}

func list(v []string) string {
	if len(v) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(v) // strings always marshal
	return string(b)
}

func unlist(s string) ([]string, error) {
	if s == "[]" {
		return nil, nil
	}
	var v []string
	err := json.Unmarshal([]byte(s), &v)
	return v, err
}
