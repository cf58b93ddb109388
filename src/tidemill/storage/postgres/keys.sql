-- Statements about the snapshots of keys.

-- name: save_keys
INSERT INTO tidemill.key_snapshots (tenant, reactor, key, slot, moment, is_pending, checksum, payload)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::bytea[], $4::smallint[], $5::bigint[], $6::boolean[], $7::bytea[], $8::bytea[]
)
ON CONFLICT (tenant, reactor, key, slot) DO UPDATE SET
    moment = excluded.moment,
    is_pending = excluded.is_pending,
    checksum = excluded.checksum,
    payload = excluded.payload;

-- name: key_snapshots_of
SELECT key, slot, moment, is_pending, checksum, payload
FROM tidemill.key_snapshots WHERE tenant = $1 AND reactor = $2 AND key = ANY($3::bytea[]);

-- name: pending_key_snapshots
SELECT key, slot, moment, is_pending, checksum, payload
FROM tidemill.key_snapshots
WHERE tenant = $1 AND reactor = $2 AND key IN (
    SELECT key FROM tidemill.key_snapshots WHERE tenant = $1 AND reactor = $2 AND is_pending
);

-- name: stored_keys
SELECT DISTINCT key FROM tidemill.key_snapshots
WHERE tenant = $1 AND reactor = $2 AND key > $3 ORDER BY key LIMIT $4;
