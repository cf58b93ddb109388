-- Ended runs are counted by state from this index alone. It is written when a run ends, so the state costs nothing.

DROP INDEX tidemill.runs_ended;

CREATE INDEX runs_ended ON tidemill.runs (tenant, ended_at, id) INCLUDE (state)
    WHERE state IN ('success', 'failed', 'cancelled');
