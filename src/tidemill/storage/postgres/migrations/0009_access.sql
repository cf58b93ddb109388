-- Tenants, API keys and the audit log.

CREATE TABLE tidemill.tenants (
    name text COLLATE "C" PRIMARY KEY,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL
);

-- Tenants that own something already continue to exist.
INSERT INTO tidemill.tenants (name, created_at, created_by)
SELECT tenant, now(), 'migration' FROM (
    SELECT 'public' COLLATE "C" AS tenant
    UNION SELECT tenant FROM tidemill.parts
    UNION SELECT tenant FROM tidemill.runs
    UNION SELECT tenant FROM tidemill.workflow_versions
    UNION SELECT tenant FROM tidemill.packages
    UNION SELECT tenant FROM tidemill.trusted_keys
) AS owners;

-- `only` is JSON, NULL for a key that is not restricted. `digest` is that of the token.
CREATE TABLE tidemill.api_keys (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    role text NOT NULL,
    label text NOT NULL,
    "only" text,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    digest bytea NOT NULL
);

CREATE INDEX api_keys_by_tenant ON tidemill.api_keys (tenant, created_at, id);

-- `details` is JSON.
CREATE TABLE tidemill.audit_entries (
    id text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    details text NOT NULL,
    request_id text
);

CREATE INDEX audit_entries_by_tenant ON tidemill.audit_entries (tenant, id);
