"""The schema `tidemill` in a database: how far it is, and how it gets further."""

from typing import Any

from tidemill.storage.graph_ports import SchemaState
from tidemill.storage.migrations import load_migrations, pending_migrations
from tidemill.storage.postgres.connection import PostgresUrl
from tidemill.storage.postgres.database import close_connection, connect
from tidemill.storage.postgres.errors import translating_errors
from tidemill.storage.queries import Queries

MIGRATION_TIMEOUT = 90.0  # seconds for a step, or for another node to finish its own

_PACKAGE = "tidemill.storage.postgres"


async def read_schema_state(address: PostgresUrl, queries: Queries) -> SchemaState:
    """Return how far the schema is; changes nothing."""
    connection = await connect(address)
    try:
        with translating_errors(address.title):
            return SchemaState(await _read_version(connection, queries), len(load_migrations(_PACKAGE)))
    finally:
        await close_connection(connection)


async def migrate(address: PostgresUrl, queries: Queries) -> None:
    """Bring the schema up to date. Of several nodes one does it, and the others wait for it."""
    connection = await connect(address)
    try:
        with translating_errors(address.title):
            if pending_migrations(load_migrations(_PACKAGE), await _read_version(connection, queries), address.title):
                await _apply_migrations(connection, queries, address.title)
            await connection.execute(queries.forget_old_writers)
    finally:
        await close_connection(connection)


async def _apply_migrations(connection: Any, queries: Queries, title: str) -> None:
    """Apply what is missing, in one transaction, under a lock; who waited for it finds nothing left to do."""
    await connection.execute(queries.begin_migration, timeout=MIGRATION_TIMEOUT)
    for migration in pending_migrations(load_migrations(_PACKAGE), await _read_version(connection, queries), title):
        await connection.execute(migration.sql, timeout=MIGRATION_TIMEOUT)
        await connection.execute(queries.record_migration, migration.number, migration.name)
    await connection.execute("COMMIT")


async def _read_version(connection: Any, queries: Queries) -> int:
    if not await connection.fetchval(queries.has_schema):
        return 0
    return int(await connection.fetchval(queries.schema_version))
