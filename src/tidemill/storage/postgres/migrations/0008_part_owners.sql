-- The node that owns each reactor and accumulator, with the number of its ownership. A part without an owner keeps its
-- epoch.

CREATE TABLE tidemill.part_owners (
    tenant text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    owner text,
    renewals bigint NOT NULL,
    PRIMARY KEY (tenant, kind, name)
);
