-- What each process on the store is, and when it last said that it lives, by the database's clock.

ALTER TABLE tidemill.owners
    ADD COLUMN kind text NOT NULL DEFAULT 'embedded',
    ADD COLUMN name text NOT NULL DEFAULT '',
    ADD COLUMN labels text[] NOT NULL DEFAULT '{}',
    ADD COLUMN concurrency bigint NOT NULL DEFAULT 0,
    ADD COLUMN beat_at timestamptz NOT NULL DEFAULT now();
UPDATE tidemill.owners SET name = id, beat_at = at;
