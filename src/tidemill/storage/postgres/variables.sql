-- Statements about variables and secrets.

-- name: upsert_variable
INSERT INTO tidemill.variables ({variable_columns}) VALUES ({variable_parameters})
ON CONFLICT (tenant, name) DO UPDATE SET
    value = excluded.value,
    updated_at = excluded.updated_at,
    updated_by = excluded.updated_by;

-- name: variable
SELECT {variable_columns} FROM tidemill.variables WHERE tenant = $1 AND name = $2;

-- name: variables
SELECT {listed_variable_columns} FROM tidemill.variables WHERE tenant = $1 ORDER BY name;

-- name: delete_variable
DELETE FROM tidemill.variables WHERE tenant = $1 AND name = $2 RETURNING name;

-- name: add_secret
INSERT INTO tidemill.secrets ({secret_columns}) VALUES ({secret_parameters})
ON CONFLICT (tenant, name) DO NOTHING RETURNING name;

-- name: replace_secret
UPDATE tidemill.secrets SET ({secret_columns}) = ROW ({secret_parameters})
WHERE tenant = $1 AND name = $2 AND version = $3 - 1 RETURNING name;

-- name: secret
SELECT {secret_columns} FROM tidemill.secrets WHERE tenant = $1 AND name = $2;

-- name: secrets
SELECT {secret_columns} FROM tidemill.secrets WHERE tenant = $1 ORDER BY name;

-- name: delete_secret
DELETE FROM tidemill.secrets WHERE tenant = $1 AND name = $2 RETURNING name;

-- name: secrets_not_wrapped_by
SELECT {secret_columns} FROM tidemill.secrets WHERE key_id <> $1 ORDER BY tenant, name LIMIT $2;

-- name: rewrap_secret
UPDATE tidemill.secrets SET key_id = $1, wrapped_key = $2
WHERE tenant = $3 AND name = $4 AND version = $5 AND key_id = $6 RETURNING name;
