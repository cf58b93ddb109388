-- Statements about accounts, sessions and tickets.

-- name: add_account
INSERT INTO accounts ({account_columns}, password_hash) VALUES ({account_parameters}, ?)
ON CONFLICT (tenant, name) DO NOTHING;

-- name: accounts_of
SELECT {account_columns} FROM accounts WHERE tenant = ? ORDER BY name;

-- name: change_account
UPDATE accounts SET
    role = coalesce(:role, role),
    password_hash = coalesce(:password_hash, password_hash),
    failures = CASE WHEN :password_hash IS NULL THEN failures ELSE 0 END,
    locked_until = CASE WHEN :password_hash IS NULL THEN locked_until END
WHERE tenant = :tenant AND name = :name
RETURNING {account_columns};

-- name: delete_account
DELETE FROM accounts WHERE tenant = ? AND name = ?;

-- name: begin_login
UPDATE accounts SET
    failures = failures + 1,
    locked_until = CASE WHEN failures + 1 >= :limit THEN :locked_until END
WHERE tenant = :tenant AND name = :name AND (locked_until IS NULL OR locked_until <= :at)
RETURNING {account_columns}, password_hash;

-- name: record_login
UPDATE accounts SET failures = 0, locked_until = NULL, last_login_at = ? WHERE tenant = ? AND name = ?;

-- name: add_session
INSERT INTO sessions ({session_columns}, digest) VALUES ({session_parameters}, ?);

-- name: session_of_token
SELECT {session_columns} FROM sessions WHERE digest = ?;

-- name: session_of
SELECT {session_columns} FROM sessions WHERE id = ?;

-- name: record_session_use
UPDATE sessions SET seen_at = max(seen_at, ?) WHERE id = ?;

-- name: delete_session
DELETE FROM sessions WHERE id = ?;

-- name: delete_sessions_of_actor
DELETE FROM sessions WHERE tenant = ? AND actor = ?;

-- name: prune_sessions
DELETE FROM sessions WHERE expires_at < ? OR seen_at < ?;

-- name: add_ticket
INSERT INTO tickets ({ticket_columns}, digest) VALUES ({ticket_parameters}, ?);

-- name: take_ticket
DELETE FROM tickets WHERE digest = ? RETURNING {ticket_columns};

-- name: prune_tickets
DELETE FROM tickets WHERE expires_at < ?;
