-- Graphs: checkpoints, journals, dead letters, recoveries, pauses. Text sorts by its bytes, whatever the database's own
-- collation is.

CREATE SCHEMA IF NOT EXISTS tidemill;

CREATE TABLE tidemill.schema_versions (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- The last transaction of each writer: shows whether a commit whose reply was lost has happened.
CREATE TABLE tidemill.writers (
    writer text COLLATE "C" PRIMARY KEY,
    turn bigint NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tidemill.parts (
    tenant text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    slot smallint NOT NULL,
    generation bigint NOT NULL,
    moment bigint NOT NULL,
    taken_at timestamptz NOT NULL,
    digest bytea NOT NULL,
    checksum bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (tenant, kind, name, slot)
);

CREATE TABLE tidemill.journal (
    tenant text COLLATE "C" NOT NULL,
    accumulator text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    checksum bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (tenant, accumulator, position)
);

CREATE TABLE tidemill.dead_letters (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    payload bytea NOT NULL
);

CREATE INDEX dead_letters_by_source ON tidemill.dead_letters (tenant, owner, source, id);

CREATE TABLE tidemill.recoveries (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    component text NOT NULL,
    name text NOT NULL,
    at timestamptz NOT NULL,
    action text NOT NULL,
    reason text NOT NULL,
    failures integer NOT NULL
);

CREATE INDEX recoveries_by_tenant ON tidemill.recoveries (tenant, id);

CREATE TABLE tidemill.pauses (
    tenant text COLLATE "C" NOT NULL,
    reactor text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, reactor)
);
