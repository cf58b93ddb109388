-- Runs know the firing, the run or the person that started them, and are found by the first two.

ALTER TABLE tidemill.runs ADD COLUMN caused_by text;
ALTER TABLE tidemill.runs ADD COLUMN cause_key text;

CREATE INDEX runs_by_cause ON tidemill.runs (tenant, caused_by, created_at, id) WHERE origin IN ('firing', 'task');
