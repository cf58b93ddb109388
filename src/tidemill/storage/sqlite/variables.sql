-- Statements about variables and secrets.

-- name: upsert_variable
INSERT INTO variables ({variable_columns}) VALUES ({variable_parameters})
ON CONFLICT (tenant, name) DO UPDATE SET
    value = excluded.value,
    updated_at = excluded.updated_at,
    updated_by = excluded.updated_by;

-- name: variable_of
SELECT {variable_columns} FROM variables WHERE tenant = ? AND name = ?;

-- name: variables_of
SELECT {listed_variable_columns} FROM variables WHERE tenant = ? ORDER BY name;

-- name: delete_variable
DELETE FROM variables WHERE tenant = ? AND name = ?;

-- name: secret_version
SELECT version FROM secrets WHERE tenant = ? AND name = ?;

-- name: put_secret
INSERT OR REPLACE INTO secrets ({secret_columns}) VALUES ({secret_parameters});

-- name: secret_of
SELECT {secret_columns} FROM secrets WHERE tenant = ? AND name = ?;

-- name: secrets_of
SELECT {secret_columns} FROM secrets WHERE tenant = ? ORDER BY name;

-- name: delete_secret
DELETE FROM secrets WHERE tenant = ? AND name = ?;

-- name: secrets_not_wrapped_by
SELECT {secret_columns} FROM secrets WHERE key_id <> ? ORDER BY tenant, name LIMIT ?;

-- name: rewrap_secret
UPDATE secrets SET key_id = ?, wrapped_key = ? WHERE tenant = ? AND name = ? AND version = ? AND key_id = ?;
