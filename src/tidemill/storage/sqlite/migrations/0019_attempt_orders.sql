-- Orders of remote attempts, the code that they run, and the identity of this store. Times are microseconds since 1970.

CREATE TABLE attempt_orders (
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    element INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    payload BLOB NOT NULL,
    bundle TEXT,
    created_at INTEGER NOT NULL,
    process TEXT,
    PRIMARY KEY (run, task, element, attempt)
) STRICT;

CREATE INDEX attempt_orders_by_time ON attempt_orders (created_at);

CREATE TABLE code_bundles (
    tenant TEXT NOT NULL,
    digest TEXT NOT NULL,
    ordered_at INTEGER NOT NULL,
    archive BLOB NOT NULL,
    PRIMARY KEY (tenant, digest)
) STRICT;

CREATE TABLE instance (
    number INTEGER NOT NULL PRIMARY KEY CHECK (number = 1),
    id TEXT NOT NULL
) STRICT;
