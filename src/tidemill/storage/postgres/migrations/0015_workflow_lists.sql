-- What lists of workflows, triggers and backfills show.

-- The source of the file that declares the workflow, as it was first loaded.
ALTER TABLE tidemill.workflow_versions ADD COLUMN source text NOT NULL DEFAULT '';

-- The range that was asked for; NULL for older backfills.
ALTER TABLE tidemill.backfills ADD COLUMN range_start timestamptz, ADD COLUMN range_end timestamptz;

CREATE INDEX backfills_by_tenant ON tidemill.backfills (tenant, id);

CREATE TABLE tidemill.trigger_pauses (
    tenant text COLLATE "C" NOT NULL,
    trigger_name text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, trigger_name)
);

SELECT tidemill.protect_rows('trigger_pauses', $$current_setting('tidemill.tenant', true) IN ('*', tenant)$$);
