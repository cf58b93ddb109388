-- The runs of handlers are found by the run whose end they handle.

DROP INDEX tidemill.runs_by_cause;
CREATE INDEX runs_by_cause ON tidemill.runs (tenant, caused_by, created_at, id)
    WHERE origin IN ('firing', 'task', 'handler');
