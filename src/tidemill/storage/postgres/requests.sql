-- Statements about idempotent requests.

-- name: add_request
INSERT INTO tidemill.requests ({request_columns}) VALUES ({request_parameters})
ON CONFLICT (tenant, key) DO NOTHING RETURNING key;

-- name: request_of
SELECT {request_columns} FROM tidemill.requests WHERE tenant = $1 AND key = $2;

-- name: lock_request
SELECT {request_columns} FROM tidemill.requests WHERE tenant = $1 AND key = $2 FOR UPDATE;

-- name: replace_request
UPDATE tidemill.requests SET ({request_columns}) = ROW ({request_parameters}) WHERE tenant = $1 AND key = $2;

-- name: claim_request
UPDATE tidemill.requests SET owner = $1 WHERE tenant = $2 AND key = $3 AND owner = $4 AND status IS NULL RETURNING key;

-- name: finish_request
UPDATE tidemill.requests SET status = $1, headers = $2, body = $3
WHERE tenant = $4 AND key = $5 AND at = $6 AND status IS NULL;

-- name: prune_requests
DELETE FROM tidemill.requests WHERE at < $1 RETURNING key;

-- name: prune_request_fires
DELETE FROM tidemill.fires WHERE key >= 'request:' AND key < 'request;' AND at < $1;
