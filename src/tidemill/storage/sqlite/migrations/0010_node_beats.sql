-- What each process on the store is, and when it last said that it lives.

ALTER TABLE owners ADD COLUMN kind TEXT NOT NULL DEFAULT 'embedded';
ALTER TABLE owners ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE owners ADD COLUMN labels TEXT NOT NULL DEFAULT '[]';
ALTER TABLE owners ADD COLUMN concurrency INTEGER NOT NULL DEFAULT 0;
ALTER TABLE owners ADD COLUMN beat_at INTEGER NOT NULL DEFAULT 0;
UPDATE owners SET name = id, beat_at = at;
