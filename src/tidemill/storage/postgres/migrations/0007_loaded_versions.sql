-- The workflow versions whose code each node has loaded: current ones get new runs, others are kept for their runs.

CREATE TABLE tidemill.loaded_versions (
    owner text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    is_current boolean NOT NULL,
    PRIMARY KEY (owner, tenant, workflow, version)
);
