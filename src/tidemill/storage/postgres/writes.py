"""Writes as values: statements and their rows.

A unit of work may be any function of a connection. Most are only rows for a statement, and hundreds of these wait for
the same commit. Said as values they fold: neighbours with the same statements become one, and cost one round trip.

Some take locks that others wait for. These are shares of one piece of work, which is done first, for all of them
together: so a transaction takes its locks in one order, however many have a share in it.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any

import msgspec

Unit = Callable[[Any], Awaitable[Any]]
Work = Callable[[Any, Sequence[Any]], Awaitable[list[Any]]]


class Share(msgspec.Struct, frozen=True):
    """A unit that is done together with all others that share the work: that gets a connection and all the wishes."""

    work: Work
    wish: Any

    async def __call__(self, connection: Any) -> Any:
        """Do it alone."""
        (result,) = await self.work(connection, [self.wish])
        return result


class Rows(msgspec.Struct, frozen=True):
    """Rows for one statement, which runs for each of them in turn, or once for `all_at_once`."""

    statement: str
    rows: Sequence[tuple[Any, ...]]
    all_at_once: bool = False  # the statement takes one array per column; quicker, but no row may meet another


class Write(msgspec.Struct, frozen=True):
    """A unit of work that folds. Its steps concern different tables, so that a neighbour's may run between them."""

    steps: tuple[Rows, ...]

    async def __call__(self, connection: Any) -> None:
        """Run the steps on a connection."""
        for step in self.steps:
            if not step.rows:
                continue
            if step.all_at_once:
                await connection.execute(step.statement, *columns(step.rows))
            else:
                await connection.executemany(step.statement, step.rows)

    @property
    def shape(self) -> tuple[str, ...]:
        """What two writes must have in common to be folded."""
        return tuple(step.statement for step in self.steps)


def columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Return rows column by column, as statements want them that write all at once; there must be some."""
    return [list(column) for column in zip(*rows, strict=True)]


async def run(units: Sequence[Unit], connection: Any) -> list[Any]:
    """Run units, what is shared first, and the others in their order, neighbours folded; return their results."""
    results: dict[int, Any] = {}
    shares: dict[Work, list[int]] = {}
    for number, unit in enumerate(units):
        if isinstance(unit, Share):
            shares.setdefault(unit.work, []).append(number)
    for work, numbers in shares.items():
        wishes = [unit.wish for number in numbers if isinstance(unit := units[number], Share)]
        results |= zip(numbers, await work(connection, wishes), strict=True)
    others = [number for number in range(len(units)) if number not in results]
    results |= zip(others, await _in_order([units[number] for number in others], connection), strict=True)
    return [results[number] for number in range(len(units))]


async def _in_order(units: Sequence[Unit], connection: Any) -> list[Any]:
    results: list[Any] = []
    for shape, neighbours in groupby(units, key=lambda unit: unit.shape if isinstance(unit, Write) else None):
        together = list(neighbours)
        if shape is None:
            results += [await unit(connection) for unit in together]
        else:
            await _folded([unit for unit in together if isinstance(unit, Write)])(connection)
            results += [None] * len(together)
    return results


def _folded(writes: Sequence[Write]) -> Write:
    if len(writes) == 1:
        return writes[0]
    return Write(
        tuple(
            Rows(steps[0].statement, [row for step in steps for row in step.rows], steps[0].all_at_once)
            for steps in zip(*(write.steps for write in writes), strict=True)
        )
    )
