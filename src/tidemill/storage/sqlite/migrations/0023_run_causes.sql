-- Lists of runs are filtered by what started a run, by what it is about and by the tags of its workflow. NULL: a run has none, or
-- is older. Lists are filtered and counted from this index alone.

ALTER TABLE runs ADD COLUMN cause TEXT;
ALTER TABLE runs ADD COLUMN about TEXT;

DROP INDEX runs_by_tenant;

CREATE INDEX runs_by_tenant ON runs (tenant, created_at, id, workflow, state, origin, cause, about, backfill);

-- A list of words, as JSON.
ALTER TABLE workflow_versions ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
