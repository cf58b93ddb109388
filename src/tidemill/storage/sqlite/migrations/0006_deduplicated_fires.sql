-- Fires about the same are suppressed for a while: `dedup` says what a fire is about.
ALTER TABLE fires ADD COLUMN dedup TEXT;

CREATE INDEX fires_deduplicated ON fires (tenant, workflow, dedup, at) WHERE dedup IS NOT NULL;
CREATE INDEX fires_deduplicated_by_run ON fires (run) WHERE dedup IS NOT NULL;
