-- Versions of packages that were published before: for `package rollback`, and for the unfinished runs of their workflows.

CREATE TABLE package_archives (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    archive BLOB NOT NULL,
    PRIMARY KEY (tenant, name, digest)
) STRICT;

-- The published archive that a version was last loaded from; empty if a folder or a program loaded it.
ALTER TABLE workflow_versions ADD COLUMN package TEXT NOT NULL DEFAULT '';
ALTER TABLE workflow_versions ADD COLUMN package_version TEXT NOT NULL DEFAULT '';
ALTER TABLE workflow_versions ADD COLUMN archive TEXT NOT NULL DEFAULT '';
