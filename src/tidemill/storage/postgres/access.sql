-- Statements about tenants, API keys and the audit log.

-- name: add_tenant
INSERT INTO tidemill.tenants ({tenant_columns}) VALUES ({tenant_parameters})
ON CONFLICT (name) DO NOTHING RETURNING name;

-- name: tenant
SELECT {tenant_columns} FROM tidemill.tenants WHERE name = $1;

-- name: all_tenants
SELECT {tenant_columns} FROM tidemill.tenants ORDER BY name;

-- name: delete_tenant
-- The last parameter names the sender, here and below.
DELETE FROM tidemill.tenants WHERE name = $1 RETURNING pg_notify('tidemill_access', $2);

-- name: add_api_key
INSERT INTO tidemill.api_keys ({api_key_columns}, digest) VALUES ({api_key_parameters}, {api_key_next_parameter});

-- name: api_key
SELECT {api_key_columns}, digest FROM tidemill.api_keys WHERE id = $1;

-- name: api_keys
SELECT {api_key_columns} FROM tidemill.api_keys WHERE tenant = $1 ORDER BY created_at, id;

-- name: revoke_api_key
UPDATE tidemill.api_keys SET revoked_at = coalesce(revoked_at, $3) WHERE tenant = $1 AND id = $2
RETURNING pg_notify('tidemill_access', $4);

-- name: record_api_key_use
UPDATE tidemill.api_keys SET last_used_at = greatest(last_used_at, $2) WHERE id = $1;

-- name: add_audit_entries
INSERT INTO tidemill.audit_entries ({audit_columns})
SELECT * FROM unnest(
    $1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]
);

-- name: audit_entries
SELECT {audit_columns} FROM tidemill.audit_entries
WHERE tenant = $1
    AND ($2::text IS NULL OR actor = $2)
    AND ($3::text IS NULL OR action = $3)
    AND ($4::text IS NULL OR target = $4)
    AND ($5::text IS NULL OR id < $5)
ORDER BY id DESC LIMIT $6;

-- name: count_audit_entries
SELECT count(*) FROM tidemill.audit_entries
WHERE tenant = $1
    AND ($2::text IS NULL OR actor = $2)
    AND ($3::text IS NULL OR action = $3)
    AND ($4::text IS NULL OR target = $4);

-- name: tenants_with_audit_entries
SELECT DISTINCT tenant FROM tidemill.audit_entries ORDER BY tenant;

-- name: prune_audit_entries
DELETE FROM tidemill.audit_entries WHERE id IN (
    SELECT id FROM tidemill.audit_entries WHERE tenant = $1 AND at < $2 ORDER BY id LIMIT $3
) RETURNING id;
