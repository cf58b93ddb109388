-- Statements about the mailbox.

-- name: send_mail
INSERT INTO mail (id, tenant, kind, name, sender, operation, payload, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: mail_to
SELECT r.id, r.tenant, r.kind, r.name, r.sender, r.operation, r.payload, r.at, p.answer
FROM mail AS r
JOIN part_owners AS o USING (tenant, kind, name)
LEFT JOIN pushes AS p ON p.tenant = r.tenant AND p.accumulator = r.name AND p.client = r.id
WHERE o.owner = ? AND r.answer IS NULL AND r.id NOT IN (SELECT value FROM json_each(?))
ORDER BY r.id;

-- name: answer_mail
UPDATE mail SET answer = ? WHERE id = ? AND answer IS NULL;

-- name: mail_answers_to
SELECT id, answer FROM mail WHERE sender = ? AND answer IS NOT NULL ORDER BY id;

-- name: delete_mail
DELETE FROM mail WHERE id = ?;

-- name: delete_mail_push
DELETE FROM pushes WHERE tenant = ? AND accumulator = ? AND client = ?;

-- name: delete_old_mail
DELETE FROM mail WHERE at < ?;
