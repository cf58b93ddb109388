"""Statements for every database, and the port that runs them: plain tables are built on both."""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from tidemill.storage.row_codec import RowCodec

T = TypeVar("T")
RowT = TypeVar("RowT", bound=msgspec.Struct)

Columns = tuple[Any, ...]
"""The values of a row that a statement returns."""
Values = Mapping[str, Any]
"""The values of the parameters of a statement; times have a zone, and lists are of texts."""

_FRAGMENT = re.compile(r"\{(\w+)(?::(\w+))?\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


class Statement:
    """SQL with parameters, `:name`, and fragments in braces.

    `{columns}`, `{parameters}` and `{updates}` are made of the columns of a codec. Every other fragment is spelled by
    each database in its own way, see `Dialect`.
    """

    def __init__(self, sql: str, codec: RowCodec[Any] | None = None) -> None:
        own = {} if codec is None else codec.fragments
        self.sql = _FRAGMENT.sub(lambda found: own.get(found[1], found[0]), " ".join(sql.split()))

    def __repr__(self) -> str:
        return f"Statement({self.sql!r})"


class Prepared(NamedTuple):
    """A statement as one database spells it, and the names of its parameters in the order of their first use."""

    sql: str
    names: tuple[str, ...]


class Dialect:
    """How a database spells what databases spell differently; a fragment may have an argument, `{in:names}`.

    `schema` stands before the name of each table, `greatest` names a function of two values, `in` compares with a list
    of texts, `bytes_of` is the size of a text in bytes, `by_index` names the index that SQLite shall use, `for_update`
    locks the rows of a query, `lock` is a lock until the end of the transaction, and `notify` tells other processes of
    a change.
    """

    def __init__(self, fragments: Mapping[str, str], parameter: Callable[[str, int], str]) -> None:
        self._fragments = fragments
        self._parameter = parameter
        self._prepared: dict[Statement, Prepared] = {}

    def prepare(self, statement: Statement) -> Prepared:
        """Return a statement in this dialect; ValueError if it names an unknown fragment."""
        if statement not in self._prepared:
            self._prepared[statement] = self._prepare(statement.sql)
        return self._prepared[statement]

    def _prepare(self, sql: str) -> Prepared:
        def expand(found: re.Match[str]) -> str:
            if found[1] not in self._fragments:
                raise ValueError(f"a statement names the unknown fragment {found[0]}: {sql}")
            return self._fragments[found[1]].replace("*", found[2] or "")

        expanded = _FRAGMENT.sub(expand, sql)
        names = tuple(dict.fromkeys(_PARAMETER.findall(expanded)))
        return Prepared(_PARAMETER.sub(lambda found: self._parameter(found[1], names.index(found[1])), expanded), names)


class Transaction(Protocol):
    """A transaction that is under way. A unit of work awaits nothing else."""

    async def fetch(self, statement: Statement, **values: Any) -> list[Columns]:
        """Run a statement, and return its rows."""

    async def execute_many(self, statement: Statement, rows: Sequence[Values]) -> None:
        """Run a statement for each row of parameters."""


Unit = Callable[[Transaction], Coroutine[Any, Any, T]]
"""A unit of work, which may run again: it changes nothing but rows."""


class PlainDatabase(Protocol):
    """A database, as its plain tables see it. Every method raises StoreError if the database fails."""

    read_time: Callable[[Any], datetime]
    """Reads a time as the database stores it."""
    read_texts: Callable[[Any], list[str]]
    """Reads a list of texts as the database stores it."""

    async def fetch(self, statement: Statement, **values: Any) -> list[Columns]:
        """Return the rows of a query on committed rows."""

    async def execute_many(self, statement: Statement, rows: Sequence[Values]) -> None:
        """Run a statement for each row of parameters, in one transaction, which others may share."""

    async def transact(self, unit: Unit[T]) -> T:
        """Run a unit of work in the next transaction, and return its result when it is committed."""


class Table:
    """What every plain table is built on."""

    def __init__(self, database: PlainDatabase) -> None:
        self._database = database

    async def _list(self, codec: RowCodec[RowT], statement: Statement, **values: Any) -> list[RowT]:
        """Return the rows of a query."""
        return [self._decode(codec, columns) for columns in await self._database.fetch(statement, **values)]

    async def _first(self, codec: RowCodec[RowT], statement: Statement, **values: Any) -> RowT | None:
        """Return the first row of a query, if it has one."""
        return next(iter(await self._list(codec, statement, **values)), None)

    async def _put(self, statement: Statement, **values: Any) -> None:
        """Run a statement in the next transaction."""
        await self._database.execute_many(statement, [values])

    async def _change(self, statement: Statement, **values: Any) -> list[Columns]:
        """Run a statement in the next transaction, and return its rows: one for each row that it has changed."""
        return await self._database.transact(lambda transaction: transaction.fetch(statement, **values))

    def _decode(self, codec: RowCodec[RowT], columns: Sequence[Any]) -> RowT:
        return codec.decode(columns, self._database.read_time)
