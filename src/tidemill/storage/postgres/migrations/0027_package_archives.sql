-- Versions of packages that were published before: for `package rollback`, and for the unfinished runs of their workflows.

CREATE TABLE tidemill.package_archives (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version text NOT NULL,
    digest text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    at timestamptz NOT NULL,
    revision bigint NOT NULL,
    archive bytea NOT NULL,
    PRIMARY KEY (tenant, name, digest)
);

-- Out of line and uncompressed: an archive is compressed already.
ALTER TABLE tidemill.package_archives ALTER COLUMN archive SET STORAGE EXTERNAL;

SELECT tidemill.protect_rows('package_archives', $$current_setting('tidemill.tenant', true) IN ('*', tenant)$$);

-- The published archive that a version was last loaded from; empty if a folder or a program loaded it.
ALTER TABLE tidemill.workflow_versions ADD COLUMN package text NOT NULL DEFAULT '';
ALTER TABLE tidemill.workflow_versions ADD COLUMN package_version text NOT NULL DEFAULT '';
ALTER TABLE tidemill.workflow_versions ADD COLUMN archive text NOT NULL DEFAULT '';
