"""The schema `tidemill` in a database: how far it is, and how it gets further."""

from typing import Any

from tidemill.storage.migrations import known_migrations, pending
from tidemill.storage.ports import SchemaState
from tidemill.storage.postgres.address import Address
from tidemill.storage.postgres.database import connect, hang_up
from tidemill.storage.postgres.faults import told_as_store_error
from tidemill.storage.queries import Queries

MIGRATION_PATIENCE = 90.0  # seconds for a step, or for another node to finish its own

_PACKAGE = "tidemill.storage.postgres"


async def state(address: Address, queries: Queries) -> SchemaState:
    """Return how far the schema is; changes nothing."""
    connection = await connect(address)
    try:
        with told_as_store_error(address.title):
            return SchemaState(await _version(connection, queries), len(known_migrations(_PACKAGE)))
    finally:
        await hang_up(connection)


async def migrate(address: Address, queries: Queries) -> None:
    """Bring the schema up to date. Of several nodes one does it, and the others wait for it."""
    connection = await connect(address)
    try:
        with told_as_store_error(address.title):
            if pending(known_migrations(_PACKAGE), await _version(connection, queries), address.title):
                await _apply(connection, queries, address.title)
            await connection.execute(queries.forget_old_writers)
    finally:
        await hang_up(connection)


async def _apply(connection: Any, queries: Queries, title: str) -> None:
    """Apply what is missing, in one transaction, under a lock; who waited for it finds nothing left to do."""
    await connection.execute(queries.begin_migration, timeout=MIGRATION_PATIENCE)
    for migration in pending(known_migrations(_PACKAGE), await _version(connection, queries), title):
        await connection.execute(migration.sql, timeout=MIGRATION_PATIENCE)
        await connection.execute(queries.record_migration, migration.number, migration.name)
    await connection.execute("COMMIT")


async def _version(connection: Any, queries: Queries) -> int:
    if not await connection.fetchval(queries.has_schema):
        return 0
    return int(await connection.fetchval(queries.schema_version))
