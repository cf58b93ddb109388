"""Plain tables: one spelling of each statement, which both databases understand, on tables that tenants own."""

import asyncio
import importlib
import pkgutil
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from types import ModuleType

import pytest

import tidemill.storage.tables
from tidemill.storage.plain_ports import DELETIONS, PORTS, TABLES
from tidemill.storage.postgres.plain_tables import POSTGRES
from tidemill.storage.sqlite.connections import migrate
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.storage.sqlite.plain_tables import SQLITE
from tidemill.storage.sqlite.run_rows import ATTEMPT_COLUMNS, RUN_COLUMNS, TASK_COLUMNS
from tidemill.storage.tables.access import Tenants
from tidemill.storage.tables.database import Dialect, Statement, Table

POSTGRES_ONLY = {"outputs", "schema_versions", "writers"}


def all_statements() -> Iterator[Statement]:
    """Return every statement of a plain table."""
    for module in pkgutil.iter_modules(tidemill.storage.tables.__path__, "tidemill.storage.tables."):
        yield from statements_of(importlib.import_module(module.name))


def statements_of(module: ModuleType) -> Iterator[Statement]:
    """Return the statements of a module."""
    for value in vars(module).values():
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Statement))


STATEMENTS = list(dict.fromkeys([*all_statements(), *DELETIONS]))


def declared_columns() -> dict[str, set[str]]:
    """Return the columns of each table by the statements that add its rows, and by the rows of runs."""
    columns: dict[str, set[str]] = {
        "runs": set(RUN_COLUMNS),
        "task_runs": {"tenant", *TASK_COLUMNS},
        "attempts": set(ATTEMPT_COLUMNS),
    }
    for one in STATEMENTS:
        for table, names in re.findall(r"INSERT INTO \{schema\}(\w+)(?: AS \w+)? \(([^)]*)\)", one.sql):
            columns.setdefault(table, set()).update(name.strip(' "') for name in names.split(","))
    return columns


def test_the_schema_of_sqlite_has_the_columns_that_modules_declare() -> None:
    """A column that a migration adds is written by a module, and one that a module writes has its migration."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, ":memory:")
        declared = declared_columns()
        declared["attempts"].add("value")  # which is a table of PostgreSQL
        stored = {table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} for table in declared}
    assert stored == declared
    assert len(declared) > 25


def test_there_are_statements() -> None:
    assert len(STATEMENTS) >= 60


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
def test_every_fragment_is_known(dialect: Dialect) -> None:
    for statement in STATEMENTS:
        assert not re.search(r"[{}*]\w", dialect.prepare(statement).sql)


def test_sqlite_knows_every_table_and_column() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, ":memory:")
        for sql, names in map(SQLITE.prepare, STATEMENTS):
            connection.execute(f"EXPLAIN {sql}", dict.fromkeys(names))


def test_every_table_is_declared_once_by_the_class_that_writes_it() -> None:
    """S-5: what belongs to a tenant is said next to the statements; row-level security and deletions follow."""
    names = [one.name for one in TABLES]
    assert sorted(set(names)) == sorted(names)
    assert {table for one in STATEMENTS for table in re.findall(r"\{schema\}(\w+)", one.sql)} <= set(names)
    assert set(Table.__subclasses__()) == {*PORTS.values(), Tenants}
    for kind in Table.__subclasses__():
        module = importlib.import_module(kind.__module__)
        added = {table for one in statements_of(module) for table in re.findall(r"INTO \{schema\}(\w+)", one.sql)}
        assert {one.name for one in kind.tables} & added, kind


def test_the_schema_of_sqlite_has_the_tables_and_tenants_that_are_declared() -> None:
    """S-5: a table without a declaration, or whose rows do not say whose they are, fails here."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, ":memory:")
        stored = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        owners = {name: owner_columns(connection, name) for name in stored}
    declared = {one.name: one for one in TABLES if one.name not in POSTGRES_ONLY}
    assert owners.keys() == declared.keys()
    for name, one in declared.items():
        wanted = {"tenant": {one.tenant_column}, "run": {"run"}, "instance": set[str]()}[one.belongs_to]
        assert owners[name] >= wanted, name
        assert one.belongs_to != "instance" or not owners[name], name
    deleted = {one.sql.split("}")[1].split()[0] for one in DELETIONS}
    kept = {one.name for one in TABLES if one.ends_with != "tenant"}
    assert {name for name, found in owners.items() if "tenant" in found} - kept == deleted


def owner_columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns that say whose a row is, and that are never NULL."""
    columns = connection.execute(f"PRAGMA table_info({table})")
    named = {"tenant", "run", *(["name"] if table == "tenants" else [])}
    return {row[1] for row in columns if row[1] in named and (row[3] or row[5])}


def test_parameters_are_numbered_by_their_first_use() -> None:
    statement = Statement("UPDATE {schema}t SET a = :b WHERE c = :a AND d = CAST(:b AS text) AND e = x'00'::bytea")
    prepared = POSTGRES.prepare(statement)
    assert prepared.sql == "UPDATE tidemill.t SET a = $1 WHERE c = $2 AND d = CAST($1 AS text) AND e = x'00'::bytea"
    assert prepared.names == ("b", "a")


def test_a_fragment_has_an_argument() -> None:
    statement = Statement("SELECT a FROM {schema}t WHERE a {in:names}")
    assert SQLITE.prepare(statement).sql == "SELECT a FROM t WHERE a IN (SELECT value FROM json_each(:names))"
    assert POSTGRES.prepare(statement).sql == "SELECT a FROM tidemill.t WHERE a = ANY($1)"


def test_an_unknown_fragment_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"the unknown fragment \{nothing\}: SELECT \{nothing\}"):
        SQLITE.prepare(Statement("SELECT {nothing}"))


async def test_a_unit_of_work_awaits_only_its_transaction() -> None:
    """On SQLite it runs on the thread that writes, where nothing else could wake it."""
    store = MemoryStore()
    await store.open()

    async def impatient(transaction: object) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="awaited something else than its transaction"):
        await store.variables._database.transact(impatient)
    await store.close()
