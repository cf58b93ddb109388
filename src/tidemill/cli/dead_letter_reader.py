"""Reads the dead letters of a tenant, from a server or from a store."""

from typing import TYPE_CHECKING

from tidemill.cli.stores import DEFAULT_TENANT, open_store
from tidemill.cli.targets import ServerTarget, StoreTarget, find_target
from tidemill.engine.graphs.checkpoints.dead_letter_store import to_plain_dead_letter
from tidemill.graphs.result import DeadLetter
from tidemill.kernel.errors import RequestError

if TYPE_CHECKING:
    from tidemill.client import AsyncClient


async def read_dead_letters(store: str | None, tenant: str | None) -> list[DeadLetter]:
    """Return the dead letters of a tenant, newest first."""
    target = find_target(store)
    if isinstance(target, ServerTarget):
        async with target.client(tenant) as client:
            return await _read_from_server(client)
    return await _read_from_store(target, tenant or DEFAULT_TENANT)


async def read_dead_letter(store: str | None, tenant: str | None, end: str) -> DeadLetter:
    """Return the dead letter whose id ends so, with all its values; RequestError unless there is exactly one."""
    target = find_target(store)
    if not isinstance(target, ServerTarget):
        return _find(await _read_from_store(target, tenant or DEFAULT_TENANT), end)
    async with target.client(tenant) as client:
        found = _find(await _read_from_server(client), end)
        if not found.omitted:
            return found
        for reactor in await client.reactors():
            if any(one.id == found.id for one in await client.reactor(reactor.name).dead_letters()):
                return await client.reactor(reactor.name).dead_letter(found.id)
    return found


def _find(letters: list[DeadLetter], end: str) -> DeadLetter:
    found = [one for one in letters if one.id.endswith(end)]
    if len(found) != 1:
        problem = "several dead letters have" if found else "there is no dead letter with"
        message = f"{problem} an id that ends in '{end}': `tidemill dead-letters list` shows the ids"
        raise RequestError(message, code="dead_letter_not_found", status=404)
    return found[0]


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
