-- Statements about workflows. Locks are always taken in this order: leases, keys (pools and fires), task runs by key,
-- runs by id. A statement that cannot keep to it skips locked rows.
-- Names in braces are replaced when the statements are loaded: states by `storage.state_sets`, columns by `run_rows`.

-- name: lock_leases
SELECT name, epoch FROM tidemill.leases WHERE name = ANY($1::text[]) AND holder IS NOT NULL ORDER BY name FOR SHARE;

-- name: lock_keys
-- The keys are sorted. What they guard is read by a later statement: this one does not see the changes it waited for.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key;

-- name: lock_rows
-- Leases, task runs and runs, in one round trip. A row that another transaction has changed meanwhile is read as that one
-- has left it.
WITH {locked_rows}
SELECT ARRAY(SELECT held FROM held), ARRAY(SELECT tasks FROM tasks), ARRAY(SELECT runs FROM runs);

-- name: change_unless_changed
-- The beginning of one statement for a whole change: writes follow, which read `expected`. It has a row if the locked rows
-- are as they are expected ($6 to $12, in the order of $1 to $5), no workflow of a new run is paused ($13, $14), no run
-- is queued in a workflow of which one begins ($15, $16), other than some ($17), and the turn $19 of the writer $18 has
-- neither been taken nor given up.
WITH {locked_rows}, turn AS MATERIALIZED (
    SELECT turn FROM tidemill.writers WHERE writer = $18::text AND abs(turn) < $19::bigint FOR UPDATE
), expected AS MATERIALIZED (
    SELECT 1
    WHERE EXISTS (SELECT FROM turn) AND (
        SELECT count(*) FROM held JOIN unnest($1::text[], $6::bigint[]) AS e (name, epoch) USING (name, epoch)
    ) = cardinality($1::text[]) AND (
        SELECT count(*) FROM tasks AS t
        JOIN unnest($2::text[], $3::text[], $4::integer[], $7::text[], $8::integer[], $9::text[])
            AS e (run, task, element, state, attempt, claimed_by) USING (run, task, element, state, attempt)
        WHERE t.claimed_by IS NOT DISTINCT FROM e.claimed_by
    ) = cardinality($2::text[]) AND (
        SELECT count(*) FROM runs
        JOIN unnest($5::text[], $10::text[], $11::bigint[], $12::bigint[]) AS e (id, state, clears, revision)
            USING (id, state, clears, revision)
    ) = cardinality($5::text[]) AND NOT EXISTS (
        SELECT FROM tidemill.workflow_pauses
        JOIN unnest($13::text[], $14::text[]) AS started (tenant, workflow) USING (tenant, workflow)
    ) AND NOT EXISTS (
        SELECT FROM tidemill.runs AS r
        JOIN unnest($15::text[], $16::text[]) AS starting (tenant, workflow) USING (tenant, workflow)
        WHERE r.state = {run_queued} AND r.backfill IS NULL AND r.id <> ALL($17::text[])
    )
)

-- name: take_turn
UPDATE tidemill.writers SET turn = $2::bigint, seen_at = now() WHERE writer = $1::text AND TRUE /* expected */;

-- name: existing_task_runs
-- Without a lock: no task run is added while its run is locked.
SELECT t.run, t.task, t.element, t.state, t.attempt, t.claimed_by, t.pool, t.lease_until
FROM tidemill.task_runs AS t
JOIN unnest($1::text[], $2::text[], $3::integer[]) AS asked (run, task, element) USING (run, task, element);

-- name: workflow_gates
-- Whether workflows are paused, and their oldest queued run, other than those that begin now or are passed over ($3).
SELECT
    tenant,
    workflow,
    EXISTS (
        SELECT 1 FROM tidemill.workflow_pauses AS p WHERE p.tenant = asked.tenant AND p.workflow = asked.workflow
    ) AS is_paused,
    (
        SELECT r.sequence FROM tidemill.runs AS r
        WHERE r.tenant = asked.tenant AND r.workflow = asked.workflow AND r.state = {run_queued}
            AND r.backfill IS NULL AND r.id <> ALL($3::text[])
        ORDER BY r.sequence LIMIT 1
    ) AS oldest_queued
FROM unnest($1::text[], $2::text[]) AS asked (tenant, workflow);

-- name: fired_slots_of
SELECT DISTINCT tenant, workflow, key, slot
FROM tidemill.fires
JOIN unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) AS asked (tenant, workflow, key, slot)
    USING (tenant, workflow, key, slot);

-- name: fired_digests_of
-- Searches from the runs that are active, or may be restarted in this transaction ($5), since these are few: a payload
-- may have been fired any number of times. OFFSET 0 keeps the planner from reversing that.
SELECT DISTINCT f.tenant, f.workflow, f.key, f.digest, f.run
FROM (
    SELECT id FROM tidemill.runs WHERE state IN {active_runs}
    UNION ALL
    SELECT unnest($5::text[])
) AS r
CROSS JOIN LATERAL (
    SELECT tenant, workflow, key, digest, run FROM tidemill.fires WHERE run = r.id AND digest IS NOT NULL OFFSET 0
) AS f
JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS asked (tenant, workflow, key, digest)
    USING (tenant, workflow, key, digest);

-- name: fires_within
-- Reads one entry of the index for each: something may have been fired about any number of times.
SELECT asked.tenant, asked.workflow, asked.dedup, found.at
FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[])
    AS asked (tenant, workflow, dedup, after, before)
CROSS JOIN LATERAL (
    SELECT at FROM tidemill.fires AS f
    WHERE f.tenant = asked.tenant AND f.workflow = asked.workflow AND f.dedup = asked.dedup
        AND f.at > asked.after AND f.at < asked.before
    ORDER BY at DESC LIMIT 1
) AS found;

-- name: runs_about
-- Searches from the runs that are active, or may be restarted in this transaction ($4), as above.
SELECT DISTINCT f.tenant, f.workflow, f.dedup, f.run
FROM (
    SELECT id FROM tidemill.runs WHERE state IN {active_runs}
    UNION ALL
    SELECT unnest($4::text[])
) AS r
CROSS JOIN LATERAL (
    SELECT tenant, workflow, dedup, run FROM tidemill.fires WHERE run = r.id AND dedup IS NOT NULL OFFSET 0
) AS f
JOIN unnest($1::text[], $2::text[], $3::text[]) AS asked (tenant, workflow, dedup) USING (tenant, workflow, dedup);

-- name: pool_usage
-- The used slots of some pools, and their sizes; NULL for those that the store has none of.
SELECT
    p.tenant,
    p.pool,
    (
        SELECT count(*) FROM tidemill.task_runs AS t
        WHERE t.state IN {claimed_tasks} AND t.pool IS NOT NULL AND t.tenant = p.tenant AND t.pool = p.pool
    ),
    (SELECT slots FROM tidemill.pools WHERE name = p.pool)
FROM unnest($1::text[], $2::text[]) AS p (tenant, pool);

-- name: insert_runs
-- The last parameter names the sender. PostgreSQL sends one notification per transaction, however many rows there are.
INSERT INTO tidemill.runs ({new_run_columns})
SELECT * FROM unnest({new_run_arrays}) WHERE TRUE /* expected */
RETURNING id, sequence, pg_notify('tidemill_runs', {run_sender});

-- name: update_runs
UPDATE tidemill.runs AS r SET
    revision = n.revision,
    clears = n.clears,
    {run_updates}
FROM unnest({run_update_arrays}) AS n ({run_update_columns})
WHERE r.id = n.id AND TRUE /* expected */
RETURNING pg_notify('tidemill_runs', {run_update_sender});

-- name: delete_task_runs
DELETE FROM tidemill.task_runs AS t
USING unnest($1::text[], $2::text[], $3::integer[]) AS removed (run, task, element)
WHERE t.run = removed.run AND t.task = removed.task AND t.element = removed.element;

-- name: insert_task_runs
-- The column `lease_until` of the rows holds the seconds of the lease. The parameter after the rows is the time it starts at.
INSERT INTO tidemill.task_runs ({task_columns})
SELECT {task_values} FROM unnest({task_arrays}) AS n ({task_columns}) WHERE TRUE /* expected */;

-- name: update_task_runs
UPDATE tidemill.task_runs AS t SET
    {task_updates}
FROM unnest({task_arrays}) AS n ({task_columns})
WHERE t.run = n.run AND t.task = n.task AND t.element = n.element AND TRUE /* expected */;

-- name: add_attempts
INSERT INTO tidemill.attempts ({attempt_columns})
SELECT * FROM unnest({attempt_arrays}) WHERE TRUE /* expected */
ON CONFLICT DO NOTHING;

-- name: delete_outputs
DELETE FROM tidemill.outputs WHERE (run, task) IN (SELECT * FROM unnest($1::text[], $2::text[]));

-- name: forget_steps
DELETE FROM tidemill.steps WHERE (run, task) IN (SELECT * FROM unnest($1::text[], $2::text[]));

-- name: upsert_outputs
INSERT INTO tidemill.outputs (run, task, element, value)
SELECT * FROM unnest($1::text[], $2::text[], $3::integer[], $4::bytea[]) WHERE TRUE /* expected */
ON CONFLICT (run, task, element) DO UPDATE SET value = excluded.value;

-- name: add_events
INSERT INTO tidemill.run_events (run, task, element, attempt, before, after, at, actor, reason)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::integer[], $4::integer[], $5::text[], $6::text[], $7::timestamptz[], $8::text[],
    $9::text[]
) WHERE TRUE /* expected */;

-- name: add_fires
INSERT INTO tidemill.fires (tenant, workflow, key, slot, digest, run, at, dedup)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[], $6::text[], $7::timestamptz[], $8::text[]
);

-- name: add_audit_entries
INSERT INTO tidemill.audit_entries ({audit_columns})
SELECT * FROM unnest(
    $1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]
) WHERE TRUE /* expected */;

-- name: has_claimable
-- Whether a claim would find anything, read without a lock: most claims of a busy store find that a pool is full.
WITH free_pools AS (
    SELECT requested.tenant, requested.pool
    FROM (SELECT DISTINCT tenant, pool FROM tidemill.task_runs WHERE state = {task_scheduled} AND pool IS NOT NULL)
        AS requested
    JOIN unnest($1::text[], $2::bigint[]) AS known (pool, slots) USING (pool)
    LEFT JOIN tidemill.pools AS stored ON stored.name = requested.pool
    WHERE (
        SELECT count(*) FROM tidemill.task_runs AS t
        WHERE t.state IN {claimed_tasks} AND t.pool IS NOT NULL
            AND t.tenant = requested.tenant AND t.pool = requested.pool
    ) < coalesce(stored.slots, known.slots)
)
SELECT EXISTS (
    SELECT FROM tidemill.task_runs AS t
    JOIN tidemill.runs AS r ON r.id = t.run
    WHERE t.state = {task_scheduled}
        AND t.executor = ANY($3::text[])
        AND (t.pool IS NULL OR (t.tenant, t.pool) IN (SELECT * FROM free_pools))
        AND (r.tenant, r.workflow, r.version) IN (SELECT * FROM unnest($4::text[], $5::text[], $6::text[]))
);

-- name: requested_pools
SELECT DISTINCT tenant, pool FROM tidemill.task_runs WHERE state = {task_scheduled} AND pool = ANY($1::text[]);

-- name: pick_task_runs
-- In the order of the index, so that only the picked rows are read.
SELECT t.run, t.task, t.element, t.tenant, t.pool, t.executor
FROM tidemill.task_runs AS t
JOIN tidemill.runs AS r ON r.id = t.run
WHERE t.state = {task_scheduled}
    AND t.executor = ANY($1::text[])
    AND ($2::text[] IS NULL OR t.queue = ANY($2::text[]))
    AND (t.pool IS NULL OR (t.tenant, t.pool) IN (SELECT * FROM unnest($3::text[], $4::text[])))
    AND (r.tenant, r.workflow, r.version) IN (SELECT * FROM unnest($5::text[], $6::text[], $7::text[]))
    AND (r.tenant, r.workflow, r.version, t.task) NOT IN (
        SELECT * FROM unnest($8::text[], $9::text[], $10::text[], $11::text[])
    )
    AND NOT EXISTS (
        SELECT FROM tidemill.workflow_pauses AS p WHERE p.tenant = r.tenant AND p.workflow = r.workflow
    )
ORDER BY t.priority DESC, t.since, t.run, t.task, t.element
LIMIT $12
FOR UPDATE OF t SKIP LOCKED;

-- name: claim_task_runs
UPDATE tidemill.task_runs AS t SET
    state = CASE WHEN t.executor = ANY($8::text[]) THEN {task_running} ELSE {task_queued} END,
    attempt = t.attempt + 1,
    tries = t.tries + 1,
    claimed_by = $4,
    lease_until = coalesce($7::timestamptz, clock_timestamp()) + $5::double precision * interval '1 second',
    since = $6::timestamptz,
    claimed_at = $6::timestamptz,
    started_at = CASE WHEN t.executor = ANY($8::text[]) THEN $6::timestamptz END,
    ended_at = NULL,
    reason = ''
FROM unnest($1::text[], $2::text[], $3::integer[]) AS picked (run, task, element)
WHERE t.run = picked.run AND t.task = picked.task AND t.element = picked.element
RETURNING t.*;

-- name: touch_runs
WITH locked AS MATERIALIZED (
    SELECT r.id, n.times
    FROM tidemill.runs AS r
    JOIN unnest($1::text[], $2::bigint[]) AS n (id, times) ON n.id = r.id
    ORDER BY r.id
    FOR UPDATE OF r
)
UPDATE tidemill.runs AS r SET revision = r.revision + locked.times
FROM locked
WHERE r.id = locked.id
RETURNING r.*, pg_notify('tidemill_runs', $3);

-- name: renew_leases
-- A locked row is being changed at this moment, perhaps by a transaction that waits for this one: its lease is renewed
-- next time.
WITH living AS MATERIALIZED (
    SELECT t.run, t.task, t.element, t.attempt
    FROM tidemill.task_runs AS t
    JOIN unnest($2::text[], $3::text[], $4::integer[], $5::integer[]) AS asked (run, task, element, attempt)
        USING (run, task, element, attempt)
    WHERE t.state IN {claimed_tasks} AND t.claimed_by = $1
), free AS MATERIALIZED (
    SELECT t.run, t.task, t.element
    FROM tidemill.task_runs AS t
    JOIN living USING (run, task, element, attempt)
    WHERE t.state IN {claimed_tasks} AND t.claimed_by = $1
    FOR UPDATE OF t SKIP LOCKED
), renewed AS (
    UPDATE tidemill.task_runs AS t
    SET lease_until = coalesce($7::timestamptz, clock_timestamp()) + $6::double precision * interval '1 second'
    FROM free
    WHERE t.run = free.run AND t.task = free.task AND t.element = free.element
)
SELECT run, task, element, attempt FROM living;

-- name: active_runs
SELECT id, revision FROM tidemill.runs WHERE state IN {active_runs} ORDER BY created_at, id;

-- name: runs
SELECT * FROM tidemill.runs WHERE id = ANY($1::text[]) ORDER BY created_at, id;

-- name: task_runs
SELECT * FROM tidemill.task_runs WHERE run = ANY($1::text[]) ORDER BY run, task, element;

-- name: find_runs
SELECT * FROM tidemill.runs
WHERE tenant = $1 AND (cardinality($2::text[]) = 0 OR state = ANY($2::text[]))
ORDER BY created_at DESC, id DESC
LIMIT $3;

-- name: find_runs_of_workflow
SELECT * FROM tidemill.runs
WHERE tenant = $1 AND (cardinality($2::text[]) = 0 OR state = ANY($2::text[])) AND workflow = $4
ORDER BY created_at DESC, id DESC
LIMIT $3;

-- name: find_runs_of_backfill
SELECT * FROM tidemill.runs
WHERE tenant = $1 AND (cardinality($2::text[]) = 0 OR state = ANY($2::text[])) AND backfill = $4
    AND ($5::text IS NULL OR workflow = $5)
ORDER BY created_at DESC, id DESC
LIMIT $3;

-- name: find_active_runs
SELECT * FROM tidemill.runs
WHERE state IN {active_runs}
    AND tenant = $1 AND state = ANY($2::text[]) AND ($4::text IS NULL OR workflow = $4)
ORDER BY created_at DESC, id DESC
LIMIT $3;

-- name: backfill_states
SELECT backfill, state, count(*) FROM tidemill.runs WHERE backfill = ANY($1::text[]) GROUP BY backfill, state;

-- name: task_run
SELECT * FROM tidemill.task_runs WHERE run = $1 AND task = $2 AND element = $3;

-- name: elements_from
SELECT * FROM tidemill.task_runs WHERE run = $1 AND task = $2 AND element >= $3
AND (cardinality($4::text[]) = 0 OR state = ANY($4::text[])) ORDER BY element LIMIT $5;

-- name: task_state_counts
SELECT run, task, state, count(*), max(element) >= 0, max(tries), min(started_at), max(ended_at) FROM tidemill.task_runs
WHERE run = ANY($1::text[]) GROUP BY run, task, state ORDER BY run, task, state COLLATE "C";

-- name: active_counts
SELECT workflow, count(*) FROM tidemill.runs WHERE state IN {active_runs} AND tenant = $1 GROUP BY workflow;

-- name: newest_runs
SELECT newest.* FROM unnest($2::text[]) AS asked (workflow)
CROSS JOIN LATERAL (
    SELECT {bare_run_columns} FROM tidemill.runs AS r WHERE r.tenant = $1 AND r.workflow = asked.workflow
    ORDER BY r.created_at DESC, r.id DESC LIMIT $3
) AS newest;

-- name: active_states
SELECT state, count(*) FROM tidemill.runs WHERE state IN {active_runs} AND tenant = $1 GROUP BY state;

-- name: oldest_active_runs
SELECT oldest.* FROM unnest($2::text[]) AS asked (state)
CROSS JOIN LATERAL (
    SELECT {bare_run_columns} FROM tidemill.runs AS r
    WHERE r.state IN {active_runs} AND r.tenant = $1 AND r.state = asked.state
    ORDER BY r.created_at, r.id LIMIT $3
) AS oldest
ORDER BY oldest.created_at, oldest.id;

-- name: ended_counts
-- Hour by hour from the index alone: to group all runs by an expression for the hour takes many times as long.
SELECT asked.hour, ended.state, ended.number FROM unnest($2::bigint[]) AS asked (hour)
CROSS JOIN LATERAL (
    SELECT r.state, count(*) AS number FROM tidemill.runs AS r
    WHERE r.state IN {ended_runs} AND r.tenant = $1
    AND r.ended_at >= to_timestamp(asked.hour * 3600) AND r.ended_at < to_timestamp((asked.hour + 1) * 3600)
    GROUP BY r.state
) AS ended
ORDER BY asked.hour, ended.state;

-- name: unresolved_runs
SELECT DISTINCT ON (workflow)
    workflow, id, coalesce(ended_at, created_at) AS ended_at, reason, count(*) OVER (PARTITION BY workflow) AS number
FROM tidemill.runs WHERE tenant = $1 AND {unresolved} ORDER BY workflow, sequence DESC;

-- name: dismiss_runs
WITH locked AS MATERIALIZED (
    SELECT id FROM tidemill.runs WHERE id = ANY($2::text[]) AND tenant = $1 AND {undismissed} ORDER BY id FOR UPDATE
)
UPDATE tidemill.runs AS r SET dismissed_at = $3, revision = r.revision + 1
FROM locked WHERE r.id = locked.id
RETURNING r.id;

-- name: first_failures
SELECT DISTINCT ON (run) run, task, reason FROM tidemill.task_runs
WHERE run = ANY($1::text[]) AND state = {task_failed} ORDER BY run, ended_at NULLS FIRST, task, element;

-- name: runs_started_by
SELECT caused_by, id FROM tidemill.runs
WHERE tenant = $1 AND origin IN ('firing', 'task', 'handler') AND caused_by = ANY($2::text[])
ORDER BY created_at, id;

-- name: waiting_tasks
(
    SELECT r.id, r.workflow, r.version, t.task, t.state, t.pool, t.executor, t.since
    FROM tidemill.task_runs AS t JOIN tidemill.runs AS r ON r.id = t.run
    WHERE t.state = {task_scheduled} AND t.since < $2 AND t.tenant = $1 LIMIT $4
)
UNION ALL
(
    SELECT r.id, r.workflow, r.version, t.task, t.state, t.pool, t.executor, t.since
    FROM tidemill.task_runs AS t JOIN tidemill.runs AS r ON r.id = t.run
    WHERE t.state = {task_deferred} AND t.since < $3 AND t.tenant = $1 AND (t.wake_at IS NULL OR t.wake_at < $3)
    LIMIT $4
);

-- name: expired_task_runs
SELECT * FROM tidemill.task_runs
WHERE state IN {claimed_tasks} AND lease_until <= coalesce($1::timestamptz, clock_timestamp())
ORDER BY lease_until, run, task, element
LIMIT $2;

-- name: claimed_task_runs
SELECT * FROM tidemill.task_runs
WHERE state IN {claimed_tasks} AND claimed_by = ANY($1::text[])
ORDER BY run, task, element;

-- name: claim_counts
SELECT claimed_by, count(*) FROM tidemill.task_runs
WHERE state IN {claimed_tasks} AND claimed_by IS NOT NULL
GROUP BY claimed_by;

-- name: orphans
SELECT r.id
FROM tidemill.runs AS r
WHERE r.state = {run_running}
    AND r.created_at <= $1
    AND NOT EXISTS (
        SELECT FROM tidemill.task_runs AS t
        WHERE t.run = r.id AND t.state IN {active_tasks}
    )
    AND NOT EXISTS (SELECT FROM tidemill.run_events AS e WHERE e.run = r.id AND e.at > $1)
ORDER BY r.created_at, r.id
LIMIT $2;

-- name: outputs
SELECT run, task, element, value FROM tidemill.outputs
WHERE run = $1 AND task = ANY($2::text[])
ORDER BY task, element;

-- name: attempts
SELECT {attempt_columns}
FROM tidemill.attempts WHERE run = $1
UNION ALL
SELECT
    run, task, element, attempt, tries, executor, coalesce(claimed_by, ''), coalesce(claimed_at, since), started_at,
    NULL, '', NULL, NULL
FROM tidemill.task_runs WHERE run = $1 AND state IN {claimed_tasks}
ORDER BY task, element, attempt;

-- name: events
SELECT run, task, element, attempt, before, after, at, actor, reason FROM tidemill.run_events WHERE run = $1 ORDER BY id;

-- name: events_after
SELECT e.id, r.tenant, r.workflow, e.run, e.task, e.element, e.attempt, e.before, e.after, e.at, e.actor, e.reason
FROM tidemill.run_events AS e
JOIN tidemill.runs AS r ON r.id = e.run
WHERE e.id > $1 AND e.id <= $2
ORDER BY e.id
LIMIT $3;

-- name: last_event
-- Also a number whose event is not committed yet.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tidemill.run_events_id_seq;

-- name: event_writers
-- The transactions that write events at the moment: a writer holds this lock from before its first number to its end.
SELECT array(
    SELECT virtualtransaction FROM pg_catalog.pg_locks
    WHERE locktype = 'relation' AND relation = 'tidemill.run_events'::regclass AND mode = 'RowExclusiveLock'
        AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
);

-- name: fired_slots
SELECT slot FROM tidemill.fires
WHERE tenant = $1 AND workflow = $2 AND key = $3 AND slot BETWEEN $4 AND $5;

-- name: fired_slots_with_runs
SELECT found.workflow, found.key, found.slot, found.run, r.state
FROM unnest($2::text[], $3::text[]) AS asked (workflow, key)
CROSS JOIN LATERAL (
    SELECT f.workflow, f.key, f.slot, f.run FROM tidemill.fires AS f
    WHERE f.tenant = $1 AND f.workflow = asked.workflow AND f.key = asked.key AND f.slot BETWEEN $4 AND $5
    ORDER BY f.slot LIMIT $6
) AS found
LEFT JOIN tidemill.runs AS r ON r.id = found.run
ORDER BY found.slot;

-- name: fired_run
SELECT run FROM tidemill.fires WHERE tenant = $1 AND workflow = $2 AND key = $3 AND slot = $4;

-- name: tenants
-- Skips from one tenant to the next, however many runs each has.
WITH RECURSIVE found (tenant) AS (
    SELECT min(tenant) FROM tidemill.runs
    UNION ALL
    SELECT (SELECT min(r.tenant) FROM tidemill.runs AS r WHERE r.tenant > found.tenant)
    FROM found WHERE found.tenant IS NOT NULL
)
SELECT tenant FROM found WHERE tenant IS NOT NULL;

-- name: pick_ended_runs
SELECT id FROM tidemill.runs
WHERE tenant = $1 AND state IN {ended_runs} AND ended_at < $2
ORDER BY ended_at, id
LIMIT $3
FOR UPDATE SKIP LOCKED;

-- name: locked_runs
-- Those of the runs that another transaction is about to change.
WITH free AS MATERIALIZED (
    SELECT run, task, element FROM tidemill.task_runs WHERE run = ANY($1::text[]) FOR UPDATE SKIP LOCKED
)
SELECT DISTINCT run FROM tidemill.task_runs
WHERE run = ANY($1::text[]) AND (run, task, element) NOT IN (SELECT run, task, element FROM free);

-- name: delete_runs
WITH a AS (DELETE FROM tidemill.task_runs WHERE run = ANY($1::text[])),
    b AS (DELETE FROM tidemill.attempts WHERE run = ANY($1::text[])),
    c AS (DELETE FROM tidemill.outputs WHERE run = ANY($1::text[])),
    d AS (DELETE FROM tidemill.run_events WHERE run = ANY($1::text[])),
    e AS (DELETE FROM tidemill.notes WHERE run = ANY($1::text[])),
    f AS (DELETE FROM tidemill.logs WHERE run = ANY($1::text[])),
    i AS (DELETE FROM tidemill.waits WHERE run = ANY($1::text[])),
    h AS (DELETE FROM tidemill.steps WHERE run = ANY($1::text[])),
    g AS (DELETE FROM tidemill.fires WHERE run = ANY($1::text[]) AND slot IS NULL)
DELETE FROM tidemill.runs WHERE id = ANY($1::text[]);

-- name: upsert_note
INSERT INTO tidemill.notes (run, is_of_task, task, text, at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (run, is_of_task, task) DO UPDATE SET text = excluded.text, at = excluded.at;

-- name: delete_note
DELETE FROM tidemill.notes WHERE run = $1 AND is_of_task = $2 AND task = $3;

-- name: notes
SELECT run, is_of_task, task, text, at FROM tidemill.notes WHERE run = $1 ORDER BY is_of_task, task;

-- name: notes_on_runs
SELECT run, text FROM tidemill.notes WHERE run = ANY($1::text[]) AND NOT is_of_task;

-- name: delete_loaded_versions_of
DELETE FROM tidemill.loaded_versions WHERE owner = ANY($1::text[]);

-- name: upsert_owner
INSERT INTO tidemill.owners (id, host, boot, pid, started, at, kind, name, labels, concurrency, beat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, coalesce($11::timestamptz, clock_timestamp()))
ON CONFLICT (id) DO UPDATE SET
    host = excluded.host, boot = excluded.boot, pid = excluded.pid, started = excluded.started, at = excluded.at,
    kind = excluded.kind, name = excluded.name, labels = excluded.labels, concurrency = excluded.concurrency,
    beat_at = excluded.beat_at;

-- name: owners
SELECT id, host, boot, pid, started, at, kind, name, labels, concurrency, beat_at,
    extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - beat_at)::double precision AS age
FROM tidemill.owners ORDER BY at, id;

-- name: delete_owners
DELETE FROM tidemill.owners WHERE id = ANY($1::text[]);

-- name: current_lease
SELECT holder, epoch FROM tidemill.leases WHERE name = $1 AND holder IS NOT NULL;

-- name: lease
SELECT epoch, holder, expires_at <= coalesce($2::timestamptz, clock_timestamp()) AS has_expired,
    backend IN (SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()) AS is_connected
FROM tidemill.leases WHERE name = $1;

-- name: acquire_lease
-- The conditions are checked on the row once it is locked: no renewal slips in between.
INSERT INTO tidemill.leases AS known (name, epoch, holder, expires_at, backend)
VALUES (
    $1, 1, $2, coalesce($6::timestamptz, clock_timestamp()) + $3::double precision * interval '1 second',
    pg_backend_pid()
)
ON CONFLICT (name) DO UPDATE SET
    epoch = known.epoch + 1,
    holder = excluded.holder,
    expires_at = coalesce($6::timestamptz, clock_timestamp()) + $3::double precision * interval '1 second',
    backend = excluded.backend
WHERE known.epoch = $4 AND ($5::boolean OR known.expires_at <= coalesce($6::timestamptz, clock_timestamp()))
RETURNING epoch;

-- name: take_over_lease
UPDATE tidemill.leases SET
    epoch = epoch + 1,
    holder = $2,
    expires_at = coalesce($6::timestamptz, clock_timestamp()) + $3::double precision * interval '1 second',
    backend = pg_backend_pid()
WHERE name = $1 AND epoch = $4 AND expires_at = $5::timestamptz AND holder IS NOT NULL
RETURNING epoch;

-- name: last_renewal
SELECT holder, epoch, expires_at FROM tidemill.leases WHERE name = $1 AND holder IS NOT NULL;

-- name: renew_lease
UPDATE tidemill.leases SET
    expires_at = coalesce($4::timestamptz, clock_timestamp()) + $3::double precision * interval '1 second',
    backend = pg_backend_pid()
WHERE name = $1 AND epoch = $2 AND holder IS NOT NULL
RETURNING epoch;

-- name: release_lease
UPDATE tidemill.leases SET holder = NULL WHERE name = $1 AND epoch = $2;

-- name: try_lock
SELECT pg_try_advisory_lock(hashtext('tidemill lease'), hashtext($1));

-- name: await_lock
SELECT pg_advisory_lock(hashtext('tidemill lease'), hashtext($1));

-- name: unlock
SELECT pg_advisory_unlock(hashtext('tidemill lease'), hashtext($1));

-- name: terminate_holder
-- Only the session that the row names, and only while it holds the lock: another session is about to take the lease.
SELECT pg_terminate_backend(pid)
FROM pg_locks
JOIN tidemill.leases ON backend = pid
WHERE name = $1 AND epoch = $2 AND pid <> pg_backend_pid()
    AND locktype = 'advisory' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND objsubid = 2 -- of two numbers
    AND classid::bigint = hashtext('tidemill lease')::bigint & 4294967295
    AND objid::bigint = hashtext($1)::bigint & 4294967295;

-- name: backend_pid
SELECT pg_backend_pid();

-- name: set_idle_timeout
SELECT set_config('idle_session_timeout', $1, false);
