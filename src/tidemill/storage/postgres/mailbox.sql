-- Statements about the mailbox.

-- name: send_mail
INSERT INTO tidemill.mail (id, tenant, kind, name, sender, operation, payload, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING pg_notify('tidemill_mail', $9);

-- name: mail_to
SELECT r.id, r.tenant, r.kind, r.name, r.sender, r.operation, r.payload, r.at, p.answer
FROM tidemill.mail AS r
JOIN tidemill.part_owners AS o USING (tenant, kind, name)
LEFT JOIN tidemill.pushes AS p ON p.tenant = r.tenant AND p.accumulator = r.name AND p.client = r.id
WHERE o.owner = $1 AND r.answer IS NULL AND r.id <> ALL($2::text[])
ORDER BY r.id;

-- name: answer_mail
UPDATE tidemill.mail SET answer = $2 WHERE id = $1 AND answer IS NULL RETURNING pg_notify('tidemill_mail', $3);

-- name: mail_answers_to
SELECT id, answer FROM tidemill.mail WHERE sender = $1 AND answer IS NOT NULL ORDER BY id;

-- name: delete_mail
DELETE FROM tidemill.mail WHERE id = ANY($1::text[]);

-- name: delete_mail_pushes
DELETE FROM tidemill.pushes
WHERE (tenant, accumulator, client) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]));

-- name: delete_old_mail
DELETE FROM tidemill.mail WHERE at < $1;
