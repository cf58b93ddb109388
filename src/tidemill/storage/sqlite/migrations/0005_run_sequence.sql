-- Runs are numbered in the order of their creation: queued ones begin in that order, whatever clocks say.

ALTER TABLE runs ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;

UPDATE runs SET sequence = numbered.number
FROM (SELECT id, row_number() OVER (ORDER BY created_at, id) AS number FROM runs) AS numbered
WHERE numbered.id = runs.id;

CREATE UNIQUE INDEX runs_by_sequence ON runs (sequence);

CREATE INDEX runs_queued ON runs (tenant, workflow, sequence) WHERE state = 'queued' AND backfill IS NULL;
