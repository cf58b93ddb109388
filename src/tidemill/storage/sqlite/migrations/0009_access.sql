-- Tenants, API keys and the audit log. Times are microseconds since 1970 in UTC.

CREATE TABLE tenants (
    name TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Tenants that own something already continue to exist.
INSERT INTO tenants (name, created_at, created_by)
SELECT tenant, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000, 'migration' FROM (
    SELECT 'public' AS tenant
    UNION SELECT tenant FROM parts
    UNION SELECT tenant FROM runs
    UNION SELECT tenant FROM workflow_versions
    UNION SELECT tenant FROM packages
    UNION SELECT tenant FROM trusted_keys
);

CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    role TEXT NOT NULL,
    label TEXT NOT NULL,
    only TEXT, -- JSON; NULL for a key that is not restricted
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    last_used_at INTEGER,
    digest BLOB NOT NULL -- of the token
) STRICT, WITHOUT ROWID;

CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_at, id);

CREATE TABLE audit_entries (
    id TEXT NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    details TEXT NOT NULL, -- JSON
    request_id TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_entries_by_tenant ON audit_entries (tenant, id);
