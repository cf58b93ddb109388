-- Packages: those that nodes are to load, the keys that may sign them, and what each node has loaded.
-- Times are microseconds since 1970 in UTC.

-- With a rowid, and the archive last: listing packages reads no archive.
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

-- Versions outlive their packages, so that a downgrade is noticed and no revision is used twice.
CREATE TABLE package_versions (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    revision INTEGER NOT NULL, -- of the last publication under this name; 0 if there was none
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

-- Schedules that existed before packages had their runs, and continue to have them.
ALTER TABLE schedules ADD COLUMN armed INTEGER NOT NULL DEFAULT 1;
