-- Accounts, sessions, tickets, variables, secrets and idempotent requests.

CREATE TABLE tidemill.accounts (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    role text NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    failures integer NOT NULL,
    locked_until timestamptz,
    last_login_at timestamptz,
    password_hash text NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- `principal` is JSON, here and below. `digest` is that of the token.
CREATE TABLE tidemill.sessions (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    actor text COLLATE "C" NOT NULL,
    principal text NOT NULL,
    created_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    digest bytea NOT NULL UNIQUE
);

CREATE TABLE tidemill.tickets (
    tenant text COLLATE "C" NOT NULL,
    endpoint text NOT NULL,
    principal text NOT NULL,
    expires_at timestamptz NOT NULL,
    digest bytea PRIMARY KEY
);

-- `value` is JSON; NULL for null.
CREATE TABLE tidemill.variables (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text,
    updated_at timestamptz NOT NULL,
    updated_by text NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE tidemill.secrets (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    wrapped_key bytea NOT NULL,
    ciphertext bytea NOT NULL,
    updated_at timestamptz NOT NULL,
    updated_by text NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- `status` is NULL while the request is being handled. `headers` is JSON.
CREATE TABLE tidemill.requests (
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    route text NOT NULL,
    digest bytea NOT NULL,
    owner text NOT NULL,
    at timestamptz NOT NULL,
    status integer,
    headers text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, key)
);

CREATE INDEX requests_by_time ON tidemill.requests (at);

-- Row-level security, the second wall between tenants: a connection sees and writes the rows of the tenant in its setting
-- `tidemill.tenant`, and those of every tenant if that is '*', as it is for the engine. A connection that has not set it
-- sees nothing, even as the owner of the tables. The conditions have no subqueries: these would be planned with every
-- statement of the engine.
CREATE FUNCTION tidemill.protect_rows(table_name text, condition text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE tidemill.%I ENABLE ROW LEVEL SECURITY', table_name)
    ; EXECUTE format('ALTER TABLE tidemill.%I FORCE ROW LEVEL SECURITY', table_name)
    ; EXECUTE format('CREATE POLICY tenant_rows ON tidemill.%I USING (%s)', table_name, condition)
    ; END
$$;

SELECT tidemill.protect_rows(name, $$current_setting('tidemill.tenant', true) IN ('*', tenant)$$)
FROM unnest(ARRAY[
    'accounts', 'api_keys', 'audit_entries', 'backfills', 'dead_letters', 'fires', 'journal', 'loaded_versions',
    'package_states', 'package_versions', 'packages', 'part_owners', 'parts', 'pauses', 'pushes', 'recoveries',
    'requests', 'runs', 'schedules', 'secrets', 'sessions', 'task_runs', 'tickets', 'trusted_keys', 'variables',
    'workflow_pauses', 'workflow_versions'
]) AS name;

SELECT tidemill.protect_rows('tenants', $$current_setting('tidemill.tenant', true) IN ('*', name)$$);

-- Rows that belong to a run follow the policy of its table.
CREATE FUNCTION tidemill.is_visible_run(run_id text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM tidemill.runs WHERE id = run_id)
    ; END
$$;

SELECT tidemill.protect_rows(name, $$current_setting('tidemill.tenant', true) = '*' OR tidemill.is_visible_run(run)$$)
FROM unnest(ARRAY['attempts', 'logs', 'notes', 'outputs', 'run_events']) AS name;
