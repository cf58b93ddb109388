-- What lists of workflows, triggers and backfills show.

-- The source of the file that declares the workflow, as it was first loaded.
ALTER TABLE workflow_versions ADD COLUMN source TEXT NOT NULL DEFAULT '';

-- The range that was asked for; NULL for older backfills.
ALTER TABLE backfills ADD COLUMN range_start INTEGER;
ALTER TABLE backfills ADD COLUMN range_end INTEGER;

CREATE INDEX backfills_by_tenant ON backfills (tenant, id);

CREATE TABLE trigger_pauses (
    tenant TEXT NOT NULL,
    trigger_name TEXT NOT NULL,
    PRIMARY KEY (tenant, trigger_name)
) STRICT, WITHOUT ROWID;
