-- The state of single keys of keyed reactors: two snapshots of each key.

CREATE TABLE tidemill.key_snapshots (
    tenant text COLLATE "C" NOT NULL,
    reactor text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    slot smallint NOT NULL,
    moment bigint NOT NULL,
    is_pending boolean NOT NULL,
    checksum bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (tenant, reactor, key, slot)
);

CREATE INDEX pending_key_snapshots ON tidemill.key_snapshots (tenant, reactor, key) WHERE is_pending;

SELECT tidemill.protect_rows('key_snapshots', $$current_setting('tidemill.tenant', true) IN ('*', tenant)$$);
