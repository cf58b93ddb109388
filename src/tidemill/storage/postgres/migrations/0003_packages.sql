-- Packages: those that nodes are to load, the keys that may sign them, and what each node has loaded.

CREATE TABLE tidemill.packages (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version text NOT NULL,
    digest text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    at timestamptz NOT NULL,
    revision bigint NOT NULL,
    archive bytea NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Out of line and uncompressed: an archive is compressed already.
ALTER TABLE tidemill.packages ALTER COLUMN archive SET STORAGE EXTERNAL;

-- Versions outlive their packages, so that a downgrade is noticed and no revision is used twice. `revision` is that of
-- the last publication under a name; 0 if there was none.
CREATE TABLE tidemill.package_versions (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version text NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE tidemill.trusted_keys (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    text text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE tidemill.package_states (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    phase text NOT NULL,
    version text NOT NULL,
    digest text NOT NULL,
    at timestamptz NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (tenant, name, owner)
);

-- Schedules that existed before packages had their runs, and continue to have them.
ALTER TABLE tidemill.schedules ADD COLUMN armed boolean NOT NULL DEFAULT true;
