"""Every statement of the plain tables on a real PostgreSQL: tables, columns and types of parameters agree."""

import asyncpg

from tests.postgres import PostgresServer
from tests.unit.storage.test_tables import STATEMENTS, declared_columns
from tidemill.storage.postgres.plain_tables import POSTGRES


async def test_postgresql_prepares_every_statement(postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(await postgres.fresh_store())
    for statement in STATEMENTS:
        prepared = POSTGRES.prepare(statement)
        parameters = (await connection.prepare(prepared.sql)).get_parameters()
        assert len(parameters) == len(prepared.names), prepared.sql
    await connection.close()


async def test_the_schema_of_postgresql_has_the_columns_that_modules_declare(postgres: PostgresServer) -> None:
    """As that of SQLite has: a migration that one database lacks shows here."""
    connection = await asyncpg.connect(await postgres.fresh_store())
    rows = await connection.fetch(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'tidemill'"
    )
    await connection.close()
    stored: dict[str, set[str]] = {}
    for table, column in rows:
        stored.setdefault(table, set()).add(column)
    declared = declared_columns()
    assert {table: stored.get(table) for table in declared} == declared
