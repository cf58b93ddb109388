-- Packages: which are wanted, who may sign them, and what each node has loaded of them.

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

-- Beside the row, and as it is: an archive is compressed already.
ALTER TABLE tidemill.packages ALTER COLUMN archive SET STORAGE EXTERNAL;

-- They outlive their packages: none is rolled back unnoticed, and no revision comes twice. `revision` is that of what
-- was published last under a name; 0 if nothing ever was.
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

-- Whatever was there before packages had its runs, and goes on having them.
ALTER TABLE tidemill.schedules ADD COLUMN armed boolean NOT NULL DEFAULT true;
