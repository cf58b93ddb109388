-- What tasks have done under a name.

CREATE TABLE tidemill.steps (
    tenant text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    element integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    call integer NOT NULL,
    attempt integer NOT NULL,
    try_number integer NOT NULL,
    position integer NOT NULL,
    state text COLLATE "C" NOT NULL,
    value bytea,
    error text,
    may_retry boolean NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL,
    PRIMARY KEY (run, task, element, kind, name, key, call)
);

SELECT tidemill.protect_rows('steps', $$current_setting('tidemill.tenant', true) IN ('*', tenant)$$);
