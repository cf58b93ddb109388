"""Writes as values: statements and their rows.

A unit of work may be any function of a connection. Most are only rows for a statement, and hundreds of these wait for
the same commit. As values they fold: neighbours with the same statements become one, and cost one round trip.

Some take locks that others wait for. These are shares of one piece of work, which runs first, for all of them together:
so a transaction takes its locks in one order, however many units have a share in it.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

_PARAMETER = re.compile(r"\$(\d+)")
_EXPECTED = "TRUE /* expected */"
"""Stands in a statement where `join_expecting` puts its condition."""

PostgresUnit = Callable[[Any], Awaitable[Any]]
Work = Callable[[Any, Sequence[Any]], Awaitable[list[Any]]]


Write = tuple[str, list[Any]]
"""A statement and its arguments."""


class AtOnce(NamedTuple):
    """A whole transaction as one statement, which writes nothing if it does not find what it expects."""

    condition: Write
    """The beginning of the statement, whose part `expected` has a row if everything is as it is expected.

    Its last two arguments, a writer and its turn, are added.
    """
    writes: Sequence[Write]
    read_results: Callable[[Sequence[Any]], list[Any]]
    """Takes the rows that the first write returns."""
    returns_rows: bool = False

    def to_statement(self, take_turn: str, turn: tuple[str, int]) -> Write:
        """Return the statement, and its arguments; it takes a turn of its writer."""
        (beginning, values), writes = self.condition, [*self.writes, (take_turn, list(turn))]
        statement = join_expecting(beginning, tuple(one for one, _ in writes), returns_rows=self.returns_rows)
        return statement, [*values, *turn, *(value for _, values in writes for value in values)]


class SharedWork(msgspec.Struct, frozen=True):
    """A unit that runs together with all others of the same work, which gets a connection and all their requests."""

    work: Work
    request: Any
    at_once: Callable[[Sequence[Any]], AtOnce | None] | None = None
    """Makes one statement of all the work, if nothing else is to be known before it is written."""

    async def __call__(self, connection: Any) -> Any:
        """Run the work for this request alone."""
        (result,) = await self.work(connection, [self.request])
        return result


class StatementRows(msgspec.Struct, frozen=True):
    """Rows for one statement, which runs for each of them in turn, or once for all with `as_arrays`."""

    statement: str
    rows: Sequence[tuple[Any, ...]]
    as_arrays: bool = False  # the statement takes one array per column: faster, but no two rows may conflict


class FoldableWrite(msgspec.Struct, frozen=True):
    """A unit of work that folds. Its steps write different tables, so that a neighbour's may run between them."""

    steps: tuple[StatementRows, ...]

    async def __call__(self, connection: Any) -> None:
        """Run the steps on a connection."""
        for step in self.steps:
            if not step.rows:
                continue
            if step.as_arrays:
                await connection.execute(step.statement, *to_columns(step.rows))
            else:
                await connection.executemany(step.statement, step.rows)

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements: writes with the same ones can be folded."""
        return tuple(step.statement for step in self.steps)


def find_at_once(units: Sequence[PostgresUnit]) -> AtOnce | None:
    """Return the one statement that does all units, if there is one."""
    shares = [unit for unit in units if isinstance(unit, SharedWork)]
    if len(shares) < len(units) or shares[0].at_once is None or len({unit.work for unit in shares}) > 1:
        return None
    return shares[0].at_once([unit.request for unit in shares])


def to_columns(rows: Sequence[tuple[Any, ...]], width: int = 0) -> list[list[Any]]:
    """Return rows column by column, for statements that take arrays; `width` says how many there are without rows."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


@lru_cache
def join_statements(statements: tuple[str, ...]) -> str:
    """Return one statement that runs all given ones in one round trip; it takes the arguments of each in turn.

    No two of them may write the same row: PostgreSQL runs them as if at the same moment.
    """
    if len(statements) == 1:
        return statements[0]
    return f"WITH {', '.join(_to_parts(statements, 0))} SELECT"


@lru_cache
def join_expecting(beginning: str, statements: tuple[str, ...], *, returns_rows: bool) -> str:
    """Return one statement that runs the given ones if `expected`, a part of its beginning, has a row.

    The answer says whether it has one, and has the rows that the first statement returns.
    """
    parts = _to_parts(statements, _count_parameters(beginning))
    expecting = [part.replace(_EXPECTED, "EXISTS (SELECT FROM expected)") for part in parts]
    rows = "ARRAY(SELECT part_0 FROM part_0)" if returns_rows else "NULL"
    return f"{beginning}, {', '.join(expecting)} SELECT EXISTS (SELECT FROM expected), {rows}"


def _to_parts(statements: Sequence[str], offset: int) -> list[str]:
    parts = []
    for number, statement in enumerate(statements):
        parts.append(f"part_{number} AS ({_shift_parameters(statement, offset)})")
        offset += _count_parameters(statement)
    return parts


def _count_parameters(statement: str) -> int:
    return max(map(int, _PARAMETER.findall(statement)))


def _shift_parameters(statement: str, offset: int) -> str:
    return _PARAMETER.sub(lambda match: f"${int(match[1]) + offset}", statement)


async def run_units(units: Sequence[PostgresUnit], connection: Any) -> list[Any]:
    """Run units, shared work first, then the others in order, neighbours folded; return their results."""
    results: dict[int, Any] = {}
    shares: dict[Work, list[int]] = {}
    for number, unit in enumerate(units):
        if isinstance(unit, SharedWork):
            shares.setdefault(unit.work, []).append(number)
    for work, numbers in shares.items():
        requests = [unit.request for number in numbers if isinstance(unit := units[number], SharedWork)]
        results |= zip(numbers, await work(connection, requests), strict=True)
    others = [number for number in range(len(units)) if number not in results]
    results |= zip(others, await _run_in_order([units[number] for number in others], connection), strict=True)
    return [results[number] for number in range(len(units))]


async def _run_in_order(units: Sequence[PostgresUnit], connection: Any) -> list[Any]:
    results: list[Any] = []
    for statements, neighbours in groupby(
        units, key=lambda unit: unit.statements if isinstance(unit, FoldableWrite) else None
    ):
        group = list(neighbours)
        if statements is None:
            results += [await unit(connection) for unit in group]
        else:
            await _fold([unit for unit in group if isinstance(unit, FoldableWrite)])(connection)
            results += [None] * len(group)
    return results


def _fold(writes: Sequence[FoldableWrite]) -> FoldableWrite:
    if len(writes) == 1:
        return writes[0]
    return FoldableWrite(
        tuple(
            StatementRows(steps[0].statement, [row for step in steps for row in step.rows], steps[0].as_arrays)
            for steps in zip(*(write.steps for write in writes), strict=True)
        )
    )
