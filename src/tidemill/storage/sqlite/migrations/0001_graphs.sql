-- Graphs: checkpoints, journals, dead letters, recoveries, pauses.
-- Times are microseconds since 1970 in UTC.

CREATE TABLE parts (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    slot INTEGER NOT NULL, -- generation % 2: two generations are kept
    generation INTEGER NOT NULL,
    moment INTEGER NOT NULL,
    taken_at INTEGER NOT NULL,
    digest BLOB NOT NULL,
    checksum BLOB NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (tenant, kind, name, slot)
) STRICT;

-- Without row ids: an append writes to one tree instead of two, and entries are stored in the order they are read in.
CREATE TABLE journal (
    tenant TEXT NOT NULL,
    accumulator TEXT NOT NULL,
    position INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (tenant, accumulator, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_letters (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    source TEXT NOT NULL,
    at INTEGER NOT NULL,
    payload BLOB NOT NULL
) STRICT;

CREATE INDEX dead_letters_by_source ON dead_letters (tenant, owner, source, id);

CREATE TABLE recoveries (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    component TEXT NOT NULL,
    name TEXT NOT NULL,
    at INTEGER NOT NULL,
    action TEXT NOT NULL,
    reason TEXT NOT NULL,
    failures INTEGER NOT NULL
) STRICT;

CREATE INDEX recoveries_by_tenant ON recoveries (tenant, id);

CREATE TABLE pauses (
    tenant TEXT NOT NULL,
    reactor TEXT NOT NULL,
    PRIMARY KEY (tenant, reactor)
) STRICT, WITHOUT ROWID;
