-- What tasks have asked, and the answers.

CREATE TABLE waits (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    element INTEGER NOT NULL,
    name TEXT NOT NULL,
    call INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    try_number INTEGER NOT NULL,
    text TEXT NOT NULL,
    type TEXT NOT NULL,
    "by" TEXT NOT NULL,
    "default" TEXT,
    default_variant TEXT,
    opened_at INTEGER NOT NULL,
    expires_at INTEGER,
    state TEXT NOT NULL,
    closed_at INTEGER,
    answer TEXT,
    is_forgotten INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX waits_by_task ON waits (run, task, element, name, call, try_number) WHERE NOT is_forgotten;
CREATE INDEX waits_by_run ON waits (run, opened_at, id);
CREATE INDEX waits_open ON waits (tenant, opened_at, id) WHERE closed_at IS NULL;
