-- Statements about remote attempts.

-- name: add_instance
INSERT INTO instance (number, id) VALUES (1, ?) ON CONFLICT DO NOTHING;

-- name: instance
SELECT id FROM instance;

-- name: put_order
INSERT OR REPLACE INTO attempt_orders ({order_columns}) VALUES ({order_parameters});

-- name: holder_of_token
SELECT run, task, element, attempt, tenant FROM attempt_orders WHERE digest = ?;

-- name: order_of_attempt
SELECT {order_columns} FROM attempt_orders WHERE run = ? AND task = ? AND element = ? AND attempt = ?;

-- name: begin_order
UPDATE attempt_orders SET process = :process
WHERE run = :run AND task = :task AND element = :element AND attempt = :attempt
    AND coalesce(process, :process) = :process;

-- name: claim_of_attempt
SELECT claimed_by, state FROM task_runs
WHERE run = ? AND task = ? AND element = ? AND attempt = ? AND state IN {claimed_tasks};

-- name: prune_orders
DELETE FROM attempt_orders AS o
WHERE created_at < ? AND NOT EXISTS (
    SELECT 1 FROM task_runs AS t
    WHERE t.run = o.run AND t.task = o.task AND t.element = o.element AND t.attempt = o.attempt
        AND t.state IN {claimed_tasks}
);

-- name: touch_bundle
UPDATE code_bundles SET ordered_at = max(ordered_at, ?) WHERE tenant = ? AND digest = ?;

-- name: add_bundle
INSERT INTO code_bundles (tenant, digest, archive, ordered_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: bundle
SELECT archive FROM code_bundles WHERE tenant = ? AND digest = ?;

-- name: prune_bundles
DELETE FROM code_bundles AS b
WHERE ordered_at < ? AND NOT EXISTS (
    SELECT 1 FROM attempt_orders AS o WHERE o.tenant = b.tenant AND o.bundle = b.digest
);
