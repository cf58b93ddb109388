-- Statements of backups. Times, bytes and numbers are written in one way, whatever the database's defaults are.

-- name: begin_snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: list_tables
-- Without those that describe the schema and the writers of this database.
SELECT c.relname, array_agg(a.attname ORDER BY a.attnum), bool_or(c.relforcerowsecurity),
    bool_or(has_table_privilege(c.oid, 'SELECT'))
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'tidemill'::regnamespace AND c.relkind = 'r' AND c.relname NOT IN ('schema_versions', 'writers')
GROUP BY c.relname ORDER BY c.relname;

-- name: list_strange_policies
SELECT c.relname, p.polname FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid
WHERE c.relnamespace = 'tidemill'::regnamespace AND p.polname <> 'tenant_rows' AND row_security_active(c.oid)
ORDER BY 1, 2;

-- name: list_sequences
SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'tidemill' AND last_value IS NOT NULL;

-- name: count_other_sessions
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'tidemill' AND pid <> pg_backend_pid();

-- name: has_foreign_tables
-- Whether the schema has tables, and none of them says that they are Tidemill's.
SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'tidemill')
    AND NOT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'tidemill' AND tablename = 'schema_versions');

-- name: drop_everything
-- Not the schema: a role may own all that is in it, and have no right to create another.
DO $$
DECLARE command text;
BEGIN
    FOR command IN
        SELECT format('DROP TABLE tidemill.%I CASCADE', tablename) FROM pg_tables WHERE schemaname = 'tidemill'
        UNION ALL
        SELECT format('DROP FUNCTION %s CASCADE', oid::regprocedure) FROM pg_proc
        WHERE pronamespace = to_regnamespace('tidemill')
    LOOP
        EXECUTE command;
    END LOOP;
END $$;
