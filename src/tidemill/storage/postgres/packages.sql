-- Statements about packages. A transaction that writes to the registry locks it first.

-- name: lock_packages
-- One lock for all packages, so that publishers of several never deadlock.
SELECT pg_advisory_xact_lock(hashtext('tidemill'), hashtext('packages'));

-- name: package_revision
SELECT revision FROM tidemill.packages WHERE tenant = $1 AND name = $2;

-- name: record_package
-- $4 is 1 if the package is published at the same time, and 0 if it is only recorded.
INSERT INTO tidemill.package_versions AS known (tenant, name, version, revision) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, name) DO UPDATE SET version = excluded.version, revision = known.revision + excluded.revision
RETURNING revision;

-- name: upsert_package
-- The last parameter names the sender, here and below.
INSERT INTO tidemill.packages (tenant, name, version, digest, size, at, revision, archive)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant, name) DO UPDATE SET
    version = excluded.version,
    digest = excluded.digest,
    size = excluded.size,
    at = excluded.at,
    revision = excluded.revision,
    archive = excluded.archive
RETURNING pg_notify('tidemill_packages', $9);

-- name: withdraw_package
DELETE FROM tidemill.packages WHERE tenant = $1 AND name = $2 RETURNING pg_notify('tidemill_packages', $3);

-- name: all_packages
SELECT tenant, name, version, digest, size, at, revision FROM tidemill.packages ORDER BY tenant, name;

-- name: archive
SELECT archive FROM tidemill.packages WHERE tenant = $1 AND name = $2 AND digest = $3;

-- name: recorded_version
SELECT version FROM tidemill.package_versions WHERE tenant = $1 AND name = $2;

-- name: add_trusted_key
INSERT INTO tidemill.trusted_keys (tenant, id, text, at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: delete_trusted_key
DELETE FROM tidemill.trusted_keys WHERE tenant = $1 AND id = $2 RETURNING id;

-- name: trusted_keys
SELECT tenant, id, text, at FROM tidemill.trusted_keys WHERE tenant = $1 ORDER BY at, id;

-- name: upsert_package_state
INSERT INTO tidemill.package_states (tenant, name, owner, phase, version, digest, at, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant, name, owner) DO UPDATE SET
    phase = excluded.phase,
    version = excluded.version,
    digest = excluded.digest,
    at = excluded.at,
    state = excluded.state;

-- name: delete_package_state
DELETE FROM tidemill.package_states WHERE tenant = $1 AND name = $2 AND owner = $3;

-- name: all_package_states
SELECT tenant, name, owner, phase, version, digest, at, state FROM tidemill.package_states
ORDER BY tenant, name, at, owner;
