-- +goose Up
CREATE TABLE batches (
  id   TEXT PRIMARY KEY,
  time INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE conversations (
  id          TEXT PRIMARY KEY,
  tenant      TEXT NOT NULL,
  owner       TEXT NOT NULL,
  agent       TEXT NOT NULL,
  lease_token INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,
  holder      TEXT NOT NULL,
  next_seq    INTEGER NOT NULL,
  created     INTEGER NOT NULL,
  changed     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX conversations_changed ON conversations (changed DESC, id);

CREATE TABLE turns (
  n             INTEGER PRIMARY KEY,
  id            TEXT NOT NULL UNIQUE,
  conversation  TEXT NOT NULL REFERENCES conversations (id),
  agent         TEXT NOT NULL,
  state         TEXT NOT NULL CHECK (state IN ('running', 'answered', 'no_answer', 'interrupted', 'failed')),
  reason        TEXT NOT NULL,
  config_digest TEXT NOT NULL,
  holder        TEXT NOT NULL,
  started       INTEGER NOT NULL,
  ended         INTEGER NOT NULL
);
CREATE INDEX turns_open ON turns (n) WHERE state = 'running';

CREATE TABLE blocks (
  conversation TEXT NOT NULL,
  seq          INTEGER NOT NULL,
  key          TEXT,
  turn         TEXT NOT NULL,
  kind         TEXT NOT NULL,
  action       TEXT NOT NULL,
  body         BLOB NOT NULL,
  time         INTEGER NOT NULL,
  PRIMARY KEY (conversation, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX blocks_key ON blocks (conversation, key) WHERE key IS NOT NULL;

CREATE TABLE actions (
  n               INTEGER PRIMARY KEY,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL,
  conversation    TEXT NOT NULL,
  turn            TEXT NOT NULL,
  ordinal         INTEGER NOT NULL,
  round           INTEGER NOT NULL,
  attempt         INTEGER NOT NULL,
  idx             INTEGER NOT NULL,
  tool            TEXT NOT NULL,
  tool_call_id    TEXT NOT NULL,
  fingerprint     TEXT NOT NULL,
  request_digest  TEXT NOT NULL,
  argument_digest TEXT NOT NULL,
  participant     TEXT NOT NULL,
  implementation  TEXT NOT NULL,
  affordance      TEXT NOT NULL,
  contract        TEXT NOT NULL,
  boundary        TEXT NOT NULL,
  targets         TEXT NOT NULL,
  scope           TEXT NOT NULL,
  generation      INTEGER NOT NULL,
  lease_token     INTEGER NOT NULL,
  strategy        TEXT NOT NULL,
  execution       TEXT NOT NULL,
  effect          TEXT NOT NULL,
  policy_digest   TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  observation     TEXT NOT NULL,
  early           INTEGER NOT NULL,
  admitted_at     INTEGER NOT NULL,
  state           TEXT NOT NULL CHECK (state IN ('held', 'admitted', 'dispatched', 'succeeded', 'failed', 'withheld', 'indeterminate')),
  failure         TEXT NOT NULL,
  evidence        TEXT NOT NULL,
  result_digest   TEXT NOT NULL,
  dispatched_at   INTEGER NOT NULL,
  settled_at      INTEGER NOT NULL,
  UNIQUE (turn, round, attempt, idx),
  UNIQUE (turn, tool_call_id),
  UNIQUE (turn, ordinal)
);
CREATE INDEX actions_conversation ON actions (conversation, n);
CREATE INDEX actions_open ON actions (n) WHERE state IN ('held', 'admitted', 'dispatched');
CREATE INDEX actions_unknown ON actions (conversation, n) WHERE state = 'indeterminate';

CREATE TABLE documents (
  digest TEXT PRIMARY KEY,
  body   BLOB NOT NULL
) WITHOUT ROWID;
