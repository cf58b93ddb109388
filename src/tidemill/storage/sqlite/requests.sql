-- Statements about idempotent requests.

-- name: request_of
SELECT {request_columns} FROM requests WHERE tenant = ? AND key = ?;

-- name: put_request
INSERT OR REPLACE INTO requests ({request_columns}) VALUES ({request_parameters});

-- name: finish_request
UPDATE requests SET status = ?, headers = ?, body = ? WHERE tenant = ? AND key = ? AND owner = ?;

-- name: delete_request
DELETE FROM requests WHERE tenant = ? AND key = ? AND owner = ?;

-- name: prune_requests
DELETE FROM requests WHERE at < ?;
