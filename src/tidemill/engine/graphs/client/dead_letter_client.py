"""The dead letters of a caller's reactors and accumulators, wherever they run."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tidemill.access.principal import Caller
from tidemill.engine.graphs.client.part_names import PartNames
from tidemill.engine.graphs.client.routing import OperationRouter
from tidemill.engine.graphs.dead_letters import check_editable, find_by_end
from tidemill.graphs.outcomes import DeadLetter, Receipt
from tidemill.graphs.views import ReplayResult
from tidemill.kernel.errors import NotFoundError, after_change
from tidemill.storage.graph_ports import PartKind

EDIT_PATIENCE = 5.0
"""Seconds that an edited event waits for queue space before it is rejected."""

Push = Callable[..., Awaitable[Receipt]]
"""Pushes an event of a caller to an accumulator, as `GraphClient.push` does."""


class DeadLetterClient:
    """Lists, replays and drops the dead letters of a caller's tenant."""

    def __init__(self, router: OperationRouter, names: PartNames, push: Push) -> None:
        self._at = router.at
        self._names = names
        self._push = push

    # -- of one reactor or accumulator

    async def list_of(self, caller: Caller, kind: PartKind, name: str) -> list[DeadLetter]:
        """Return the dead letters of an accumulator, or of a reactor with its accumulators, newest first.

        Large values are left out: `get` returns them.
        """
        part = self._names.own(caller, kind, name)
        return await self._at(part).dead_letters(kind, part.tenant, part.name)

    async def get(self, caller: Caller, kind: PartKind, name: str, dead_letter: str) -> DeadLetter:
        """Return one dead letter, with all its values."""
        part = self._names.own(caller, kind, name)
        return await self._at(part).dead_letter(kind, part.tenant, part.name, dead_letter)

    async def replay(
        self, caller: Caller, kind: PartKind, name: str, dead_letter: str, event: Any = None
    ) -> ReplayResult:
        """Process a dead letter again; or push another event instead, and drop it if that is accepted."""
        part = self._names.own(caller, kind, name)
        if event is None:
            return await self._at(part).replay(kind, part.tenant, part.name, dead_letter)
        letter = await self.get(caller, kind, name, dead_letter)
        check_editable(letter, await self._kind_of(caller, letter.source) if letter.kind == "event" else "")
        receipt = await self._push(caller, letter.source, msgspec.json.encode(event), "json", EDIT_PATIENCE)
        if receipt.accepted:
            with after_change(f"the event was pushed in place of dead letter {dead_letter}"):
                await self.drop(caller, kind, name, dead_letter)
        return ReplayResult(receipt=receipt)

    async def _kind_of(self, caller: Caller, accumulator: str) -> str:
        part = self._names.own(caller, "accumulator", accumulator)
        return (await self._at(part).accumulator(part.tenant, part.name)).kind

    async def drop(self, caller: Caller, kind: PartKind, name: str, dead_letter: str) -> None:
        """Delete a dead letter."""
        part = self._names.own(caller, kind, name)
        await self._at(part).drop(kind, part.tenant, part.name, dead_letter)

    # -- of all, by the end of their ids

    async def list_all(self, caller: Caller) -> list[DeadLetter]:
        """Return the dead letters of all reactors and accumulators, newest first, without large values."""
        return [letter for _, letter in await self._list_with_reactors(caller)]

    async def get_by_end(self, caller: Caller, end: str) -> DeadLetter:
        """Return the dead letter whose id ends so, with all its values."""
        return await self.get(caller, "reactor", *await self._find_by_end(caller, end))

    async def replay_by_end(self, caller: Caller, end: str, event: Any = None) -> ReplayResult:
        """Process the dead letter whose id ends so again; `event` as for `replay`."""
        return await self.replay(caller, "reactor", *await self._find_by_end(caller, end), event)

    async def drop_by_end(self, caller: Caller, end: str) -> None:
        """Delete the dead letter whose id ends so."""
        await self.drop(caller, "reactor", *await self._find_by_end(caller, end))

    async def _find_by_end(self, caller: Caller, end: str) -> tuple[str, str]:
        """Return a reactor, and the id of its dead letter that ends so."""
        reactors = {letter.id: (reactor, letter) for reactor, letter in await self._list_with_reactors(caller)}
        found = find_by_end((letter for _, letter in reactors.values()), end)
        return reactors[found.id][0], found.id

    async def _list_with_reactors(self, caller: Caller) -> list[tuple[str, DeadLetter]]:
        """Return all dead letters, each with a reactor that has it: an accumulator may have several reactors."""
        names = await self._names.reactors(caller)
        found = await asyncio.gather(*(self._list_loaded(caller, name) for name in names))
        letters = {one.id: (name, one) for name, some in zip(names, found, strict=True) for one in some}
        return [letters[one] for one in sorted(letters, reverse=True)]

    async def _list_loaded(self, caller: Caller, reactor: str) -> list[DeadLetter]:
        try:
            return await self.list_of(caller, "reactor", reactor)
        except NotFoundError:  # it was unloaded after it was listed
            return []
