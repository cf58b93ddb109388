-- Packages: which are wanted, who may sign them, and what each node has loaded of them.
-- Times are microseconds since 1970 in UTC.

-- With a rowid, and the archive last: whoever lists packages reads no archive.
CREATE TABLE packages (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    archive BLOB NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

-- They outlive their packages: none is rolled back unnoticed, and no revision comes twice.
CREATE TABLE package_versions (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    revision INTEGER NOT NULL, -- of what was published last under this name; 0 if nothing ever was
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE trusted_keys (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    text TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE package_states (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    phase TEXT NOT NULL,
    version TEXT NOT NULL,
    digest TEXT NOT NULL,
    at INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (tenant, name, owner)
) STRICT;

-- Whatever was there before packages had its runs, and goes on having them.
ALTER TABLE schedules ADD COLUMN armed INTEGER NOT NULL DEFAULT 1;
