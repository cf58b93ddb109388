-- The runs of handlers are found by the run whose end they handle.

DROP INDEX runs_by_cause;
CREATE INDEX runs_by_cause ON runs (tenant, caused_by, created_at, id)
    WHERE origin IN ('firing', 'task', 'handler');
