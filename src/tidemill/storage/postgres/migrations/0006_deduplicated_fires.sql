-- Fires about the same are suppressed for a while: `dedup` says what a fire is about.
ALTER TABLE tidemill.fires ADD COLUMN dedup text COLLATE "C";

CREATE INDEX fires_deduplicated ON tidemill.fires (tenant, workflow, dedup, at) WHERE dedup IS NOT NULL;
CREATE INDEX fires_deduplicated_by_run ON tidemill.fires (run) WHERE dedup IS NOT NULL;
