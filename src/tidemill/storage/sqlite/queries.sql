-- Statements about graphs. The schema is in `migrations`.

-- name: save_part
INSERT INTO parts (tenant, kind, name, slot, generation, moment, taken_at, digest, checksum, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, kind, name, slot) DO UPDATE SET
    generation = excluded.generation,
    moment = excluded.moment,
    taken_at = excluded.taken_at,
    digest = excluded.digest,
    checksum = excluded.checksum,
    payload = excluded.payload;

-- name: trim_journal
DELETE FROM journal WHERE tenant = ? AND accumulator = ? AND position <= ?;

-- name: append_block
INSERT INTO journal (tenant, accumulator, position, layout, checksum, payload) VALUES (?, ?, ?, ?, ?, ?);

-- name: put_push
INSERT INTO pushes (tenant, accumulator, client, sequence, answer, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, accumulator, client) DO UPDATE SET
    sequence = excluded.sequence,
    answer = excluded.answer,
    at = excluded.at;

-- name: newest_push
SELECT sequence, answer, at FROM pushes WHERE tenant = ? AND accumulator = ? AND client = ?;

-- name: delete_pushes
DELETE FROM pushes WHERE at < ? AND client <> ?;

-- name: parts_of
SELECT tenant, kind, name, generation, moment, taken_at, digest, checksum, payload
FROM parts WHERE tenant = ? AND kind = ? AND name = ?;

-- name: all_parts
SELECT tenant, kind, name, generation, moment, taken_at, digest, checksum, payload
FROM parts ORDER BY tenant, kind, name, moment DESC;

-- name: blocks_of
SELECT tenant, accumulator, position, layout, checksum, payload
FROM journal WHERE tenant = ? AND accumulator = ? ORDER BY position;

-- name: all_blocks
SELECT tenant, accumulator, position, layout, checksum, payload
FROM journal ORDER BY tenant, accumulator, position;

-- name: high_water_marks
SELECT
    coalesce((SELECT max(moment) FROM parts), 0),
    coalesce((SELECT max(position) FROM journal), 0);

-- name: part_owner
SELECT owner, epoch, renewals FROM part_owners WHERE tenant = ? AND kind = ? AND name = ? AND owner IS NOT NULL;

-- name: acquire_part
INSERT INTO part_owners (tenant, kind, name, epoch, owner, renewals)
VALUES (:tenant, :kind, :name, 1, :owner, 1)
ON CONFLICT (tenant, kind, name) DO UPDATE SET
    epoch = epoch + (owner IS NOT excluded.owner), owner = excluded.owner, renewals = renewals + 1
RETURNING epoch;

-- name: renew_parts
UPDATE part_owners SET renewals = renewals + 1 WHERE owner = ? RETURNING tenant, kind, name, epoch;

-- name: release_part
UPDATE part_owners SET owner = NULL WHERE tenant = ? AND kind = ? AND name = ? AND epoch = ?;

-- name: owns_part
SELECT count(*) FROM part_owners WHERE tenant = ? AND kind = ? AND name = ? AND epoch = ? AND owner IS NOT NULL;

-- name: owned_part_names
SELECT name FROM part_owners WHERE tenant = ? AND kind = ? AND owner IS NOT NULL ORDER BY name;
