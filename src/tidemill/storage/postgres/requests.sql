-- Statements about idempotent requests.

-- name: add_request
INSERT INTO tidemill.requests ({request_columns}) VALUES ({request_parameters})
ON CONFLICT (tenant, key) DO NOTHING RETURNING key;

-- name: lock_request
SELECT {request_columns} FROM tidemill.requests WHERE tenant = $1 AND key = $2 FOR UPDATE;

-- name: replace_request
UPDATE tidemill.requests SET ({request_columns}) = ROW ({request_parameters}) WHERE tenant = $1 AND key = $2;

-- name: finish_request
UPDATE tidemill.requests SET status = $1, headers = $2, body = $3 WHERE tenant = $4 AND key = $5 AND owner = $6;

-- name: delete_request
DELETE FROM tidemill.requests WHERE tenant = $1 AND key = $2 AND owner = $3;

-- name: prune_requests
DELETE FROM tidemill.requests WHERE at < $1 RETURNING key;
