-- The newest push of each producer that numbers its pushes, with its answer: a repetition is recognized by it.

CREATE TABLE tidemill.pushes (
    tenant text COLLATE "C" NOT NULL,
    accumulator text COLLATE "C" NOT NULL,
    client text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    answer bytea NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (tenant, accumulator, client)
);

CREATE INDEX pushes_by_age ON tidemill.pushes (at);
