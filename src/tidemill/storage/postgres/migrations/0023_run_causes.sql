-- Lists of runs are filtered by what started a run, by what it is about and by the tags of its workflow. NULL: a run has none, or
-- is older. Lists are filtered and counted from this index alone.

ALTER TABLE tidemill.runs ADD COLUMN cause text;
ALTER TABLE tidemill.runs ADD COLUMN about text;

DROP INDEX tidemill.runs_by_tenant;

CREATE INDEX runs_by_tenant ON tidemill.runs (tenant, created_at, id)
    INCLUDE (workflow, state, origin, cause, about, backfill);

ALTER TABLE tidemill.workflow_versions ADD COLUMN tags text[] NOT NULL DEFAULT '{}';
