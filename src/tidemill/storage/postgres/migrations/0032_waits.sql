-- What tasks have asked, and the answers.

CREATE TABLE tidemill.waits (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    element integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    call integer NOT NULL,
    attempt integer NOT NULL,
    try_number integer NOT NULL,
    text text NOT NULL,
    type text NOT NULL,
    "by" text NOT NULL,
    "default" text,
    default_variant text,
    opened_at timestamptz NOT NULL,
    expires_at timestamptz,
    state text COLLATE "C" NOT NULL,
    closed_at timestamptz,
    answer text,
    is_forgotten boolean NOT NULL
);

CREATE UNIQUE INDEX waits_by_task ON tidemill.waits (run, task, element, name, call, try_number) WHERE NOT is_forgotten;
CREATE INDEX waits_by_run ON tidemill.waits (run, opened_at, id);
CREATE INDEX waits_open ON tidemill.waits (tenant, opened_at, id) WHERE closed_at IS NULL;

SELECT tidemill.protect_rows('waits', $$current_setting('tidemill.tenant', true) IN ('*', tenant)$$);
