-- Accounts, sessions, tickets, variables, secrets and idempotent requests. Times are microseconds since 1970 in UTC.

CREATE TABLE accounts (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    failures INTEGER NOT NULL,
    locked_until INTEGER,
    last_login_at INTEGER,
    password_hash TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    actor TEXT NOT NULL,
    principal TEXT NOT NULL, -- JSON
    created_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    digest BLOB NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;

CREATE TABLE tickets (
    tenant TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    principal TEXT NOT NULL, -- JSON
    expires_at INTEGER NOT NULL,
    digest BLOB NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE variables (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT, -- JSON; NULL for null
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE secrets (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    wrapped_key BLOB NOT NULL,
    ciphertext BLOB NOT NULL,
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    route TEXT NOT NULL,
    digest BLOB NOT NULL,
    owner TEXT NOT NULL,
    at INTEGER NOT NULL,
    status INTEGER, -- NULL while the request is being handled
    headers TEXT NOT NULL, -- JSON
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT;

CREATE INDEX requests_by_time ON requests (at);
