-- +goose Up
ALTER TABLE conversations ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;

-- A CHECK cannot be changed in place: the table is made anew, its rows keep n and id.
CREATE TABLE turns_new (
  n             INTEGER PRIMARY KEY,
  id            TEXT NOT NULL UNIQUE,
  conversation  TEXT NOT NULL REFERENCES conversations (id),
  agent         TEXT NOT NULL,
  state         TEXT NOT NULL CHECK (state IN ('running', 'parked', 'draining', 'answered', 'no_answer', 'interrupted', 'failed')),
  reason        TEXT NOT NULL,
  kind          TEXT NOT NULL,
  tenant        TEXT NOT NULL,
  owner         TEXT NOT NULL,
  body          BLOB NOT NULL,
  config_digest TEXT NOT NULL,
  holder        TEXT NOT NULL,
  started       INTEGER NOT NULL,
  ended         INTEGER NOT NULL
);
INSERT INTO turns_new (n, id, conversation, agent, state, reason, kind, tenant, owner, body, config_digest, holder, started, ended)
  SELECT t.n, t.id, t.conversation, t.agent, t.state, t.reason, '', coalesce(c.tenant, ''), coalesce(c.owner, ''), x'', t.config_digest, t.holder, t.started, t.ended
  FROM turns t LEFT JOIN conversations c ON c.id = t.conversation ORDER BY t.n;
DROP TABLE turns;
ALTER TABLE turns_new RENAME TO turns;
CREATE INDEX turns_open ON turns (n) WHERE state IN ('running', 'parked', 'draining');

ALTER TABLE actions ADD COLUMN owner    TEXT NOT NULL DEFAULT '';
ALTER TABLE actions ADD COLUMN offer    TEXT NOT NULL DEFAULT '';
ALTER TABLE actions ADD COLUMN timeout  INTEGER NOT NULL DEFAULT 0; -- nanoseconds
ALTER TABLE actions ADD COLUMN status   TEXT NOT NULL DEFAULT '';
ALTER TABLE actions ADD COLUMN resolved INTEGER NOT NULL DEFAULT 0; -- a resolution names it
UPDATE actions SET owner = coalesce((SELECT c.owner FROM conversations c WHERE c.id = actions.conversation), '');
CREATE INDEX actions_participant ON actions (participant, n);
CREATE INDEX actions_owner ON actions (owner, n);
CREATE INDEX actions_time ON actions (admitted_at);
CREATE INDEX actions_unresolved ON actions (n) WHERE state = 'indeterminate' AND resolved = 0;

CREATE TABLE claims (
  scope   TEXT NOT NULL,
  key     TEXT NOT NULL,
  digest  TEXT NOT NULL,
  subject TEXT NOT NULL,
  time    INTEGER NOT NULL,
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;

CREATE TABLE approvals (
  n               INTEGER PRIMARY KEY,
  action          TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL,
  owner           TEXT NOT NULL,
  conversation    TEXT NOT NULL,
  turn            TEXT NOT NULL,
  agent           TEXT NOT NULL,
  tool            TEXT NOT NULL,
  approver        TEXT NOT NULL,
  argument_digest TEXT NOT NULL,
  policy_digest   TEXT NOT NULL,
  state           TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'declined', 'expired', 'void')),
  actor           TEXT NOT NULL,
  note            TEXT NOT NULL,
  created         INTEGER NOT NULL,
  expires         INTEGER NOT NULL,
  decided         INTEGER NOT NULL
);
CREATE INDEX approvals_conversation ON approvals (conversation, n);
CREATE INDEX approvals_turn ON approvals (turn, n);
CREATE INDEX approvals_state ON approvals (state, n);

CREATE TABLE operations (
  n      INTEGER PRIMARY KEY,
  id     TEXT NOT NULL UNIQUE,
  kind   TEXT NOT NULL,
  parent TEXT NOT NULL,
  tenant TEXT NOT NULL,
  actor  TEXT NOT NULL,
  once   TEXT UNIQUE, -- NULL = may be repeated
  body   BLOB NOT NULL,
  time   INTEGER NOT NULL
);
CREATE INDEX operations_parent ON operations (parent, n);

CREATE TABLE quarantine (
  tenant TEXT NOT NULL,
  owner  TEXT NOT NULL,
  target TEXT NOT NULL,
  action TEXT NOT NULL,
  PRIMARY KEY (tenant, owner, target, action)
) WITHOUT ROWID;
CREATE INDEX quarantine_action ON quarantine (action);
-- What nobody knew the outcome of before there was a quarantine belongs into it.
INSERT OR IGNORE INTO quarantine (tenant, owner, target, action)
  SELECT a.tenant, a.owner, t.value, a.id FROM actions a, json_each(a.targets) t WHERE a.state = 'indeterminate';

CREATE TABLE history (
  conversation TEXT NOT NULL,
  seq          INTEGER NOT NULL,
  participant  TEXT NOT NULL,
  turn         TEXT NOT NULL,
  action       TEXT NOT NULL,
  type         TEXT NOT NULL,
  body         BLOB NOT NULL,
  prev         TEXT NOT NULL,
  hash         TEXT NOT NULL,
  time         INTEGER NOT NULL, -- microseconds; it is hashed, so zero is no exception here
  PRIMARY KEY (conversation, seq)
) WITHOUT ROWID;

CREATE TABLE chains (
  conversation TEXT PRIMARY KEY,
  seq          INTEGER NOT NULL, -- of the last event
  hash         TEXT NOT NULL,
  sealed       INTEGER NOT NULL  -- the last event that a head holds
) WITHOUT ROWID;
CREATE INDEX chains_unsealed ON chains (conversation) WHERE seq > sealed;

CREATE TABLE heads (
  n    INTEGER PRIMARY KEY,
  time INTEGER NOT NULL, -- microseconds; it is hashed, so zero is no exception here
  tips TEXT NOT NULL,    -- JSON
  prev TEXT NOT NULL,
  hash TEXT NOT NULL
);

CREATE TABLE schedules (
  id            TEXT PRIMARY KEY,
  tenant        TEXT NOT NULL,
  owner         TEXT NOT NULL,
  agent         TEXT NOT NULL,
  conversation  TEXT NOT NULL,
  generation    INTEGER NOT NULL,
  revision      INTEGER NOT NULL,
  state         TEXT NOT NULL CHECK (state IN ('running', 'paused', 'draining', 'stopped', 'done')),
  reason        TEXT NOT NULL,
  policy_digest TEXT NOT NULL,
  next          INTEGER NOT NULL,
  attempted     INTEGER NOT NULL,
  succeeded     INTEGER NOT NULL,
  failed        INTEGER NOT NULL,
  in_flight     INTEGER NOT NULL,
  holder        TEXT NOT NULL,
  lease_token   INTEGER NOT NULL,
  lease_until   INTEGER NOT NULL,
  changed       INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tokens (
  n       INTEGER PRIMARY KEY,
  id      TEXT NOT NULL UNIQUE,
  kind    TEXT NOT NULL,
  hash    TEXT NOT NULL UNIQUE,
  tenant  TEXT NOT NULL,
  owner   TEXT NOT NULL,
  subject TEXT NOT NULL,
  name    TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  revoked INTEGER NOT NULL
);
CREATE INDEX tokens_kind ON tokens (kind, n);
