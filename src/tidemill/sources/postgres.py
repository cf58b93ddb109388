"""PostgreSQL: reads the rows of a table in the order of a sequence column, and each row once.

Rows become visible in the order of their commits, and that is not the order of their numbers: a transaction that took
a lower number may commit last. So a page ends at a horizon (`postgres_horizon`), below which no more rows can
appear. A notification only wakes the reader, and its content is ignored: one that is lost delays rows and loses none.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from tidemill.kernel.author_errors import Fail
from tidemill.kernel.durations import Duration, parse_positive_duration
from tidemill.sources.clients import explaining_errors, import_client, resolve_url, server_name
from tidemill.sources.interface import Delivery, Disconnected, Moved, SourceContext, read_checkpoint
from tidemill.sources.options import check_duration, check_text
from tidemill.sources.postgres_catalogue import (
    BEFORE_ALL_ROWS,
    FIND_SEQUENCES,
    FIND_TABLE,
    SequenceFacts,
    TableFacts,
    TablePosition,
    continue_after,
    find_problem,
)
from tidemill.sources.postgres_horizon import Horizon

if TYPE_CHECKING:
    import asyncpg  # extra: postgres

PAGE_SIZE = 500  # rows
CONNECT_TIMEOUT = 5.0  # seconds
CLOSE_TIMEOUT = 1.0  # seconds
STATEMENT_TIMEOUT = 30.0  # seconds; a connection that answers nothing for this long is lost
FIRST_RECHECK = 0.01  # seconds after which transactions that were in the way are looked at again; doubles each time
SEQUENCE_FIELD = "tidemill_sequence"


class Postgres(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a PostgreSQL table, in the order of a sequence column; the address from here or `postgres_url`."""

    replays: ClassVar[bool] = True

    table: str
    """The table, or "schema.table"."""
    sequence: str = "id"
    """A unique column that a sequence fills: `bigserial`, or an identity column."""
    columns: Sequence[str] | None = None
    """The columns of an event; all by default."""
    where: str | None = None
    """A condition in SQL on the rows to read. It becomes part of the query: never build it from foreign input."""
    channel: str | None = None
    """The channel of notifications that wake the reader."""
    every: Duration = "1s"
    """The longest time between two queries."""
    url: str | None = None

    def __post_init__(self) -> None:
        check_text("Postgres", "table", self.table)
        check_duration("Postgres", "every", self.every)

    def __repr__(self) -> str:
        return f"Postgres(table={self.table!r})"  # its address may hold a password

    async def start(self, checkpoint: Any, context: SourceContext) -> AsyncIterator[Delivery]:
        """Connect, check the table, listen, and return the pages of rows after `checkpoint`."""
        url = resolve_url("postgres", self.url, context)
        title = f"PostgreSQL table '{self.table}' at {server_name(url)}"
        with _explaining_errors(title):
            async with asyncio.timeout(CONNECT_TIMEOUT):
                connection = await _connect(url, context.name)
            try:
                reader = _TableReader(self, title, connection, context)
                await reader.prepare(checkpoint)
            except BaseException:
                await _close(connection)
                raise
        return reader.pages()


class _TableReader:
    """Reads one table on one connection, which also listens."""

    def __init__(
        self, source: Postgres, title: str, connection: "asyncpg.Connection[Any]", context: SourceContext
    ) -> None:
        self._source = source
        self._title = title
        self._connection = connection
        self._context = context
        self._interval = parse_positive_duration(source.every)
        self._wakeup = asyncio.Event()
        self._position: TablePosition
        self._kept: TablePosition | None
        """The position that was yielded last."""
        self._find_newest: str
        self._horizon: Horizon
        self._page_query: str

    async def prepare(self, checkpoint: Any) -> None:
        """Check that the table can be read in order, find the position, and listen."""
        table = await self._find_table()
        column = _quote(self._source.sequence)
        name = f"{_quote(table.schema)}.{_quote(table.name)}"
        self._find_newest = f"SELECT max({column}) FROM {name} WHERE {column} > $1::bigint"
        self._page_query = self._build_page_query(name, column)
        self._kept = read_checkpoint(checkpoint, TablePosition, self._title)
        await self._find_position(table, self._kept)
        self._kept = self._kept or self._position
        self._connection.add_termination_listener(self._wake)
        if self._source.channel is not None:
            await self._connection.add_listener(self._source.channel, self._wake)

    def _build_page_query(self, table: str, column: str) -> str:
        columns = "*" if self._source.columns is None else ", ".join(map(_quote, self._source.columns))
        condition = "" if self._source.where is None else f" AND ({self._source.where})"
        return (
            f"SELECT {column} AS {SEQUENCE_FIELD}, {columns} FROM {table} "
            f"WHERE {column} > $1::bigint AND {column} <= $2::bigint{condition} ORDER BY {column} LIMIT {PAGE_SIZE}"
        )

    async def _find_table(self) -> TableFacts:
        schema, _, name = self._source.table.rpartition(".")
        quoted = f"{_quote(schema)}.{_quote(name)}" if schema else _quote(name)
        row = await self._connection.fetchrow(FIND_TABLE, quoted, self._source.sequence)
        if row is None:
            raise Disconnected(f"{self._title}: there is no such table")
        table = TableFacts(**row)
        if problem := table.find_problem(self._source.sequence):
            raise Fail(f"{self._title}: {problem}")
        if table.is_replica:  # of a server that may become the primary
            raise Disconnected(f"{self._title}: the server is a replica, which cannot tell who writes; use the primary")
        return table

    async def _find_sequence(self, table: TableFacts) -> SequenceFacts:
        rows = await self._connection.fetch(FIND_SEQUENCES, table.oid, self._source.sequence)
        sequences = [SequenceFacts(**row) for row in rows]
        if problem := find_problem(sequences):
            raise Fail(f"{self._title}: {problem}")
        return sequences[0] if sequences else SequenceFacts()

    async def _find_position(self, table: TableFacts, before: TablePosition | None) -> None:
        """Set the position to that of before, unless the table has restarted or lost rows since."""
        sequence = await self._find_sequence(table)
        now = TablePosition(BEFORE_ALL_ROWS, table.oid, table.file, sequence.file)
        self._horizon = Horizon(table.oid, sequence.oid, self._find_newest)
        if before is not None:
            reached = sequence.last_value if await self._is_behind(sequence, before.number) else None
            number, gap = continue_after(before, now, reached)
            now = msgspec.structs.replace(now, number=number)
            if gap is not None:
                self._context.report_gap(f"{self._title}: {gap}")
        self._position = now

    async def _is_behind(self, sequence: SequenceFacts, number: int) -> bool:
        """Return whether the sequence has not reached a number. Rows with their own numbers may have."""
        if sequence.last_value is None or sequence.last_value >= number:
            return False
        return await self._connection.fetchval(self._find_newest, number - 1) is None

    async def _has_changed(self) -> bool:
        """Return whether the position has changed, because the table has restarted or lost rows while it was read."""
        before = self._position
        is_at_start = before.number == BEFORE_ALL_ROWS
        if self._horizon.files == before.files and (self._horizon.newest is not None or is_at_start):
            return False
        table = await self._find_table()
        if table.oid != before.oid:
            raise Disconnected(f"{self._title}: another table has this name now")
        horizon = self._horizon
        await self._find_position(table, before)
        if self._position.number != before.number:
            return True
        self._horizon = horizon
        return False

    def _wake(self, *_: Any) -> None:
        self._wakeup.set()

    async def pages(self) -> AsyncIterator[Delivery]:
        """Yield pages of rows as they become safe to read, until the connection is lost."""
        delay = FIRST_RECHECK
        try:
            with _explaining_errors(self._title):
                while True:
                    self._wakeup.clear()
                    has_moved = await self._horizon.advance(self._connection, self._position.number)
                    if await self._has_changed():
                        continue
                    while self._has_safe_rows:
                        if page := await self._read_page():
                            yield page
                    if self._kept != self._position:
                        self._kept = self._position
                        yield Moved(msgspec.to_builtins(self._position))
                    self._update_lag()
                    is_blocked = self._horizon.is_blocked
                    delay = min(delay * 2, self._interval) if is_blocked and not has_moved else FIRST_RECHECK
                    await self._wait(delay if is_blocked else self._interval)
        finally:
            await _close(self._connection)

    @property
    def _has_safe_rows(self) -> bool:
        return self._horizon.safe is not None and self._horizon.safe > self._position.number

    async def _read_page(self) -> Delivery:
        """Return the next rows up to the horizon."""
        limit = self._horizon.safe
        rows = await self._connection.fetch(self._page_query, self._position.number, limit)
        events = [dict(row) for row in rows]
        numbers = [event.pop(SEQUENCE_FIELD) for event in events]
        position = msgspec.to_builtins(self._position)
        page = [(event, {**position, "number": number}) for event, number in zip(events, numbers, strict=True)]
        if numbers:
            self._kept = msgspec.structs.replace(self._position, number=numbers[-1])
        last = numbers[-1] if len(numbers) == PAGE_SIZE else limit
        self._position = msgspec.structs.replace(self._position, number=last)
        self._update_lag()
        return page

    def _update_lag(self) -> None:
        self._context.lag = self._horizon.count_numbers_after(self._position.number)

    async def _wait(self, timeout: float) -> None:
        """Wait for a notification, for the loss of the connection, or for the time-out."""
        async with asyncio.TaskGroup() as group:
            waits = [
                group.create_task(self._wakeup.wait(), name="postgres source: notification"),
                group.create_task(self._context.clock.sleep(timeout), name="postgres source: timeout"),
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()


async def _connect(url: str, name: str) -> "asyncpg.Connection[Any]":
    asyncpg = import_client("asyncpg", extra="postgres")
    settings = {"application_name": f"tidemill source {name}"[:63], "jit": "off"}
    connection = await asyncpg.connect(url, command_timeout=STATEMENT_TIMEOUT, server_settings=settings)
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, schema="pg_catalog", encoder=json.dumps, decoder=msgspec.json.decode)
    return connection


async def _close(connection: "asyncpg.Connection[Any]") -> None:
    """Close a connection in good order, or drop it if that takes long."""
    with suppress(OSError, import_client("asyncpg", extra="postgres").InterfaceError):
        await connection.close(timeout=CLOSE_TIMEOUT)


def _explaining_errors(title: str) -> AbstractContextManager[None]:
    asyncpg = import_client("asyncpg", extra="postgres")
    return explaining_errors(title, asyncpg.PostgresError, asyncpg.InterfaceError, find_remedy=_find_remedy)


def _find_remedy(error: Exception) -> str | None:
    asyncpg = import_client("asyncpg", extra="postgres")
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError | asyncpg.InsufficientPrivilegeError):
        return "correct the credentials or the grants of this user"
    if isinstance(error, asyncpg.SyntaxOrAccessError) and not isinstance(error, asyncpg.UndefinedTableError):
        return "correct `columns` or `where`"
    return None


def _quote(identifier: str) -> str:
    """Return an identifier for SQL, as it is: in quotes, with capitals and special characters."""
    return '"' + identifier.replace('"', '""') + '"'
