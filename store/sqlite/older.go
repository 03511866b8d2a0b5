package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A reader changes nothing, so it cannot migrate; and it must not be shut out of a directory that the program before
// this one has left, or still holds. It sees such a database through temporary views that have today's columns.

// older opens connections that see a database of schema 1 as one of today.
type older struct {
	driver driver.Driver
	dsn    string
	views  string
}

func newOlder(d driver.Driver, dsn string) (*older, error) {
	made, err := migrations.ReadFile("migrations/00002_gate.sql")
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, t := range regexp.MustCompile(`(?s)CREATE TABLE (\w+) \(.*?\n\)( WITHOUT ROWID)?;`).FindAllStringSubmatch(string(made), -1) {
		if name := t[1]; name != "turns_new" && name != "quarantine" {
			b.WriteString(strings.Replace(t[0], "CREATE TABLE", "CREATE TEMP TABLE", 1) + "\n") // empty, like the table once it is made
		}
	}
	b.WriteString(olderViews)
	return &older{driver: d, dsn: dsn, views: b.String()}, nil
}

// olderViews name every column, so that they hold when the database is migrated under the reader.
const olderViews = `
CREATE TEMP VIEW conversations AS
  SELECT id, tenant, owner, agent, lease_token, lease_until, holder, 0 AS generation, created, changed FROM main.conversations;
CREATE TEMP VIEW turns AS
  SELECT n, id, conversation, agent, state, reason, '' AS kind,
    coalesce((SELECT c.tenant FROM main.conversations c WHERE c.id = t.conversation), '') AS tenant,
    coalesce((SELECT c.owner FROM main.conversations c WHERE c.id = t.conversation), '') AS owner,
    x'' AS body, config_digest, holder, started, ended
  FROM main.turns t;
CREATE TEMP VIEW actions AS
  SELECT n, id, tenant, coalesce((SELECT c.owner FROM main.conversations c WHERE c.id = a.conversation), '') AS owner, conversation, turn,
    ordinal, round, attempt, idx, tool, tool_call_id, fingerprint, request_digest, argument_digest, participant, implementation,
    affordance, contract, boundary, targets, scope, generation, lease_token, strategy, execution, effect, policy_digest,
    idempotency_key, observation, early, '' AS offer, 0 AS timeout, admitted_at, state, '' AS status, failure, evidence,
    result_digest, dispatched_at, settled_at, 0 AS resolved
  FROM main.actions a;
CREATE TEMP VIEW quarantine AS
  SELECT a.tenant, a.owner, t.value AS target, a.id AS action FROM temp.actions a, json_each(a.targets) t WHERE a.state = 'indeterminate'
  GROUP BY 1, 2, 3, 4;
`

// Connect implements driver.Connector.
func (o *older) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := o.driver.Open(o.dsn)
	if err != nil {
		return nil, err
	}
	ex, ok := conn.(driver.ExecerContext)
	if !ok {
		return nil, errors.Join(errors.New("sqlite: the driver cannot execute"), conn.Close())
	}
	if _, err := ex.ExecContext(ctx, o.views, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: reading an older database: %w", err), conn.Close())
	}
	return conn, nil
}

// Driver implements driver.Connector.
func (o *older) Driver() driver.Driver { return o.driver }

// openOlder gives a database of schema 1 this program's shape, for reading.
func openOlder(db *sql.DB, dsn string) (*sql.DB, error) {
	o, err := newOlder(db.Driver(), dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(o), nil
}
