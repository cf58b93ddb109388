-- Runs know the firing, the run or the person that started them, and are found by the first two.

ALTER TABLE runs ADD COLUMN caused_by TEXT;
ALTER TABLE runs ADD COLUMN cause_key TEXT;

CREATE INDEX runs_by_cause ON runs (tenant, caused_by, created_at, id) WHERE origin IN ('firing', 'task');
