-- Lists of runs are filtered by workflow and state, and counted, from this index alone. The state costs nothing: a
-- change of it writes to every index of the table anyway, because other indexes have it in their conditions.

DROP INDEX tidemill.runs_by_tenant;

CREATE INDEX runs_by_tenant ON tidemill.runs (tenant, created_at, id) INCLUDE (workflow, state);
