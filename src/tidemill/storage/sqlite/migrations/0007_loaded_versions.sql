-- The workflow versions whose code each node has loaded: current ones get new runs, others are kept for their runs.

CREATE TABLE loaded_versions (
    owner TEXT NOT NULL,
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    is_current INTEGER NOT NULL,
    PRIMARY KEY (owner, tenant, workflow, version)
) STRICT, WITHOUT ROWID;
