-- The newest push of each producer that numbers its pushes, with its answer: a repetition is recognized by it.

CREATE TABLE pushes (
    tenant TEXT NOT NULL,
    accumulator TEXT NOT NULL,
    client TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    answer BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (tenant, accumulator, client)
) STRICT, WITHOUT ROWID;

CREATE INDEX pushes_by_age ON pushes (at);
