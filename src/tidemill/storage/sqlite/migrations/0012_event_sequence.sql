-- The events of all runs have one sequence, so that a reader can continue where it stopped. A change with several events
-- has the number of its last one.

CREATE TABLE run_events_in_sequence (
    sequence INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    revision INTEGER NOT NULL, -- the run's, after the change
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    events TEXT NOT NULL, -- JSON: one list per event, in order
    UNIQUE (run, revision)
) STRICT;

INSERT INTO run_events_in_sequence (sequence, run, revision, at, actor, events)
SELECT
    sum(json_array_length(events)) OVER (ORDER BY at, run, revision ROWS UNBOUNDED PRECEDING),
    run, revision, at, actor, events
FROM run_events;

DROP TABLE run_events;

ALTER TABLE run_events_in_sequence RENAME TO run_events;
