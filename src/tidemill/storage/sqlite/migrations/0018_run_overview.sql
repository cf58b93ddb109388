-- Ended runs are counted by state from this index alone. It is written when a run ends, so the state costs nothing.

DROP INDEX runs_by_end;

CREATE INDEX runs_by_end ON runs (tenant, ended_at, id, state) WHERE ended_at IS NOT NULL;
