-- Requests of nodes to the owners of reactors and accumulators, with their answers. They live for milliseconds.

CREATE TABLE mail (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    sender TEXT NOT NULL,
    operation TEXT NOT NULL,
    payload BLOB NOT NULL,
    at INTEGER NOT NULL,
    answer BLOB
) STRICT;
