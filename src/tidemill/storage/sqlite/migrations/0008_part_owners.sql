-- The node that owns each reactor and accumulator, with the number of its ownership. A part without an owner keeps its
-- epoch. Times are microseconds since 1970 in UTC.

CREATE TABLE part_owners (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, name)
) STRICT, WITHOUT ROWID;
