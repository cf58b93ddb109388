-- Workflows: runs with everything that belongs to them, fires, and small tables.
-- Times are microseconds since 1970 in UTC.

CREATE TABLE runs (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    state TEXT NOT NULL,
    params BLOB NOT NULL,
    origin TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    slot INTEGER,
    started_at INTEGER,
    ended_at INTEGER,
    reason TEXT NOT NULL,
    max_active INTEGER NOT NULL,
    backfill TEXT,
    revision INTEGER NOT NULL,
    clears INTEGER NOT NULL
) STRICT;

-- Active runs only: the leader scans this index and nothing else, however many runs have ended.
-- Without the revision: every change of a run would have to write to the index.
CREATE INDEX runs_active ON runs (created_at, id, state) WHERE state IN ('queued', 'running');

CREATE INDEX runs_by_workflow ON runs (tenant, workflow, created_at, id);

CREATE INDEX runs_by_tenant ON runs (tenant, created_at, id);

CREATE INDEX runs_by_backfill ON runs (backfill, created_at, id) WHERE backfill IS NOT NULL;

CREATE INDEX runs_by_end ON runs (tenant, ended_at, id) WHERE ended_at IS NOT NULL;

-- `tenant` is the run's: pools are counted by it.
CREATE TABLE task_runs (
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    element INTEGER NOT NULL, -- -1 unless it is one element of a mapped task
    tenant TEXT NOT NULL,
    state TEXT NOT NULL,
    variant TEXT,
    size INTEGER,
    wake_at INTEGER,
    since INTEGER,
    attempt INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    recoveries INTEGER NOT NULL,
    deferrals INTEGER NOT NULL,
    claimed_by TEXT,
    claimed_at INTEGER,
    lease_until INTEGER,
    started_at INTEGER,
    ended_at INTEGER,
    reason TEXT NOT NULL,
    pool TEXT,
    priority INTEGER NOT NULL,
    queue TEXT NOT NULL,
    executor TEXT NOT NULL,
    PRIMARY KEY (run, task, element)
) STRICT, WITHOUT ROWID;

-- In the order in which task runs are claimed.
CREATE INDEX task_runs_scheduled ON task_runs (priority DESC, since, run, task, element) WHERE state = 'scheduled';

CREATE INDEX task_runs_claimed ON task_runs (lease_until, claimed_by) WHERE state IN ('queued', 'running');

CREATE INDEX task_runs_in_pools ON task_runs (tenant, pool)
WHERE pool IS NOT NULL AND state IN ('queued', 'running');

-- Attempts that have ended. The current attempt of a claimed task run is in its row.
CREATE TABLE attempts (
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    element INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    number INTEGER NOT NULL,
    executor TEXT NOT NULL,
    worker TEXT NOT NULL,
    claimed_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    outcome TEXT NOT NULL,
    exit INTEGER,
    error BLOB, -- JSON
    value BLOB, -- the return value, msgpack; last, so that other columns are read without a large value
    PRIMARY KEY (run, task, element, attempt)
) STRICT, WITHOUT ROWID;

-- The history, one row for each change of a run.
CREATE TABLE run_events (
    run TEXT NOT NULL,
    revision INTEGER NOT NULL, -- the run's, after the change
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    events TEXT NOT NULL, -- JSON: one list per event, in order
    PRIMARY KEY (run, revision)
) STRICT, WITHOUT ROWID;

-- Fires outlive their runs, so that no slot is fired twice.
CREATE TABLE fires (
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    key TEXT NOT NULL,
    run TEXT NOT NULL,
    at INTEGER NOT NULL,
    slot INTEGER,
    digest TEXT
) STRICT;

CREATE UNIQUE INDEX fires_by_slot ON fires (tenant, workflow, key, slot) WHERE slot IS NOT NULL;

-- Fires are searched by run: whether it is active, and when it is deleted. Fires that only record a slot are not.
CREATE INDEX fires_by_run ON fires (run) WHERE slot IS NULL OR digest IS NOT NULL;

CREATE TABLE workflow_versions (
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    spec BLOB NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, workflow, version)
) STRICT;

CREATE TABLE schedules (
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    key TEXT NOT NULL,
    rule TEXT NOT NULL,
    last INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    PRIMARY KEY (tenant, workflow, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_pauses (
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    PRIMARY KEY (tenant, workflow)
) STRICT, WITHOUT ROWID;

-- A lease without a holder keeps its row, so that no epoch is used twice.
CREATE TABLE leases (
    name TEXT NOT NULL PRIMARY KEY,
    holder TEXT,
    epoch INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE owners (
    id TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE notes (
    run TEXT NOT NULL,
    task TEXT, -- NULL: about the run itself
    text TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

CREATE INDEX notes_by_run ON notes (run, task);

CREATE TABLE logs (
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    element INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    number INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (run, task, element, attempt, number)
) STRICT;

CREATE TABLE backfills (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    run_limit INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    cancelled_at INTEGER
) STRICT, WITHOUT ROWID;
