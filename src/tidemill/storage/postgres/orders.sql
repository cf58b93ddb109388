-- Statements about remote attempts.

-- name: add_instance
INSERT INTO tidemill.instance (number, id) VALUES (1, $1) ON CONFLICT DO NOTHING;

-- name: instance
SELECT id FROM tidemill.instance;

-- name: put_order
INSERT INTO tidemill.attempt_orders ({order_columns}) VALUES ({order_parameters})
ON CONFLICT (run, task, element, attempt) DO UPDATE SET
    digest = excluded.digest,
    payload = excluded.payload,
    bundle = excluded.bundle,
    created_at = excluded.created_at,
    process = excluded.process;

-- name: holder_of_token
SELECT run, task, element, attempt, tenant FROM tidemill.attempt_orders WHERE digest = $1;

-- name: order_of_attempt
SELECT {order_columns} FROM tidemill.attempt_orders WHERE run = $1 AND task = $2 AND element = $3 AND attempt = $4;

-- name: begin_order
UPDATE tidemill.attempt_orders SET process = $1
WHERE run = $2 AND task = $3 AND element = $4 AND attempt = $5 AND coalesce(process, $1) = $1
RETURNING run;

-- name: claims_of_attempts
SELECT run, task, element, attempt, claimed_by, state
FROM tidemill.task_runs
JOIN unnest($1::text[], $2::text[], $3::integer[], $4::integer[]) AS asked (run, task, element, attempt)
    USING (run, task, element, attempt)
WHERE state IN {claimed_tasks};

-- name: prune_orders
DELETE FROM tidemill.attempt_orders AS o
WHERE created_at < $1 AND NOT EXISTS (
    SELECT FROM tidemill.task_runs AS t
    WHERE t.run = o.run AND t.task = o.task AND t.element = o.element AND t.attempt = o.attempt
        AND t.state IN {claimed_tasks}
)
RETURNING run;

-- name: touch_bundle
UPDATE tidemill.code_bundles SET ordered_at = greatest(ordered_at, $1) WHERE tenant = $2 AND digest = $3
RETURNING digest;

-- name: add_bundle
INSERT INTO tidemill.code_bundles (tenant, digest, archive, ordered_at) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING;

-- name: bundle
SELECT archive FROM tidemill.code_bundles WHERE tenant = $1 AND digest = $2;

-- name: prune_bundles
DELETE FROM tidemill.code_bundles AS b
WHERE ordered_at < $1 AND NOT EXISTS (
    SELECT FROM tidemill.attempt_orders AS o WHERE o.tenant = b.tenant AND o.bundle = b.digest
)
RETURNING digest;
