-- Statements about idempotent requests.

-- name: request_of
SELECT {request_columns} FROM requests WHERE tenant = ? AND key = ?;

-- name: put_request
INSERT OR REPLACE INTO requests ({request_columns}) VALUES ({request_parameters});

-- name: claim_request
UPDATE requests SET owner = ? WHERE tenant = ? AND key = ? AND owner = ? AND status IS NULL;

-- name: finish_request
UPDATE requests SET status = ?, headers = ?, body = ? WHERE tenant = ? AND key = ? AND at = ? AND status IS NULL;

-- name: prune_requests
DELETE FROM requests WHERE at < ?;

-- name: prune_request_fires
DELETE FROM fires WHERE key >= 'request:' AND key < 'request;' AND at < ?;
