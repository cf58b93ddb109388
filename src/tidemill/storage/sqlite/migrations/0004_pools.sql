-- The sizes of pools, as the last node that was given them has set them.

CREATE TABLE pools (
    name TEXT NOT NULL PRIMARY KEY,
    slots INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
