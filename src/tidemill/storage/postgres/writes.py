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
from typing import Any

import msgspec

_PARAMETER = re.compile(r"\$(\d+)")

PostgresUnit = Callable[[Any], Awaitable[Any]]
Work = Callable[[Any, Sequence[Any]], Awaitable[list[Any]]]


class SharedWork(msgspec.Struct, frozen=True):
    """A unit that runs together with all others of the same work, which gets a connection and all their requests."""

    work: Work
    request: Any

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
    parts, offset = [], 0
    for number, statement in enumerate(statements):
        parts.append(f"part_{number} AS ({_shift_parameters(statement, offset)})")
        offset += max(map(int, _PARAMETER.findall(statement)))
    return f"WITH {', '.join(parts)} SELECT"


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
