-- Statements about packages.

-- name: package_revision
SELECT revision FROM packages WHERE tenant = ? AND name = ?;

-- name: record_package
-- The last value is 1 if the package is published at the same time, and 0 if it is only recorded.
INSERT INTO package_versions (tenant, name, version, revision) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, name) DO UPDATE SET version = excluded.version, revision = revision + excluded.revision
RETURNING revision;

-- name: upsert_package
INSERT INTO packages (tenant, name, version, digest, size, at, revision, archive) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, name) DO UPDATE SET
    version = excluded.version,
    digest = excluded.digest,
    size = excluded.size,
    at = excluded.at,
    revision = excluded.revision,
    archive = excluded.archive;

-- name: withdraw_package
DELETE FROM packages WHERE tenant = ? AND name = ?;

-- name: all_packages
SELECT tenant, name, version, digest, size, at, revision FROM packages ORDER BY tenant, name;

-- name: archive_of
SELECT archive FROM packages WHERE tenant = ? AND name = ? AND digest = ?;

-- name: recorded_version
SELECT version FROM package_versions WHERE tenant = ? AND name = ?;

-- name: add_trusted_key
INSERT INTO trusted_keys (tenant, id, text, at) VALUES (?, ?, ?, ?) ON CONFLICT (tenant, id) DO NOTHING;

-- name: delete_trusted_key
DELETE FROM trusted_keys WHERE tenant = ? AND id = ?;

-- name: trusted_keys_of
SELECT tenant, id, text, at FROM trusted_keys WHERE tenant = ? ORDER BY at, id;

-- name: upsert_package_state
INSERT INTO package_states (tenant, name, owner, phase, version, digest, at, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, name, owner) DO UPDATE SET
    phase = excluded.phase,
    version = excluded.version,
    digest = excluded.digest,
    at = excluded.at,
    state = excluded.state;

-- name: delete_package_state
DELETE FROM package_states WHERE tenant = ? AND name = ? AND owner = ?;

-- name: all_package_states
SELECT tenant, name, owner, phase, version, digest, at, state FROM package_states ORDER BY tenant, name, at, owner;
