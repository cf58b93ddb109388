-- A row of the journal holds all entries of one accumulator in one commit. A row of before is a block of one entry.

ALTER TABLE tidemill.journal ADD COLUMN layout bytea NOT NULL DEFAULT '';
