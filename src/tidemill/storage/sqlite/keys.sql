-- Statements about the snapshots of keys.

-- name: save_key
INSERT INTO key_snapshots (tenant, reactor, key, slot, moment, is_pending, checksum, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, reactor, key, slot) DO UPDATE SET
    moment = excluded.moment,
    is_pending = excluded.is_pending,
    checksum = excluded.checksum,
    payload = excluded.payload;

-- name: key_snapshots_of
SELECT key, slot, moment, is_pending, checksum, payload
FROM key_snapshots WHERE tenant = ? AND reactor = ? AND key = ?;

-- name: pending_keys
SELECT DISTINCT key FROM key_snapshots WHERE tenant = ? AND reactor = ? AND is_pending = 1;

-- name: stored_keys
SELECT DISTINCT key FROM key_snapshots WHERE tenant = ? AND reactor = ? AND key > ? ORDER BY key LIMIT ?;
