-- Statements about graphs, transactions and the schema. Those that take arrays write all rows at once: one array per
-- column.

-- name: begin
BEGIN;
INSERT INTO tidemill.writers (writer, turn) VALUES (':writer', :turn)
ON CONFLICT (writer) DO UPDATE SET turn = excluded.turn, seen_at = now();

-- name: give_up_turn
-- Returns the turn $2 if its transaction was committed. Else it is given up, as a negative number: a statement that reaches
-- the server only now finds that, and writes nothing.
INSERT INTO tidemill.writers AS known (writer, turn) VALUES ($1, -$2::bigint)
ON CONFLICT (writer) DO UPDATE SET turn = CASE known.turn WHEN $2::bigint THEN known.turn ELSE -$2::bigint END
RETURNING turn;

-- name: delete_old_writers
DELETE FROM tidemill.writers WHERE seen_at < now() - interval '7 days';

-- name: has_schema
-- Not to_regclass(): its cache would not see a table that another node created while this one waited for the lock.
SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'tidemill' AND tablename = 'schema_versions');

-- name: schema_version
SELECT coalesce(max(version), 0) FROM tidemill.schema_versions;

-- name: begin_migration
BEGIN;
SET LOCAL lock_timeout = '60s';
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SELECT pg_advisory_xact_lock(hashtext('tidemill'), hashtext('schema'));

-- name: record_migration
INSERT INTO tidemill.schema_versions (version, name) VALUES ($1, $2);

-- name: can_protect_rows
SELECT EXISTS (SELECT FROM pg_proc WHERE proname = 'protect_rows' AND pronamespace = 'tidemill'::regnamespace);

-- name: unprotected_tables
SELECT tablename FROM pg_tables WHERE schemaname = 'tidemill' AND NOT rowsecurity;

-- name: protect_rows
SELECT tidemill.protect_rows($1, $2);

-- name: save_parts
INSERT INTO tidemill.parts (tenant, kind, name, slot, generation, moment, taken_at, digest, checksum, payload)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant, kind, name, slot) DO UPDATE SET
    generation = excluded.generation,
    moment = excluded.moment,
    taken_at = excluded.taken_at,
    digest = excluded.digest,
    checksum = excluded.checksum,
    payload = excluded.payload;

-- name: trim_journal
DELETE FROM tidemill.journal WHERE tenant = $1 AND accumulator = $2 AND position <= $3;

-- name: append_blocks
INSERT INTO tidemill.journal (tenant, accumulator, position, layout, checksum, payload)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[]);

-- name: put_pushes
-- In one order, so that two transactions never wait for each other.
INSERT INTO tidemill.pushes (tenant, accumulator, client, sequence, answer, at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[], $6::timestamptz[])
ORDER BY 1, 2, 3
ON CONFLICT (tenant, accumulator, client) DO UPDATE SET
    sequence = excluded.sequence,
    answer = excluded.answer,
    at = excluded.at;

-- name: newest_push
SELECT sequence, answer, at FROM tidemill.pushes WHERE tenant = $1 AND accumulator = $2 AND client = $3;

-- name: delete_pushes
DELETE FROM tidemill.pushes WHERE at < $1 AND client <> $2;

-- name: parts
SELECT tenant, kind, name, generation, moment, taken_at, digest, checksum, payload
FROM tidemill.parts
WHERE (tenant, kind, name) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))
ORDER BY moment DESC, tenant, kind, name, generation DESC;

-- name: blocks
SELECT tenant, accumulator, position, layout, checksum, payload
FROM tidemill.journal
WHERE (tenant, accumulator) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY position, tenant, accumulator;

-- name: high_water_marks
SELECT
    (SELECT coalesce(max(moment), 0) FROM tidemill.parts) AS moment,
    (SELECT coalesce(max(position), 0) FROM tidemill.journal) AS position;

-- name: all_parts
SELECT tenant, kind, name, generation, moment, taken_at, digest, checksum, payload
FROM tidemill.parts
ORDER BY tenant, kind, name, moment DESC, generation DESC;

-- name: all_blocks
SELECT tenant, accumulator, position, layout, checksum, payload
FROM tidemill.journal
ORDER BY tenant, accumulator, position;

-- name: invalid_indexes
SELECT indexrelid::regclass::text AS name
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = 'tidemill'::regnamespace AND NOT (indisvalid AND indisready)
ORDER BY 1;

-- name: schema_size
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = 'tidemill'::regnamespace AND relkind = 'r';

-- name: row_estimates
-- Minus one for a table that was never analyzed.
SELECT relname::text, reltuples::bigint FROM pg_class
WHERE relnamespace = 'tidemill'::regnamespace AND relname = ANY($1::text[]);

-- name: checksum_failures
SELECT coalesce(checksum_failures, 0) AS failures FROM pg_stat_database WHERE datname = current_database();

-- name: insert_part_owners
INSERT INTO tidemill.part_owners (tenant, kind, name, epoch, renewals)
SELECT tenant, kind, name, 0, 0 FROM unnest($1::text[], $2::text[], $3::text[]) AS n (tenant, kind, name)
ON CONFLICT DO NOTHING;

-- name: lock_part_owners
SELECT tenant, kind, name, owner, epoch, renewals FROM tidemill.part_owners
WHERE (tenant, kind, name) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))
ORDER BY tenant, kind, name
FOR UPDATE;

-- name: acquire_parts
UPDATE tidemill.part_owners SET
    epoch = epoch + (owner IS DISTINCT FROM $4)::integer,
    owner = $4,
    renewals = renewals + 1
WHERE (tenant, kind, name) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))
RETURNING tenant, kind, name, epoch;

-- name: renew_parts
WITH locked AS (
    SELECT tenant, kind, name FROM tidemill.part_owners WHERE owner = $1 ORDER BY tenant, kind, name FOR UPDATE
)
UPDATE tidemill.part_owners AS o
SET renewals = o.renewals + 1
FROM locked
WHERE o.tenant = locked.tenant AND o.kind = locked.kind AND o.name = locked.name
RETURNING o.tenant, o.kind, o.name, o.epoch;

-- name: release_part
UPDATE tidemill.part_owners SET owner = NULL WHERE tenant = $1 AND kind = $2 AND name = $3 AND epoch = $4;

-- name: owners_of_parts
SELECT tenant, kind, name, owner, epoch, renewals FROM tidemill.part_owners
WHERE (tenant, kind, name) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))
    AND owner IS NOT NULL
ORDER BY tenant, kind, name;

-- name: lock_owned_parts
-- Locked against a change of the owner until the write is committed.
SELECT tenant, kind, name FROM tidemill.part_owners
WHERE (tenant, kind, name, epoch) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]))
    AND owner IS NOT NULL
ORDER BY tenant, kind, name
FOR SHARE;

-- name: owned_part_names
SELECT name FROM tidemill.part_owners WHERE tenant = $1 AND kind = $2 AND owner IS NOT NULL ORDER BY name;
