-- The node that owns each reactor and accumulator, with the number of its ownership, and how often owners have renewed
-- theirs. A part without an owner keeps both numbers.

CREATE TABLE part_owners (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT,
    renewals INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, name)
) STRICT, WITHOUT ROWID;
