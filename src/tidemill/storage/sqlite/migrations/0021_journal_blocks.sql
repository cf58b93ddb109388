-- A row of the journal holds all entries of one accumulator in one commit. A row of before is a block of one entry.

ALTER TABLE journal ADD COLUMN layout BLOB NOT NULL DEFAULT x'';
