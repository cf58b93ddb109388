"""Writes as values: statements and their rows.

A unit of work may be any function of a connection. Most are only rows for a statement, and hundreds of these wait for
the same commit. Said as values they fold: neighbours with the same statements become one, and cost one round trip.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any

import msgspec

Unit = Callable[[Any], Awaitable[Any]]


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
                await connection.execute(step.statement, *(list(column) for column in zip(*step.rows, strict=True)))
            else:
                await connection.executemany(step.statement, step.rows)

    @property
    def shape(self) -> tuple[str, ...]:
        """What two writes must have in common to be folded."""
        return tuple(step.statement for step in self.steps)


async def run(units: Sequence[Unit], connection: Any) -> list[Any]:
    """Run units in their order, neighbours folded where they can be; return their results."""
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
