-- Requests of nodes to the owners of reactors and accumulators, with their answers. They live for milliseconds.

CREATE TABLE tidemill.mail (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    sender text COLLATE "C" NOT NULL,
    operation text NOT NULL,
    payload bytea NOT NULL,
    at timestamptz NOT NULL,
    answer bytea
);

SELECT tidemill.protect_rows('mail', $$current_setting('tidemill.tenant', true) IN ('*', tenant)$$);
