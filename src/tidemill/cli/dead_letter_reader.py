"""Reads the dead letters of a tenant, from a server or from a store."""

from typing import TYPE_CHECKING

from tidemill.cli.stores import DEFAULT_TENANT, open_store
from tidemill.cli.targets import ServerTarget, StoreTarget, find_target
from tidemill.engine.graphs.checkpoints.dead_letter_store import to_plain_dead_letter
from tidemill.graphs.result import DeadLetter

if TYPE_CHECKING:
    from tidemill.client import AsyncClient


async def read_dead_letters(store: str | None, tenant: str | None) -> list[DeadLetter]:
    """Return the dead letters of a tenant, newest first."""
    target = find_target(store)
    if isinstance(target, ServerTarget):
        async with target.client(tenant) as client:
            return await _read_from_server(client)
    return await _read_from_store(target, tenant or DEFAULT_TENANT)


async def _read_from_store(target: StoreTarget, tenant: str) -> list[DeadLetter]:
    async with open_store(target.address, read_only=True) as store:
        rows = await store.dead_letters.list_all()
    return [to_plain_dead_letter(row) for row in reversed(rows) if row.tenant == tenant]


async def _read_from_server(client: "AsyncClient") -> list[DeadLetter]:
    """Return the dead letters of all reactors with their accumulators; an accumulator may have several reactors."""
    found: dict[str, DeadLetter] = {}
    for reactor in await client.reactors():
        found |= {one.id: one for one in await client.reactor(reactor.name).dead_letters()}
    return sorted(found.values(), key=lambda one: one.id, reverse=True)
