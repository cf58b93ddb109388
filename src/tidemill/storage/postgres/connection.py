"""Connections to PostgreSQL: the URL, session settings, reconnecting, and the schema `tidemill`."""

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import asyncpg
import msgspec
from asyncpg import connect_utils

from tidemill.kernel.errors import StoreError
from tidemill.storage.acting_tenant import EVERY_TENANT
from tidemill.storage.migrations import Migration, SchemaState, load_migrations, pending_migrations
from tidemill.storage.plain_ports import TABLES
from tidemill.storage.postgres.errors import DRIVER_ERRORS, translating_errors
from tidemill.storage.queries import Queries
from tidemill.storage.tables.declared import DeclaredTable

DEFAULT_PORT = 5432
CONNECT_TIMEOUT = 1.0  # seconds
STATEMENT_TIMEOUT = 5.0  # seconds for any statement; the server gives up a little earlier, and then says why
MIGRATION_TIMEOUT = 90.0  # seconds for a migration, or for another node to finish its own

_PACKAGE = "tidemill.storage.postgres"
_SESSION_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "application_name": "tidemill",
    "statement_timeout": "4s",
    "lock_timeout": "1200ms",  # a little longer than the server's deadlock_timeout: a deadlock is detected first
    "idle_in_transaction_session_timeout": "3s",  # ends a transaction of a vanished node; its successor waits for that
    "tcp_user_timeout": "3s",
    "tcp_keepalives_idle": "2",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "jit": "off",  # costs more than any statement here
    "tidemill.tenant": EVERY_TENANT,  # without it, row-level security shows nothing
}


class PostgresUrl(msgspec.Struct, frozen=True):
    """A database's URL, for the driver only, and its title, for messages: without the password."""

    url: str
    title: str

    def __repr__(self) -> str:
        return f"PostgresUrl({self.title!r})"

    @classmethod
    def parse(cls, url: str) -> "PostgresUrl":
        """Parse a URL; StoreError if it is not clear where the password ends."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        server = _host_and_port(parts, query)
        name = query.get("dbname", query.get("database", [""]))[0] or unquote(parts.path.strip("/")) or parts.username
        return cls(url, f"PostgreSQL database {name or 'of the default name'} at {server}")


def _host_and_port(parts: SplitResult, query: dict[str, list[str]]) -> str:
    """Return host and port. Text that may be a piece of a password is never repeated."""
    _, at, server = parts.netloc.rpartition("@")
    server = server or query.get("host", ["localhost"])[0]
    _, colon, port = server.rpartition(":")
    is_torn = "@" in parts.path + parts.fragment or (not at and "@" in parts.query)
    if is_torn or (colon and not server.endswith("]") and not port.isdigit()):
        raise StoreError(
            "the database URL cannot be read: write postgresql://USER:PASSWORD@HOST:PORT/NAME, "
            "and percent-encode special characters of the password, such as %40 for @ and %2F for /"
        )
    has_no_port = not colon or server.endswith("]")
    return f"{server}:{DEFAULT_PORT}" if has_no_port and not server.startswith("/") else server


async def connect(
    address: PostgresUrl, settings: Mapping[str, str] = MappingProxyType({}), timeout: float = STATEMENT_TIMEOUT
) -> Any:
    """Open a connection, with additional session settings; StoreError says why it cannot."""
    correct_driver()
    with translating_errors(address.title):
        try:
            return await asyncpg.connect(
                address.url,
                timeout=CONNECT_TIMEOUT,
                command_timeout=timeout,
                server_settings={**_SESSION_SETTINGS, **settings},
            )
        except ValueError as error:  # from the URL's options; its message might repeat a password
            raise StoreError(f"{address.title}: the options in its URL cannot be read; correct the URL") from error


async def close_connection(connection: Any) -> None:
    """Close a connection gracefully; terminate it if that takes long."""
    try:
        await connection.close(timeout=CONNECT_TIMEOUT)
    except DRIVER_ERRORS:
        connection.terminate()


class ReconnectingConnection:
    """One connection that is opened when it is needed, and again after it was lost, until `close`."""

    def __init__(self, address: PostgresUrl) -> None:
        self._address = address
        self._connection: Any = None
        self._is_open = False

    def open(self) -> None:
        """Allow connections from now on."""
        self._is_open = True

    async def ensure_connected(self) -> Any:
        """Return a connection that seems to work; StoreError if there is none."""
        if self._connection is None or self._connection.is_closed():
            self._check_open()
            self._connection = await connect(self._address)
            if not self._is_open:  # closed meanwhile
                self.terminate()
        self._check_open()
        return self._connection

    def terminate(self) -> None:
        """Drop the connection in any state; the server rolls back the open transaction."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        """Close the connection gracefully, and open no other."""
        self._is_open = False
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection)

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("the store is not open")


# -- the schema


async def read_schema_state(address: PostgresUrl, queries: Queries) -> SchemaState:
    """Return the version of the schema; changes nothing."""
    connection = await connect(address)
    try:
        with translating_errors(address.title):
            return SchemaState(await read_version(connection, queries), len(load_migrations(_PACKAGE)))
    finally:
        await close_connection(connection)


async def migrate(address: PostgresUrl, queries: Queries) -> None:
    """Bring the schema up to date. Of several nodes one does it, and the others wait for it."""
    connection = await connect(address)
    try:
        with translating_errors(address.title):
            if pending_migrations(load_migrations(_PACKAGE), await read_version(connection, queries), address.title):
                await _apply_migrations(connection, queries, address.title)
            await connection.execute(queries.delete_old_writers)
    finally:
        await close_connection(connection)


async def _apply_migrations(connection: Any, queries: Queries, title: str) -> None:
    """Apply the missing migrations in one transaction, under a lock; a node that waited for the lock finds none."""
    await connection.execute(queries.begin_migration, timeout=MIGRATION_TIMEOUT)
    found = await read_version(connection, queries)
    await apply_migrations(connection, queries, pending_migrations(load_migrations(_PACKAGE), found, title))
    await connection.execute("COMMIT")


async def apply_migrations(connection: Any, queries: Queries, migrations: Iterable[Migration]) -> None:
    """Apply migrations in the open transaction, and protect the rows of tables that they add."""
    for migration in migrations:
        await connection.execute(migration.sql, timeout=MIGRATION_TIMEOUT)
        await connection.execute(queries.record_migration, migration.number, migration.name)
    if await connection.fetchval(queries.can_protect_rows):
        await protect_rows(connection, queries, TABLES)


async def protect_rows(connection: Any, queries: Queries, tables: Iterable[DeclaredTable]) -> None:
    """Give each table that has no row-level security yet the policy that its declaration asks for."""
    unprotected = {name for (name,) in await connection.fetch(queries.unprotected_tables)}
    for table in tables:
        if table.condition is not None and table.name in unprotected:
            await connection.execute(queries.protect_rows, table.name, table.condition)


async def read_version(connection: Any, queries: Queries) -> int:
    """Return the number of migrations that were applied; 0 if there is no schema yet."""
    if not await connection.fetchval(queries.has_schema):
        return 0
    return int(await connection.fetchval(queries.schema_version))


# A connection that ends before the server has answered sets an error for the caller that waits for the answer. If the
# attempt is cancelled while the socket is being set up, the driver has no such caller yet, and asyncio logs "Future
# exception was never retrieved" about an error that concerns no one.
# The name is not part of the driver's interface: a version without it needs no correction, and gets none.
_DriverRequest: Any = getattr(connect_utils, "TLSUpgradeProto", asyncio.Protocol)


class TlsRequest(_DriverRequest):  # type: ignore[misc]  # the driver has no types
    """Asks the server for TLS. The caller that waits for the answer gets an error, and asyncio never misses one."""

    def connection_lost(self, error: Exception | None) -> None:
        """Set the error, and mark it as retrieved."""
        super().connection_lost(error)
        if not self.on_data.cancelled():
            self.on_data.exception()


def correct_driver() -> None:
    """Make the driver use the corrected request, in the whole process."""
    connect_utils.TLSUpgradeProto = TlsRequest
