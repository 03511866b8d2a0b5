package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"writ/store"
)

type recordStatements struct {
	claimIns, apprIns, apprUpd, operIns, schedIns, schedUpd, tokenIns, tokenUpd *sql.Stmt
}

func (s *recordStatements) all() []prepared {
	return []prepared{
		{&s.claimIns, `INSERT INTO claims (scope, key, digest, subject, time) VALUES (?, ?, ?, ?, ?)`},
		{&s.apprIns, `INSERT INTO approvals (` + approvalColumns + `) VALUES (` + marks(approvalColumns) + `)`},
		{&s.apprUpd, `UPDATE approvals SET state = ?, actor = ?, note = ?, decided = ? WHERE action = ? AND state = ?`},
		{&s.operIns, `INSERT INTO operations (id, kind, parent, tenant, actor, once, body, time) VALUES (?, ?, ?, ?, ?, nullif(?, ''), ?, ?)`},
		{&s.schedIns, `INSERT INTO schedules (` + scheduleColumns + `) VALUES (` + marks(scheduleColumns) + `)`},
		{&s.schedUpd, `UPDATE schedules SET (` + scheduleColumns + `) = (` + marks(scheduleColumns) + `) WHERE id = ? AND revision = ?`},
		{&s.tokenIns, `INSERT INTO tokens (` + tokenColumns + `) VALUES (` + marks(tokenColumns) + `)`},
		{&s.tokenUpd, `UPDATE tokens SET expires = ?, revoked = ? WHERE id = ?`},
	}
}

func (s *recordStatements) claims(ctx context.Context, b *store.Batch) error {
	for i := range b.Claims {
		c := &b.Claims[i]
		if _, err := s.claimIns.ExecContext(ctx, c.Scope, c.Key, c.Digest, c.Subject, micros(c.Time)); err != nil {
			return &partError{"claim", c.Key, err}
		}
	}
	return nil
}

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, scope, key string) (c store.Claim, err error) {
	var at int64
	err = s.read.QueryRowContext(ctx, `SELECT scope, key, digest, subject, time FROM claims WHERE scope = ? AND key = ?`, scope, key).
		Scan(&c.Scope, &c.Key, &c.Digest, &c.Subject, &at)
	c.Time = fromMicros(at)
	return c, notFound(err)
}

const approvalColumns = `action, tenant, owner, conversation, turn, agent, tool, approver, argument_digest, policy_digest,
	state, actor, note, created, expires, decided`

func scanApproval(row interface{ Scan(...any) error }) (a store.Approval, err error) {
	var created, expires, decided int64
	err = row.Scan(&a.Action, &a.Tenant, &a.Owner, &a.Conversation, &a.Turn, &a.Agent, &a.Tool, &a.Approver, &a.ArgumentDigest,
		&a.PolicyDigest, &a.State, &a.Actor, &a.Note, &created, &expires, &decided)
	a.Created, a.Expires, a.Decided = fromMicros(created), fromMicros(expires), fromMicros(decided)
	return a, notFound(err)
}

func (s *recordStatements) approvals(ctx context.Context, b *store.Batch) error {
	for i := range b.Approvals {
		w := &b.Approvals[i]
		if w.Expect == "" {
			if _, err := s.apprIns.ExecContext(ctx, w.Action, w.Tenant, w.Owner, w.Conversation, w.Turn, w.Agent, w.Tool, w.Approver,
				w.ArgumentDigest, w.PolicyDigest, w.State, w.Actor, w.Note, micros(w.Created), micros(w.Expires), micros(w.Decided)); err != nil {
				return &partError{"approval", w.Action, err}
			}
			continue
		}
		res, err := s.apprUpd.ExecContext(ctx, w.State, w.Actor, w.Note, micros(w.Decided), w.Action, w.Expect)
		if err := expectOne(res, err, "approval", w.Action, "not in state "+w.Expect); err != nil {
			return err
		}
	}
	return nil
}

// Approval implements store.Store.
func (s *Store) Approval(ctx context.Context, action string) (store.Approval, error) {
	return scanApproval(s.read.QueryRowContext(ctx, `SELECT `+approvalColumns+` FROM approvals WHERE action = ?`, action))
}

// Approvals implements store.Store.
func (s *Store) Approvals(ctx context.Context, f store.ApprovalFilter) ([]store.Approval, error) {
	q, args := approvalQuery(&f)
	return query(ctx, s.read, scanApproval, q, args...)
}

// approvalQuery lets one index lead; see actionQuery.
func approvalQuery(f *store.ApprovalFilter) (string, []any) {
	var where []string
	var args []any
	column := func(name string, values ...string) {
		if len(where) > 0 {
			name = "+" + name
		}
		where = append(where, name+" IN ("+strings.TrimSuffix(strings.Repeat("?, ", len(values)), ", ")+")")
		for _, v := range values {
			args = append(args, v)
		}
	}
	if f.Turn != "" {
		column("turn", f.Turn)
	}
	if f.Conversation != "" {
		column("conversation", f.Conversation)
	}
	if len(f.States) > 0 {
		column("state", f.States...)
	}
	q := `SELECT ` + approvalColumns + ` FROM approvals`
	if len(where) > 0 {
		q += ` WHERE ` + strings.Join(where, " AND ")
	}
	limit := f.Limit
	if limit <= 0 {
		limit = -1
	}
	return q + ` ORDER BY n LIMIT ?`, append(args, limit)
}

const operationColumns = `id, kind, parent, tenant, actor, coalesce(once, ''), body, time`

func scanOperation(row interface{ Scan(...any) error }) (o store.Operation, err error) {
	var at int64
	err = row.Scan(&o.ID, &o.Kind, &o.Parent, &o.Tenant, &o.Actor, &o.Once, &o.Body, &at)
	o.Body, o.Time = body(o.Body), fromMicros(at)
	return o, notFound(err)
}

func (s *statements) operations(ctx context.Context, b *store.Batch) error {
	for i := range b.Operations {
		o := &b.Operations[i]
		if _, err := s.operIns.ExecContext(ctx, o.ID, o.Kind, o.Parent, o.Tenant, o.Actor, o.Once, blob(o.Body), micros(o.Time)); err != nil {
			return &partError{"operation", o.ID, err}
		}
		if o.Kind == store.OperationResolution {
			if err := s.resolve(ctx, o.Parent); err != nil {
				return &partError{"operation", o.ID, err}
			}
		}
	}
	return nil
}

// Operation implements store.Store.
func (s *Store) Operation(ctx context.Context, id string) (store.Operation, error) {
	return scanOperation(s.read.QueryRowContext(ctx, `SELECT `+operationColumns+` FROM operations WHERE id = ?`, id))
}

// Operations implements store.Store.
func (s *Store) Operations(ctx context.Context, parent string) ([]store.Operation, error) {
	return query(ctx, s.read, scanOperation, `SELECT `+operationColumns+` FROM operations WHERE parent = ? ORDER BY n`, parent)
}

const scheduleColumns = `id, tenant, owner, agent, conversation, generation, revision, state, reason, policy_digest, next,
	attempted, succeeded, failed, in_flight, holder, lease_token, lease_until, changed`

func scanSchedule(row interface{ Scan(...any) error }) (c store.Schedule, err error) {
	var next, until, changed int64
	err = row.Scan(&c.ID, &c.Tenant, &c.Owner, &c.Agent, &c.Conversation, &c.Generation, &c.Revision, &c.State, &c.Reason, &c.PolicyDigest,
		&next, &c.Attempted, &c.Succeeded, &c.Failed, &c.InFlight, &c.Holder, &c.LeaseToken, &until, &changed)
	c.Next, c.LeaseUntil, c.Changed = fromMicros(next), fromMicros(until), fromMicros(changed)
	return c, notFound(err)
}

func (s *recordStatements) schedules(ctx context.Context, b *store.Batch) error {
	for i := range b.Schedules {
		w := &b.Schedules[i]
		if w.Revision != w.Expect+1 {
			return &store.Conflict{Part: "schedule", ID: w.ID, Why: fmt.Sprintf("revision %d does not follow %d", w.Revision, w.Expect)}
		}
		values := []any{w.ID, w.Tenant, w.Owner, w.Agent, w.Conversation, w.Generation, w.Revision, w.State, w.Reason, w.PolicyDigest,
			micros(w.Next), w.Attempted, w.Succeeded, w.Failed, w.InFlight, w.Holder, w.LeaseToken, micros(w.LeaseUntil), micros(w.Changed)}
		if w.Expect == 0 {
			if _, err := s.schedIns.ExecContext(ctx, values...); err != nil {
				return &partError{"schedule", w.ID, err}
			}
			continue
		}
		res, err := s.schedUpd.ExecContext(ctx, append(values, w.ID, w.Expect)...)
		if err := expectOne(res, err, "schedule", w.ID, fmt.Sprintf("not at revision %d", w.Expect)); err != nil {
			return err
		}
	}
	return nil
}

// Schedule implements store.Store.
func (s *Store) Schedule(ctx context.Context, id string) (store.Schedule, error) {
	return scanSchedule(s.read.QueryRowContext(ctx, `SELECT `+scheduleColumns+` FROM schedules WHERE id = ?`, id))
}

// Schedules implements store.Store.
func (s *Store) Schedules(ctx context.Context) ([]store.Schedule, error) {
	return query(ctx, s.read, scanSchedule, `SELECT `+scheduleColumns+` FROM schedules ORDER BY id`)
}

const tokenColumns = `id, kind, hash, tenant, owner, subject, name, created, expires, revoked`

func scanToken(row interface{ Scan(...any) error }) (t store.Token, err error) {
	var created, expires, revoked int64
	err = row.Scan(&t.ID, &t.Kind, &t.Hash, &t.Tenant, &t.Owner, &t.Subject, &t.Name, &created, &expires, &revoked)
	t.Created, t.Expires, t.Revoked = fromMicros(created), fromMicros(expires), fromMicros(revoked)
	return t, notFound(err)
}

func (s *recordStatements) tokens(ctx context.Context, b *store.Batch) error {
	for i := range b.Tokens {
		w := &b.Tokens[i]
		if w.Update {
			res, err := s.tokenUpd.ExecContext(ctx, micros(w.Expires), micros(w.Revoked), w.ID)
			if err := expectOne(res, err, "token", w.ID, "there is none"); err != nil {
				return err
			}
			continue
		}
		if _, err := s.tokenIns.ExecContext(ctx, w.ID, w.Kind, w.Hash, w.Tenant, w.Owner, w.Subject, w.Name, micros(w.Created),
			micros(w.Expires), micros(w.Revoked)); err != nil {
			return &partError{"token", w.ID, err}
		}
	}
	return nil
}

// Token implements store.Store.
func (s *Store) Token(ctx context.Context, hash string) (store.Token, error) {
	return scanToken(s.read.QueryRowContext(ctx, `SELECT `+tokenColumns+` FROM tokens WHERE hash = ?`, hash))
}

// Tokens implements store.Store.
func (s *Store) Tokens(ctx context.Context, kind string) ([]store.Token, error) {
	return query(ctx, s.read, scanToken, `SELECT `+tokenColumns+` FROM tokens WHERE kind = ? ORDER BY n`, kind)
}
