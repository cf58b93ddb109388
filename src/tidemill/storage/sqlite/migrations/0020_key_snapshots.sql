-- The state of single keys of keyed reactors: two snapshots of each key.

CREATE TABLE key_snapshots (
    tenant TEXT NOT NULL,
    reactor TEXT NOT NULL,
    key BLOB NOT NULL,
    slot INTEGER NOT NULL,
    moment INTEGER NOT NULL,
    is_pending INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (tenant, reactor, key, slot)
) STRICT, WITHOUT ROWID;

CREATE INDEX pending_key_snapshots ON key_snapshots (tenant, reactor, key) WHERE is_pending = 1;
