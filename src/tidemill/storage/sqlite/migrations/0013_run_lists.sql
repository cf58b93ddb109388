-- Lists of runs are filtered by workflow and state, and counted, from this index alone.

DROP INDEX runs_by_tenant;

CREATE INDEX runs_by_tenant ON runs (tenant, created_at, id, workflow, state);
