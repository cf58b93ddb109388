"""Completes names in a shell: those of a server or a store, if it answers at once.

A shell waits for these functions, so they give up after a short time, and never fail.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tidemill.cli.targets import require_server
from tidemill.kernel.errors import TidemillError

if TYPE_CHECKING:
    from tidemill.client import AsyncClient

COMPLETION_TIMEOUT = 0.7
"""Seconds that a shell may wait for the names of a server."""
COMPLETION_LIMIT = 100  # names


def complete_reactor(incomplete: str) -> list[str]:
    """Return the reactors whose names begin so."""

    async def read(client: "AsyncClient") -> list[str]:
        return [one.name for one in await client.reactors()]

    return _complete(read, incomplete)


def complete_accumulator(incomplete: str) -> list[str]:
    """Return the accumulators whose names begin so."""

    async def read(client: "AsyncClient") -> list[str]:
        return [one.name for one in await client.accumulators()]

    return _complete(read, incomplete)


def complete_workflow(incomplete: str) -> list[str]:
    """Return the workflows whose names begin so."""

    async def read(client: "AsyncClient") -> list[str]:
        return [one.name for one in await client.workflows()]

    return _complete(read, incomplete)


def complete_package(incomplete: str) -> list[str]:
    """Return the packages whose names begin so."""

    async def read(client: "AsyncClient") -> list[str]:
        return [one.name for one in await client.packages()]

    return _complete(read, incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Return the newest runs whose ids begin so."""

    async def read(client: "AsyncClient") -> list[str]:
        return [one.id for one in await client.runs(limit=COMPLETION_LIMIT)]

    return _complete(read, incomplete)


def _complete(read: "Callable[[AsyncClient], Awaitable[list[str]]]", incomplete: str) -> list[str]:
    import asyncio  # here: it would take a fifth of the time of `--help`

    async def do() -> list[str]:
        async with asyncio.timeout(COMPLETION_TIMEOUT), require_server().client() as client:
            return await read(client)

    try:
        names = asyncio.run(do())
    except (TidemillError, TimeoutError):
        return []
    return [name for name in names if name.startswith(incomplete)][:COMPLETION_LIMIT]
