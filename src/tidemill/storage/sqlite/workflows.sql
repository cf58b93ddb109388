-- Statements about workflows. Lists are passed as JSON, so that the text of a statement does not depend on their length.
-- Names in braces are replaced when the statements are loaded: states by `storage.state_sets`, columns by `run_rows`.

-- name: holds_lease
SELECT EXISTS (SELECT 1 FROM leases WHERE name = ? AND epoch = ?);

-- name: add_run
INSERT INTO runs ({new_run_columns}, revision, clears, sequence)
SELECT {new_run_parameters}, 0, 0, (SELECT coalesce(max(sequence), 0) + 1 FROM runs)
WHERE NOT EXISTS (SELECT 1 FROM workflow_pauses WHERE tenant = ? AND workflow = ?)
ON CONFLICT (id) DO NOTHING
RETURNING sequence;

-- name: has_older_queued_run
SELECT EXISTS (
    SELECT 1 FROM runs INDEXED BY runs_queued
    WHERE tenant = ? AND workflow = ? AND sequence < ? AND state = {run_queued} AND backfill IS NULL
    AND id NOT IN (SELECT value FROM json_each(?))
);

-- name: is_workflow_paused
SELECT EXISTS (SELECT 1 FROM workflow_pauses WHERE tenant = ? AND workflow = ?);

-- name: advance_run
-- Only if the run is unchanged since it was read and the lease is current: then no step of the change can be refused.
UPDATE runs SET revision = revision + 1
WHERE id = ? AND revision = ? AND state = ? AND clears = ?
AND EXISTS (SELECT 1 FROM leases WHERE name = ? AND epoch = ?);

-- name: touch_run
UPDATE runs SET revision = revision + 1, clears = clears + ?
WHERE id = ?
RETURNING revision, tenant;

-- name: touch_expected_run
UPDATE runs SET revision = revision + 1, clears = clears + ?
WHERE id = ? AND state = ? AND clears = ?
RETURNING revision, tenant;

-- name: update_run
UPDATE runs SET {run_updates} WHERE id = ?;

-- name: delete_expected_task
DELETE FROM task_runs
WHERE run = ? AND task = ? AND element = ? AND state = ? AND attempt = ? AND claimed_by IS ?;

-- name: update_progress
UPDATE task_runs SET {progress_updates}
WHERE run = ? AND task = ? AND element = ? AND state = ? AND attempt = ? AND claimed_by IS ?;

-- name: update_task
UPDATE task_runs SET {task_updates}
WHERE run = ? AND task = ? AND element = ? AND state = ? AND attempt = ? AND claimed_by IS ?
AND lease_until IS coalesce(?, lease_until);

-- name: add_task
INSERT INTO task_runs (tenant, {task_columns}) VALUES (?, {task_parameters})
ON CONFLICT (run, task, element) DO NOTHING;

-- name: add_attempt
INSERT INTO attempts ({attempt_columns}, value) VALUES ({attempt_parameters}, ?)
ON CONFLICT DO NOTHING;

-- name: delete_outputs
UPDATE attempts SET value = NULL WHERE run = ? AND task = ? AND value IS NOT NULL;

-- name: forget_steps
DELETE FROM steps WHERE run = ? AND task = ?;

-- name: add_history
INSERT INTO run_events (run, revision, at, actor, events, sequence)
VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(sequence), 0) FROM run_events) + ?);

-- name: is_digest_active
-- Searches from the active runs, which are few: a payload may have been fired any number of times.
SELECT EXISTS (
    SELECT 1
    FROM runs INDEXED BY runs_active CROSS JOIN fires INDEXED BY fires_by_run ON fires.run = runs.id
    WHERE runs.state IN {active_runs}
    AND fires.tenant = ? AND fires.workflow = ? AND fires.key = ? AND fires.digest = ?
);

-- name: add_fire
INSERT INTO fires (tenant, workflow, key, run, at, slot, digest, dedup) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: is_dedup_active
-- Searches from the active runs, as above.
SELECT EXISTS (
    SELECT 1
    FROM runs INDEXED BY runs_active CROSS JOIN fires INDEXED BY fires_deduplicated_by_run ON fires.run = runs.id
    WHERE runs.state IN {active_runs}
    AND fires.tenant = ? AND fires.workflow = ? AND fires.dedup = ? AND fires.run <> ?
);

-- name: is_cooling_down
SELECT EXISTS (
    SELECT 1 FROM fires WHERE tenant = ? AND workflow = ? AND dedup = ? AND run <> ? AND at > ? AND at < ?
);

-- name: pool_usage
-- The used slots of a pool, and its size; NULL if the store has none.
SELECT count(*), (SELECT slots FROM pools WHERE name = :pool) FROM task_runs
WHERE tenant = :tenant AND pool = :pool AND pool IS NOT NULL AND state IN {claimed_tasks};

-- name: claimable
-- In the order of the index, and joined from there: a claim reads no further than it has free slots.
SELECT task_runs.executor, task_runs.tenant, task_runs.pool, runs.id, task_runs.task, task_runs.element
FROM task_runs INDEXED BY task_runs_scheduled CROSS JOIN runs ON runs.id = task_runs.run
WHERE task_runs.state = {task_scheduled}
AND task_runs.executor IN (SELECT value FROM json_each(?))
AND (? IS NULL OR task_runs.queue IN (SELECT value FROM json_each(?)))
AND (task_runs.pool IS NULL OR task_runs.pool IN (SELECT value FROM json_each(?)))
AND (runs.tenant, runs.workflow, runs.version) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?)
)
AND (runs.tenant, runs.workflow, runs.version, task_runs.task) NOT IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
        json_extract(value, '$[3]')
    FROM json_each(?)
)
AND (runs.tenant, runs.workflow) NOT IN (SELECT tenant, workflow FROM workflow_pauses)
ORDER BY task_runs.priority DESC, task_runs.since, task_runs.run, task_runs.task, task_runs.element;

-- name: claim_task
UPDATE task_runs SET
    state = CASE WHEN :starts_now THEN {task_running} ELSE {task_queued} END,
    attempt = attempt + 1, tries = tries + 1, claimed_by = :owner, lease_until = :lease_until, since = :at,
    claimed_at = :at, started_at = CASE WHEN :starts_now THEN :at END, ended_at = NULL, reason = ''
WHERE run = :run AND task = :task AND element = :element
RETURNING {task_columns};

-- name: renew_task_lease
UPDATE task_runs SET lease_until = ?
WHERE run = ? AND task = ? AND element = ? AND attempt = ? AND claimed_by = ? AND state IN {claimed_tasks};

-- name: active_runs
SELECT id, revision FROM runs WHERE state IN {active_runs} ORDER BY created_at, id;

-- name: runs_of
SELECT {run_columns} FROM runs WHERE id IN (SELECT value FROM json_each(?)) ORDER BY created_at, id;

-- name: tasks_of
SELECT {task_columns} FROM task_runs WHERE run IN (SELECT value FROM json_each(?)) ORDER BY run, task, element;

-- name: task_run
SELECT {task_columns} FROM task_runs WHERE run = ? AND task = ? AND element = ?;

-- name: elements_from
SELECT {task_columns} FROM task_runs WHERE run = :run AND task = :task AND element >= :element
AND (json_array_length(:states) = 0 OR state IN (SELECT value FROM json_each(:states))) ORDER BY element LIMIT :limit;

-- name: task_state_counts
SELECT run, task, state, count(*), max(element) >= 0, max(tries), min(started_at), max(ended_at) FROM task_runs
WHERE run IN (SELECT value FROM json_each(?)) GROUP BY run, task, state ORDER BY run, task, state;

-- name: find_active_runs
-- The plus keeps the planner off the index of all runs of a tenant.
SELECT {run_columns} FROM runs
WHERE state IN {active_runs} AND +tenant = :tenant AND (:workflow IS NULL OR workflow = :workflow)
AND (:backfill IS NULL OR +backfill = :backfill) AND state IN (SELECT value FROM json_each(:states))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: find_runs_of_backfill
SELECT {run_columns} FROM runs
WHERE backfill = :backfill AND +tenant = :tenant AND (:workflow IS NULL OR workflow = :workflow)
AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: find_runs_of_workflow
SELECT {run_columns} FROM runs
WHERE tenant = :tenant AND workflow = :workflow
AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: find_runs_of_tenant
SELECT {run_columns} FROM runs
WHERE tenant = :tenant AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: backfill_states
SELECT backfill, state, count(*) FROM runs WHERE backfill IN (SELECT value FROM json_each(?)) GROUP BY backfill, state;

-- name: active_counts
SELECT workflow, count(*) FROM runs INDEXED BY runs_active
WHERE state IN {active_runs} AND tenant = ? GROUP BY workflow;

-- name: newest_runs
SELECT {bare_run_columns} FROM runs WHERE id IN (
    SELECT found.id FROM json_each(:workflows) AS asked
    JOIN runs AS found ON found.id IN (
        SELECT id FROM runs WHERE tenant = :tenant AND workflow = asked.value
        ORDER BY created_at DESC, id DESC LIMIT :recent
    )
);

-- name: active_states
SELECT state, count(*) FROM runs INDEXED BY runs_active WHERE state IN {active_runs} AND tenant = ? GROUP BY state;

-- name: oldest_active_runs
SELECT {bare_run_columns} FROM runs INDEXED BY runs_active WHERE state IN {active_runs} AND tenant = ? AND state = ?
ORDER BY created_at, id LIMIT ?;

-- name: ended_counts
-- From the index alone. Of one hour: to group by an expression for the hour takes twice as long.
SELECT state, count(*) FROM runs INDEXED BY runs_by_end
WHERE tenant = ? AND ended_at >= ? AND ended_at < ? AND ended_at IS NOT NULL AND state IN {ended_runs} GROUP BY state;

-- name: unresolved_runs
-- The columns are those of the row with the maximum.
SELECT workflow, id, coalesce(ended_at, created_at), reason, count(*), max(sequence)
FROM runs INDEXED BY runs_unresolved WHERE tenant = ? AND {unresolved} GROUP BY workflow ORDER BY workflow;

-- name: dismiss_run
UPDATE runs SET dismissed_at = ?, revision = revision + 1 WHERE id = ? AND tenant = ? AND {undismissed};

-- name: first_failures
SELECT run, task, reason FROM (
    SELECT run, task, reason, row_number() OVER (PARTITION BY run ORDER BY ended_at, task, element) AS number
    FROM task_runs WHERE run IN (SELECT value FROM json_each(?)) AND state = {task_failed}
) WHERE number = 1;

-- name: runs_started_by
SELECT caused_by, id FROM runs INDEXED BY runs_by_cause
WHERE tenant = ? AND origin IN ('firing', 'task', 'handler') AND caused_by IN (SELECT value FROM json_each(?))
ORDER BY created_at, id;

-- name: waiting_tasks
SELECT * FROM (
    SELECT r.id, r.workflow, r.version, t.task, t.state, t.pool, t.executor, t.since
    FROM task_runs AS t INDEXED BY task_runs_scheduled CROSS JOIN runs AS r ON r.id = t.run
    WHERE t.state = {task_scheduled} AND t.since < :scheduled AND t.tenant = :tenant LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT r.id, r.workflow, r.version, t.task, t.state, t.pool, t.executor, t.since
    FROM task_runs AS t INDEXED BY task_runs_deferred CROSS JOIN runs AS r ON r.id = t.run
    WHERE t.state = {task_deferred} AND t.since < :deferred AND t.tenant = :tenant
        AND (t.wake_at IS NULL OR t.wake_at < :deferred)
    LIMIT :limit
);

-- name: expired_tasks
SELECT {task_columns} FROM task_runs WHERE state IN {claimed_tasks} AND lease_until <= ?
ORDER BY lease_until, run, task, element LIMIT ?;

-- name: claimed_tasks
SELECT {task_columns} FROM task_runs INDEXED BY task_runs_claimed
WHERE state IN {claimed_tasks} AND claimed_by IN (SELECT value FROM json_each(?))
ORDER BY run, task, element;

-- name: claim_counts
SELECT claimed_by, count(*) FROM task_runs INDEXED BY task_runs_claimed
WHERE state IN {claimed_tasks} AND claimed_by IS NOT NULL
GROUP BY claimed_by;

-- name: orphans
SELECT id FROM runs
WHERE state IN {active_runs} AND state = {run_running} AND created_at <= ?
AND NOT EXISTS (
    SELECT 1 FROM task_runs WHERE run = runs.id
    AND state IN {active_tasks}
)
AND NOT EXISTS (SELECT 1 FROM run_events WHERE run = runs.id AND at > ?)
ORDER BY created_at, id LIMIT ?;

-- name: outputs_of
-- The last of several attempts that returned something.
SELECT run, task, element, attempts.value, max(attempt) FROM attempts
WHERE run = ? AND task IN (SELECT value FROM json_each(?)) AND attempts.value IS NOT NULL
GROUP BY task, element ORDER BY task, element;

-- name: attempts_of
SELECT {attempt_columns} FROM attempts WHERE run = ?
UNION ALL
SELECT
    run, task, element, attempt, tries, executor, coalesce(claimed_by, ''), coalesce(claimed_at, since, 0), started_at,
    NULL, '', NULL, NULL
FROM task_runs WHERE run = ? AND state IN {claimed_tasks}
ORDER BY 2, 3, 4;

-- name: events_of
SELECT run, at, actor, events FROM run_events WHERE run = ? ORDER BY revision;

-- name: events_after
SELECT e.sequence, r.tenant, r.workflow, e.run, e.at, e.actor, e.events
FROM run_events AS e JOIN runs AS r ON r.id = e.run
WHERE e.sequence > ? ORDER BY e.sequence LIMIT ?;

-- name: last_event
SELECT coalesce(max(sequence), 0) FROM run_events;

-- name: fired_slots
SELECT slot FROM fires
WHERE tenant = ? AND workflow = ? AND key = ? AND slot BETWEEN ? AND ? AND slot IS NOT NULL;

-- name: fired_slots_with_runs
SELECT found.workflow, found.key, found.slot, found.run, runs.state FROM json_each(:schedules) AS asked
CROSS JOIN fires AS found ON found.rowid IN (
    SELECT rowid FROM fires INDEXED BY fires_by_slot
    WHERE tenant = :tenant AND workflow = asked.value ->> 0 AND key = asked.value ->> 1
    AND slot BETWEEN :start AND :end AND slot IS NOT NULL ORDER BY slot LIMIT :limit
) LEFT JOIN runs ON runs.id = found.run ORDER BY found.slot;

-- name: fired_run
SELECT run FROM fires WHERE tenant = ? AND workflow = ? AND key = ? AND slot = ?;

-- name: tenants
-- Skips from one tenant to the next, however many runs each has.
WITH RECURSIVE found (tenant) AS (
    SELECT min(tenant) FROM runs
    UNION ALL
    SELECT (SELECT min(tenant) FROM runs WHERE tenant > found.tenant) FROM found WHERE found.tenant IS NOT NULL
)
SELECT tenant FROM found WHERE tenant IS NOT NULL;

-- name: ended_runs
SELECT id FROM runs
WHERE tenant = ? AND ended_at IS NOT NULL AND ended_at < ? AND +state IN {ended_runs}
ORDER BY ended_at, id LIMIT ?;

-- name: delete_run
DELETE FROM runs WHERE id = ?;

-- name: delete_tasks
DELETE FROM task_runs WHERE run = ?;

-- name: delete_attempts
DELETE FROM attempts WHERE run = ?;

-- name: delete_events
DELETE FROM run_events WHERE run = ?;

-- name: delete_notes
DELETE FROM notes WHERE run = ?;

-- name: delete_logs
DELETE FROM logs WHERE run = ?;

-- name: delete_steps
DELETE FROM steps WHERE run = ?;

-- name: delete_waits
DELETE FROM waits WHERE run = ?;

-- name: delete_fires
DELETE FROM fires WHERE run = ? AND slot IS NULL;

-- name: delete_note
DELETE FROM notes WHERE run = ? AND task IS ?;

-- name: add_note
INSERT INTO notes (run, task, text, at) VALUES (?, ?, ?, ?);

-- name: notes_of
SELECT run, task, text, at FROM notes WHERE run = ? ORDER BY task;

-- name: notes_on_runs
SELECT run, text FROM notes WHERE run IN (SELECT value FROM json_each(?)) AND task IS NULL;

-- name: delete_loaded_versions_of
DELETE FROM loaded_versions WHERE owner = ?;

-- name: acquire_lease
INSERT INTO leases (name, holder, epoch, until) VALUES (:name, :holder, 1, :until)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = epoch + 1, until = excluded.until
WHERE holder IS NULL OR until <= :now OR holder IN (SELECT value FROM json_each(:dead))
RETURNING epoch;

-- name: take_over_lease
UPDATE leases SET holder = ?, epoch = epoch + 1, until = ?
WHERE name = ? AND holder = ? AND epoch = ? AND until = ?
RETURNING epoch;

-- name: last_renewal
SELECT holder, epoch, until FROM leases WHERE name = ? AND holder IS NOT NULL;

-- name: renew_lease
UPDATE leases SET until = ? WHERE name = ? AND epoch = ? AND holder IS NOT NULL;

-- name: release_lease
UPDATE leases SET holder = NULL WHERE name = ? AND epoch = ?;

-- name: current_lease
SELECT holder, epoch FROM leases WHERE name = ? AND holder IS NOT NULL;

-- name: upsert_owner
INSERT INTO owners (id, host, boot, pid, started, at, kind, name, labels, concurrency, beat_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    host = excluded.host,
    boot = excluded.boot,
    pid = excluded.pid,
    started = excluded.started,
    at = excluded.at,
    kind = excluded.kind,
    name = excluded.name,
    labels = excluded.labels,
    concurrency = excluded.concurrency,
    beat_at = excluded.beat_at;

-- name: all_owners
SELECT id, host, boot, pid, started, at, kind, name, labels, concurrency, beat_at FROM owners ORDER BY at, id;

-- name: delete_owner
DELETE FROM owners WHERE id = ?;
