"""The memory store: a SQLite database that lasts as long as the object, used on the thread of its caller."""

import sqlite3
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import cache
from typing import TypeVar

from tidemill.access.envelope import new_master_keys_text
from tidemill.access.principal import INSTANCE_TENANT
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import OperationError
from tidemill.storage.backup import Replacement, Snapshot
from tidemill.storage.committer import Committed, GroupCommitter
from tidemill.storage.mailbox_port import StoredAnswer, StoredRequest
from tidemill.storage.migrations import SchemaState
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.connections import migrate
from tidemill.storage.sqlite.database import Database, SqliteUnit, Work, run_in_transaction
from tidemill.storage.sqlite.errors import to_store_error
from tidemill.storage.sqlite.mailbox import SqliteMailbox
from tidemill.storage.sqlite.ports import QUERIES, SqlitePorts
from tidemill.storage.sqlite.run_rows import to_micros
from tidemill.storage.sqlite.store import measure
from tidemill.storage.store import Store
from tidemill.storage.store_size import StoreSize
from tidemill.storage.workflow_ports import ChangeTopic

T = TypeVar("T")

_PATH = ":memory:"
_STATEMENT_LIMIT = 512  # prepared statements that the connection keeps: more than this store has


class MemoryDatabase(Database):
    """The rows of memory stores. A transaction runs to its end before the caller goes on: nothing comes between."""

    def __init__(self) -> None:
        # Any thread, one at a time: a store may be made on one and opened on another.
        self.connection = sqlite3.connect(
            _PATH, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENT_LIMIT
        )
        weakref.finalize(self, self.connection.close)
        _empty_database().backup(self.connection)
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.mail_listeners: list[Callable[[], None]] = []
        """Called when mail comes, by all stores on this database."""
        self.commit_listeners: list[Callable[[], None]] = []
        """Called after each transaction, before its callers go on: a test looks at the rows then."""

    async def read(self, query: Work[T]) -> T:
        return query(self.connection)

    async def transact(self, units: Sequence[SqliteUnit]) -> Committed:
        try:
            committed = Committed(run_in_transaction(self.connection, units))
        except sqlite3.Error as error:
            if len(units) > 1:
                raise  # the committer finds out whose it is
            raise to_store_error(error, _PATH, "; nothing was written") from error
        for on_commit in self.commit_listeners:
            on_commit()
        return committed


@cache
def _empty_database() -> sqlite3.Connection:
    """Return a database with the whole schema and no rows, to copy: migrations take longer."""
    connection = sqlite3.connect(_PATH, isolation_level=None, check_same_thread=False)
    migrate(connection, _PATH)
    return connection


class MemoryMailbox(SqliteMailbox):
    """The table `mail`, whose stores are notified of mail."""

    def __init__(self, database: MemoryDatabase, committer: GroupCommitter[SqliteUnit], queries: Queries) -> None:
        super().__init__(database, committer, queries)
        self._listeners = database.mail_listeners

    async def send(self, request: StoredRequest) -> None:
        """Store a request, and notify the stores that share the database."""
        await super().send(request)
        self._notify()

    async def answer(self, answer: StoredAnswer) -> None:
        """Store an answer, and notify the stores that share the database."""
        await super().answer(answer)
        self._notify()

    def _notify(self) -> None:
        for on_change in tuple(self._listeners):
            on_change()


class MemoryStore(SqlitePorts, Store):
    """A store that lasts as long as the object: its rows outlive `close`, and are there after `open`.

    Stores with the same `database` share their rows; the leases of each expire by its own `now`.
    """

    def __init__(self, now: Callable[[], datetime] | None = None, database: MemoryDatabase | None = None) -> None:
        now = now or SystemClock().now
        self.database = database or MemoryDatabase()
        self._committer: GroupCommitter[SqliteUnit] = GroupCommitter(self.database)
        super().__init__(self.database, self._committer, now)
        self.mailbox = MemoryMailbox(self.database, self._committer, QUERIES)
        self._mail_listeners: list[Callable[[], None]] = []
        self._local_keys: str | None = None
        if database is None:
            made = (to_micros(now()), INSTANCE_TENANT)
            self.database.connection.execute("UPDATE tenants SET created_at = ? WHERE name = ?", made)

    kind = "memory"

    @property
    def title(self) -> str:
        return "memory"

    async def open(self) -> None:
        await self._committer.open()

    async def open_read_only(self) -> None:
        """Do nothing: memory can always be read."""

    async def close(self) -> None:
        await self._committer.close()
        for one in self._mail_listeners:
            self.database.mail_listeners.remove(one)
        self._mail_listeners = []

    async def read_schema_state(self) -> SchemaState:
        return SchemaState(found=0, known=0)

    async def check_writable(self) -> None:
        """Do nothing: it has no disk."""

    def read_local_keys(self) -> str | None:
        """Return keys that last as long as the object."""
        self._local_keys = self._local_keys or new_master_keys_text()
        return self._local_keys

    async def read_size(self) -> StoreSize:
        return (await self.database.read(measure))._replace(size=None)

    async def check_integrity(self) -> list[str]:
        return []

    def open_snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        raise OperationError("a store in memory ends with its process: it has no backups")

    def open_replacement(self, *_: object, **__: object) -> AbstractAsyncContextManager[Replacement]:
        raise OperationError("a store in memory ends with its process: it has no backups")

    async def find_write_blocker(self) -> str | None:
        """Return None: memory is never locked."""
        return None

    async def listen(self, on_change: Callable[[], None], topic: ChangeTopic | None = None) -> None:
        """Call `on_change` when mail comes. No other process sees this memory, only other nodes of this one."""
        if topic == "mail":
            self._mail_listeners.append(on_change)
            self.database.mail_listeners.append(on_change)
