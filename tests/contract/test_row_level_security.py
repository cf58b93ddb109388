"""Row-level security on PostgreSQL: the second wall between tenants, tried by an ordinary role without any help."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tests.contract.access_samples import api_key, audit_entry, secret, tenant, variable
from tests.contract.package_samples import trusted
from tests.contract.run_samples import creation, make, run_row
from tests.postgres import PostgresServer
from tidemill.storage.acting_tenant import acting_for
from tidemill.storage.plain_ports import TABLES
from tidemill.storage.postgres.connection import protect_rows
from tidemill.storage.postgres.store import QUERIES, PostgresStore
from tidemill.storage.store import Store
from tidemill.storage.tables.declared import of_instance, of_run, of_tenant
from tidemill.storage.workflow_ports import RunFilter

INSERT_VARIABLE = "INSERT INTO tidemill.variables VALUES ('acme', 'n', NULL, now(), 'x')"


@pytest.fixture
async def url(postgres: PostgresServer) -> str:
    """The address of an empty database of an ordinary role: superusers bypass row-level security."""
    name = (await postgres.fresh_database()).rpartition("/")[2]
    await postgres.execute("DROP SCHEMA IF EXISTS tidemill CASCADE", name)
    await postgres.execute("DROP ROLE IF EXISTS ordinary", name)
    await postgres.execute("CREATE ROLE ordinary LOGIN", name)
    await postgres.execute(f"ALTER DATABASE {name} OWNER TO ordinary", name)
    return postgres.url(name).replace("postgres@", "ordinary@")


@pytest.fixture
async def store(url: str, postgres: PostgresServer) -> AsyncIterator[Store]:
    """A store of the ordinary role, with rows of two tenants."""
    store = PostgresStore(url)
    await store.open()
    for name in ("acme", "beta"):
        await store.tenants.add(tenant(name))
        await store.api_keys.add(api_key(f"k-{name}", tenant=name), b"digest")
        await store.audit_entries.append(audit_entry(f"e-{name}", tenant=name))
        await store.variables.upsert(variable(tenant=name))
        await store.secrets.put(secret(tenant=name))
        await store.trusted_keys.add(trusted(tenant=name))
        await make(store, creation(run_row(f"r-{name}", tenant=name)))
    yield store
    await store.close()
    name = url.rpartition("/")[2]
    await postgres.execute(f"ALTER DATABASE {name} OWNER TO postgres", name)
    await postgres.execute("REASSIGN OWNED BY ordinary TO postgres", name)
    await postgres.execute("DROP OWNED BY ordinary", name)


async def connected(url: str, acting: str | None = None) -> Any:
    """Return a connection of the role that owns the tables, acting for a tenant or forgetful."""
    connection = await asyncpg.connect(url)
    if acting is not None:
        await connection.execute("SELECT set_config('tidemill.tenant', $1, false)", acting)
    return connection


PROTECTED = {one.name: one for one in sorted(TABLES) if one.belongs_to != "instance"}
READ_POLICIES = """
    SELECT relname, coalesce(pg_get_expr(polqual, polrelid), ''), relrowsecurity AND relforcerowsecurity
    FROM pg_class LEFT JOIN pg_policy ON polrelid = pg_class.oid
    WHERE relnamespace = 'tidemill'::regnamespace AND relkind = 'r'
"""
READ_OWNERS = """
    SELECT relname, attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE relnamespace = 'tidemill'::regnamespace AND relkind = 'r' AND attnotnull AND NOT attisdropped
"""


async def find_unprotected(connection: Any) -> set[str]:
    """Return the tables whose rows other tenants could see, or that no module of `storage/tables` declares."""
    owners = {tuple(row) for row in await connection.fetch(READ_OWNERS)}
    found = set()
    for name, condition, is_forced in await connection.fetch(READ_POLICIES):
        declared = next((one for one in TABLES if one.name == name), None)
        if declared is None or (declared.condition is not None) is not is_forced:
            found.add(name)
        elif declared.condition is not None:
            column = "run" if declared.belongs_to == "run" else declared.tenant_column
            is_named = re.search(rf"[( ]{column}\b", condition.replace("tidemill.tenant", ""))
            if (name, column) not in owners or not is_named or "current_setting" not in condition:
                found.add(name)
    return found


async def test_every_table_of_tenants_is_protected(store: Store, url: str) -> None:
    """S-5: also from its owner. A table that is added later needs a declaration, a tenant and a policy."""
    connection = await connected(url)
    assert await find_unprotected(connection) == set()
    for statement in (
        "CREATE TABLE tidemill.undeclared (tenant text NOT NULL)",
        "DROP POLICY tenant_rows ON tidemill.variables",
        "ALTER TABLE tidemill.backfills NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE tidemill.pauses RENAME tenant TO owner",
    ):
        await connection.execute(statement)
    assert await find_unprotected(connection) == {"undeclared", "variables", "backfills", "pauses"}
    await connection.close()


async def test_a_table_that_a_migration_adds_gets_its_policy(store: Store, url: str) -> None:
    """S-5: its declaration is enough."""
    connection = await connected(url)
    await connection.execute("CREATE TABLE tidemill.novel (tenant text NOT NULL)")
    await connection.execute("CREATE TABLE tidemill.pages (run text NOT NULL)")
    added = (*of_tenant("novel"), *of_run("pages"), *of_instance("instance"))
    for _ in range(2):
        await protect_rows(connection, QUERIES, added)
    for acting, seen in (("*", 2), ("acme", 1), ("", 0)):
        await connection.execute("SELECT set_config('tidemill.tenant', $1, false)", acting)
        if acting == "*":
            await connection.execute("INSERT INTO tidemill.novel VALUES ('acme'), ('beta')")
            await connection.execute("INSERT INTO tidemill.pages VALUES ('r-acme'), ('r-beta')")
        assert await connection.fetchval("SELECT count(*) FROM tidemill.novel") == seen
        assert await connection.fetchval("SELECT count(*) FROM tidemill.pages") == seen
    await connection.close()


async def test_a_connection_that_forgets_its_tenant_sees_nothing_and_writes_nothing(store: Store, url: str) -> None:
    """S-5."""
    forgetful = await connected(url)
    for name in PROTECTED:
        assert await forgetful.fetchval(f"SELECT count(*) FROM tidemill.{name}") == 0, name
        assert await forgetful.execute(f"DELETE FROM tidemill.{name}") == "DELETE 0", name
    for statement in (
        INSERT_VARIABLE,
        "INSERT INTO tidemill.notes VALUES ('r-acme', false, '', 'text', now())",
        "INSERT INTO tidemill.tenants VALUES ('zeta', now(), 'x')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await forgetful.execute(statement)
    await forgetful.close()
    assert await store.variables.get("acme", "region") == variable()


async def test_a_connection_acts_for_its_tenant_only(store: Store, url: str) -> None:
    """S-5: rows of another tenant cannot be read, changed, added or taken over."""
    beta = await connected(url, "beta")
    for name in ("runs", "task_runs", "api_keys", "audit_entries", "variables", "secrets", "trusted_keys"):
        rows = await beta.fetch(f"SELECT DISTINCT tenant FROM tidemill.{name}")
        assert [tuple(row) for row in rows] == [("beta",)], name
    assert [tuple(row) for row in await beta.fetch("SELECT DISTINCT run FROM tidemill.run_events")] == [("r-beta",)]
    assert await beta.execute("UPDATE tidemill.variables SET value = '1' WHERE tenant = 'acme'") == "UPDATE 0"
    for statement in (INSERT_VARIABLE, "UPDATE tidemill.variables SET tenant = 'acme', name = 'n'"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await beta.execute(statement)
    await beta.close()


async def test_the_reads_of_a_request_show_its_tenant_only(store: Store) -> None:
    """S-5: even those of a query that names another one, or none."""
    with acting_for("beta"):
        assert [one.name for one in await store.tenants.list_all()] == ["beta"]
        assert await store.runs.find(RunFilter(tenant="acme")) == []
        assert await store.runs.load(["r-acme"]) == []
        assert await store.runs.read_events("r-acme") == []
        assert await store.runs.read_events("r-beta")
        assert await store.api_keys.find("k-acme") is None
    with acting_for("acme"):
        assert [one.id for one in await store.runs.find(RunFilter(tenant="acme"))] == ["r-acme"]
    assert [one.name for one in await store.tenants.list_all()] == ["acme", "beta", "public"]


async def test_what_a_request_starts_works_for_every_tenant(store: Store) -> None:
    """A task of the engine may begin while a request is handled: it is not restricted."""
    with acting_for("beta"):
        async with asyncio.TaskGroup() as tasks:
            of_engine = tasks.create_task(store.tenants.list_all(), name="engine")
        assert len(of_engine.result()) == 3
        assert len(await store.tenants.list_all()) == 1


async def test_requests_of_different_tenants_do_not_mix(store: Store) -> None:
    """S-5: they share a connection."""

    async def read(name: str) -> None:
        with acting_for(name):
            for _ in range(20):
                assert [one.name for one in await store.tenants.list_all()] == [name]

    async with asyncio.TaskGroup() as tasks:
        for name in ("acme", "beta", "public", "acme", "beta"):
            tasks.create_task(read(name), name=name)
