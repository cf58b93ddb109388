"""The foundation of plain tables: rows as structs, statements for every database, and the port that runs them.

The fields of a struct are the columns of its table. Texts, numbers, bytes and times have columns of their kind;
anything else is a JSON text.
"""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from tidemill.kernel.limits import LISTED_VALUE_LIMIT
from tidemill.storage.tables.declared import DeclaredTable

Row = TypeVar("Row", bound=msgspec.Struct)

_PLAIN = (str, int, float, bytes)


class RowCodec(Generic[Row]):
    """Encodes the structs of one class as rows of a database."""

    def __init__(self, kind: type[Row], **columns: str) -> None:
        """Take the columns from the fields of a struct; `columns` renames some of them."""
        hints = {name: _required_type(hint) for name, hint in get_type_hints(kind).items()}
        self._kind = kind
        self._fields = {name: columns.get(name, name) for name in kind.__struct_fields__}
        self.names = tuple(self._fields.values())
        self.columns = ", ".join(f'"{name}"' for name in self.names)  # some are words of SQL
        self.fragments = {
            "columns": self.columns,
            "parameters": ", ".join(f":{name}" for name in self.names),
            "updates": ", ".join(f'"{name}" = excluded."{name}"' for name in self.names),
        }
        self._encoders = {name: _make_encoder(hints[name]) for name in self._fields}
        self._decoders = [_make_decoder(hints[name]) for name in self._fields]
        self._times = {name for name in self._fields if hints[name] is datetime}

    def values(self, row: Row, write_time: Callable[[datetime], Any] | None = None) -> dict[str, Any]:
        """Return the columns of a row by name; its times as they are, or as `write_time` returns them."""
        values: dict[str, Any] = {}
        for name, encode in self._encoders.items():
            value = getattr(row, name)
            if name in self._times:
                encode = write_time
            values[self._fields[name]] = value if encode is None or value is None else encode(value)
        return values

    def encode_field(self, name: str, value: Any) -> Any:
        """Return the column of one field."""
        encode = self._encoders[name]
        return value if encode is None or value is None else encode(value)

    def decode(self, columns: Sequence[Any], read_time: Callable[[Any], datetime]) -> Row:
        """Return the row with these columns."""
        values: dict[str, Any] = {}
        for name, decode, value in zip(self._fields, self._decoders, columns, strict=True):
            values[name] = None if value is None else read_time(value) if decode is None else decode(value)
        return self._kind(**values)

    def listed(self, value: str) -> str:
        """Return the columns of a list: NULL for a value that is too large for one, and behind them its bytes."""
        size = f"{{bytes_of:{value}}}"
        is_large = f"{size} > {LISTED_VALUE_LIMIT}"
        columns = (
            f'CASE WHEN {is_large} THEN NULL ELSE "{name}" END' if name == value else f'"{name}"' for name in self.names
        )
        return ", ".join([*columns, f"CASE WHEN {is_large} THEN {size} END"])


def _required_type(hint: Any) -> Any:
    """Return a type without None."""
    choices = [one for one in get_args(hint) if one is not NoneType]
    return choices[0] if NoneType in get_args(hint) and len(choices) == 1 else hint


def _is_plain(kind: Any) -> bool:
    return kind in _PLAIN or get_origin(kind) is Literal


def _make_encoder(kind: Any) -> Callable[[Any], Any] | None:
    """Return what encodes the values of a column; None if they are stored as they are, or by the database."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return str
    return None if kind in (datetime, bool) or _is_plain(kind) else _encode_json


def _make_decoder(kind: Any) -> Callable[[Any], Any] | None:
    """Return what decodes the values of a column; None for times."""
    if kind is datetime:
        return None
    if kind is bool or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        decode: Callable[[Any], Any] = kind
        return decode
    return _unchanged if _is_plain(kind) else msgspec.json.Decoder(kind).decode


def _unchanged(value: Any) -> Any:
    return value


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


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

    tables: ClassVar[tuple[DeclaredTable, ...]]
    """The tables that its statements write, and whose rows these have."""

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
