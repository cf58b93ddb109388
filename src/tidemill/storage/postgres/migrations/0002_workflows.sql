-- Workflows. Tables whose rows change often leave free space on their pages, so that a new row version needs no new
-- index entries.

CREATE TABLE tidemill.runs (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    params bytea NOT NULL,
    origin text NOT NULL,
    created_at timestamptz NOT NULL,
    slot timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    reason text NOT NULL,
    max_active integer NOT NULL,
    backfill text COLLATE "C",
    revision bigint NOT NULL,
    clears bigint NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX runs_active ON tidemill.runs (created_at, id) WHERE state IN ('queued', 'running');
CREATE INDEX runs_ended ON tidemill.runs (tenant, ended_at, id) WHERE state IN ('success', 'failed', 'cancelled');
CREATE INDEX runs_by_tenant ON tidemill.runs (tenant, created_at, id);
CREATE INDEX runs_by_workflow ON tidemill.runs (tenant, workflow, created_at, id);
CREATE INDEX runs_by_backfill ON tidemill.runs (backfill, created_at, id) WHERE backfill IS NOT NULL;

-- `tenant` is the run's: pools are counted by it.
CREATE TABLE tidemill.task_runs (
    run text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    element integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    variant text,
    size bigint,
    wake_at timestamptz,
    since timestamptz,
    attempt integer NOT NULL,
    tries integer NOT NULL,
    failures integer NOT NULL,
    recoveries integer NOT NULL,
    deferrals integer NOT NULL,
    claimed_by text COLLATE "C",
    claimed_at timestamptz,
    lease_until timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    reason text NOT NULL,
    pool text COLLATE "C",
    priority integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    executor text COLLATE "C" NOT NULL,
    PRIMARY KEY (run, task, element)
) WITH (fillfactor = 70);

CREATE INDEX task_runs_to_claim ON tidemill.task_runs (priority DESC, since, run, task, element)
    WHERE state = 'scheduled';
-- Not by lease: every renewal would have to write to the index. Few task runs are claimed at a time.
CREATE INDEX task_runs_claimed ON tidemill.task_runs (claimed_by) WHERE state IN ('queued', 'running');
CREATE INDEX task_runs_in_pools ON tidemill.task_runs (tenant, pool)
    WHERE state IN ('queued', 'running') AND pool IS NOT NULL;

-- Attempts that have ended. The current attempt of a claimed task run is in its row.
CREATE TABLE tidemill.attempts (
    run text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    element integer NOT NULL,
    attempt integer NOT NULL,
    number integer NOT NULL,
    executor text NOT NULL,
    worker text NOT NULL,
    claimed_at timestamptz NOT NULL,
    started_at timestamptz,
    ended_at timestamptz,
    outcome text NOT NULL,
    exit integer,
    error bytea, -- JSON
    PRIMARY KEY (run, task, element, attempt)
);

CREATE TABLE tidemill.outputs (
    run text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    element integer NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (run, task, element)
);

CREATE TABLE tidemill.run_events (
    id bigserial PRIMARY KEY,
    run text COLLATE "C" NOT NULL,
    task text COLLATE "C",
    element integer NOT NULL,
    attempt integer NOT NULL,
    before text NOT NULL,
    after text NOT NULL,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL
);

CREATE INDEX run_events_by_run ON tidemill.run_events (run, id);

-- Fires outlive their runs, so that no slot is fired twice.
CREATE TABLE tidemill.fires (
    tenant text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    slot timestamptz,
    digest text COLLATE "C",
    run text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL
);

CREATE UNIQUE INDEX fires_by_slot ON tidemill.fires (tenant, workflow, key, slot) WHERE slot IS NOT NULL;
-- Fires are searched by run: whether it is active, and when it is deleted. Fires that only record a slot are not.
CREATE INDEX fires_by_run ON tidemill.fires (run) WHERE slot IS NULL OR digest IS NOT NULL;

CREATE TABLE tidemill.workflow_versions (
    tenant text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    spec bytea NOT NULL,
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, workflow, version)
);

CREATE TABLE tidemill.schedules (
    tenant text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    rule text NOT NULL,
    last timestamptz NOT NULL,
    dropped bigint NOT NULL,
    PRIMARY KEY (tenant, workflow, key)
) WITH (fillfactor = 70);

CREATE TABLE tidemill.workflow_pauses (
    tenant text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, workflow)
);

-- A lease without a holder keeps its row, so that no epoch is used twice. `backend` is the server process of the
-- holder's session.
CREATE TABLE tidemill.leases (
    name text COLLATE "C" PRIMARY KEY,
    epoch bigint NOT NULL,
    holder text COLLATE "C",
    expires_at timestamptz NOT NULL,
    backend integer NOT NULL
) WITH (fillfactor = 20);

CREATE TABLE tidemill.owners (
    id text COLLATE "C" PRIMARY KEY,
    host text NOT NULL,
    boot text NOT NULL,
    pid bigint NOT NULL,
    started text NOT NULL,
    at timestamptz NOT NULL
);

CREATE TABLE tidemill.notes (
    run text COLLATE "C" NOT NULL,
    is_of_task boolean NOT NULL, -- false: about the run itself, and the task is ''
    task text COLLATE "C" NOT NULL,
    text text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (run, is_of_task, task)
);

CREATE TABLE tidemill.logs (
    run text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    element integer NOT NULL,
    attempt integer NOT NULL,
    number integer NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (run, task, element, attempt, number)
);

CREATE TABLE tidemill.backfills (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    run_limit integer NOT NULL,
    created_at timestamptz NOT NULL,
    cancelled_at timestamptz
);
