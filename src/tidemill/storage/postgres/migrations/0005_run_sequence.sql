-- Runs are numbered in the order of their creation: queued ones begin in that order, whatever clocks say.

ALTER TABLE tidemill.runs ADD COLUMN sequence bigint;

UPDATE tidemill.runs AS r SET sequence = numbered.number
FROM (SELECT id, row_number() OVER (ORDER BY created_at, id) AS number FROM tidemill.runs) AS numbered
WHERE numbered.id = r.id;

CREATE SEQUENCE tidemill.run_sequence OWNED BY tidemill.runs.sequence;

SELECT setval('tidemill.run_sequence', (SELECT coalesce(max(sequence), 0) + 1 FROM tidemill.runs), false);

ALTER TABLE tidemill.runs
    ALTER COLUMN sequence SET NOT NULL,
    ALTER COLUMN sequence SET DEFAULT nextval('tidemill.run_sequence');

CREATE INDEX runs_queued ON tidemill.runs (tenant, workflow, sequence) WHERE state = 'queued' AND backfill IS NULL;
