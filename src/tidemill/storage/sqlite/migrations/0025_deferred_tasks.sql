-- Tasks that wait for an answer are listed by how long they have waited.

CREATE INDEX task_runs_deferred ON task_runs (since) WHERE state = 'deferred';
