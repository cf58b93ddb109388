"""Every statement of the plain tables on a real PostgreSQL: tables, columns and types of parameters agree."""

import asyncpg

from tests.postgres import PostgresServer
from tests.unit.storage.test_tables import STATEMENTS
from tidemill.storage.postgres.plain_tables import POSTGRES


async def test_postgresql_prepares_every_statement(postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(await postgres.fresh_store())
    for statement in STATEMENTS:
        prepared = POSTGRES.prepare(statement)
        parameters = (await connection.prepare(prepared.sql)).get_parameters()
        assert len(parameters) == len(prepared.names), prepared.sql
    await connection.close()
