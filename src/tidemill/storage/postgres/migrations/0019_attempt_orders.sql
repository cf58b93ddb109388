-- Orders of remote attempts, the code that they run, and the identity of this store.

CREATE TABLE tidemill.attempt_orders (
    run text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    element integer NOT NULL,
    attempt integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    digest bytea NOT NULL UNIQUE,
    payload bytea NOT NULL,
    bundle text COLLATE "C",
    created_at timestamptz NOT NULL,
    process text,
    PRIMARY KEY (run, task, element, attempt)
);

CREATE INDEX attempt_orders_by_time ON tidemill.attempt_orders (created_at);

CREATE TABLE tidemill.code_bundles (
    tenant text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    ordered_at timestamptz NOT NULL,
    archive bytea NOT NULL,
    PRIMARY KEY (tenant, digest)
);

SELECT tidemill.protect_rows(name, $$current_setting('tidemill.tenant', true) IN ('*', tenant)$$)
FROM unnest(ARRAY['attempt_orders', 'code_bundles']) AS name;

CREATE TABLE tidemill.instance (
    number integer PRIMARY KEY CHECK (number = 1),
    id text NOT NULL
);
