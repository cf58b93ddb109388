-- Failed runs that need a person are counted and listed from their own index; what resolves them is found in the other.

ALTER TABLE tidemill.runs ADD COLUMN dismissed_at timestamptz;

CREATE INDEX runs_unresolved ON tidemill.runs (tenant, created_at, id)
WHERE state = 'failed' AND (dismissed_at IS NULL OR dismissed_at < ended_at);

CREATE INDEX runs_succeeded ON tidemill.runs (tenant, workflow, about, sequence DESC)
WHERE state = 'success' AND about IS NOT NULL;
