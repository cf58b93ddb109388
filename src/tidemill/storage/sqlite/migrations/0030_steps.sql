-- What tasks have done under a name.

CREATE TABLE steps (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    element INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    call INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    try_number INTEGER NOT NULL,
    position INTEGER NOT NULL,
    state TEXT NOT NULL,
    value BLOB,
    error TEXT,
    may_retry INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    PRIMARY KEY (run, task, element, kind, name, key, call)
) STRICT;
