-- Statements about accounts, sessions and tickets.

-- name: add_account
INSERT INTO tidemill.accounts ({account_columns}, password_hash)
VALUES ({account_parameters}, {account_next_parameter})
ON CONFLICT (tenant, name) DO NOTHING RETURNING name;

-- name: accounts
SELECT {account_columns} FROM tidemill.accounts WHERE tenant = $1 ORDER BY name;

-- name: change_account
UPDATE tidemill.accounts SET
    role = coalesce($3::text, role),
    password_hash = coalesce($4::text, password_hash),
    failures = CASE WHEN $4::text IS NULL THEN failures ELSE 0 END,
    locked_until = CASE WHEN $4::text IS NULL THEN locked_until END
WHERE tenant = $1 AND name = $2
RETURNING {account_columns};

-- name: delete_account
DELETE FROM tidemill.accounts WHERE tenant = $1 AND name = $2 RETURNING name;

-- name: begin_login
UPDATE tidemill.accounts SET
    failures = failures + 1,
    locked_until = CASE WHEN failures + 1 >= $4::integer THEN $5::timestamptz END
WHERE tenant = $1 AND name = $2 AND (locked_until IS NULL OR locked_until <= $3)
RETURNING {account_columns}, password_hash;

-- name: record_login
UPDATE tidemill.accounts SET failures = 0, locked_until = NULL, last_login_at = $3 WHERE tenant = $1 AND name = $2;

-- name: add_session
INSERT INTO tidemill.sessions ({session_columns}, digest) VALUES ({session_parameters}, {session_next_parameter});

-- name: session_of_token
SELECT {session_columns} FROM tidemill.sessions WHERE digest = $1;

-- name: session
SELECT {session_columns} FROM tidemill.sessions WHERE id = $1;

-- name: record_session_use
UPDATE tidemill.sessions SET seen_at = greatest(seen_at, $2) WHERE id = $1;

-- name: delete_session
-- The last parameter names the sender, here and below.
DELETE FROM tidemill.sessions WHERE id = $1 RETURNING pg_notify('tidemill_access', $2);

-- name: delete_sessions_of_actor
DELETE FROM tidemill.sessions WHERE tenant = $1 AND actor = $2 RETURNING pg_notify('tidemill_access', $3);

-- name: prune_sessions
DELETE FROM tidemill.sessions WHERE expires_at < $1 OR seen_at < $2 RETURNING id;

-- name: add_ticket
INSERT INTO tidemill.tickets ({ticket_columns}, digest) VALUES ({ticket_parameters}, {ticket_next_parameter});

-- name: take_ticket
DELETE FROM tidemill.tickets WHERE digest = $1 RETURNING {ticket_columns};

-- name: prune_tickets
DELETE FROM tidemill.tickets WHERE expires_at < $1 RETURNING tenant;
