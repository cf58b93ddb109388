-- Statements about tenants, API keys and the audit log.

-- name: add_tenant
INSERT INTO tenants ({tenant_columns}) VALUES ({tenant_parameters}) ON CONFLICT (name) DO NOTHING;

-- name: tenant_of
SELECT {tenant_columns} FROM tenants WHERE name = ?;

-- name: all_tenants
SELECT {tenant_columns} FROM tenants ORDER BY name;

-- name: delete_tenant
DELETE FROM tenants WHERE name = ?;

-- name: add_api_key
INSERT INTO api_keys ({api_key_columns}, digest) VALUES ({api_key_parameters}, {api_key_next_parameter});

-- name: api_key_of
SELECT {api_key_columns}, digest FROM api_keys WHERE id = ?;

-- name: api_keys_of
SELECT {api_key_columns} FROM api_keys WHERE tenant = ? ORDER BY created_at, id;

-- name: revoke_api_key
UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?) WHERE tenant = ? AND id = ?;

-- name: record_api_key_use
UPDATE api_keys SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?;

-- name: append_audit_entry
INSERT INTO audit_entries ({audit_columns}) VALUES ({audit_parameters});

-- name: audit_entries_of
SELECT {audit_columns} FROM audit_entries
WHERE tenant = :tenant
    AND (:actor IS NULL OR actor = :actor)
    AND (:action IS NULL OR action = :action)
    AND (:target IS NULL OR target = :target)
    AND (:before IS NULL OR id < :before)
ORDER BY id DESC LIMIT :limit;

-- name: count_audit_entries
SELECT count(*) FROM audit_entries
WHERE tenant = :tenant
    AND (:actor IS NULL OR actor = :actor)
    AND (:action IS NULL OR action = :action)
    AND (:target IS NULL OR target = :target);

-- name: tenants_with_audit_entries
SELECT DISTINCT tenant FROM audit_entries ORDER BY tenant;

-- name: prune_audit_entries
DELETE FROM audit_entries WHERE id IN (
    SELECT id FROM audit_entries WHERE tenant = ? AND at < ? ORDER BY id LIMIT ?
);
