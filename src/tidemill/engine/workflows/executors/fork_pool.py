"""The fork servers of a node: one for each module that tasks come from, started when first needed."""

import asyncio

from tidemill.engine.service import Tasks
from tidemill.engine.workflows.executors.fork_link import ForkLink
from tidemill.engine.workflows.executors.made_ready import MadeReady
from tidemill.engine.workflows.executors.source import Lookup, Source, source_of
from tidemill.kernel.errors import OperationError

KEPT = 3
"""How many fork servers of one module are kept: older ones still have the code that runs may be pinned to."""


PATIENCE = 60.0
"""Seconds that the import of a module may take."""


class ForkPool:
    """Finds the fork server that has the code of a version, and starts another one when the file has changed."""

    def __init__(self, lookup: Lookup) -> None:
        self._sources: MadeReady[Source] = MadeReady(lookup, source_of)
        self._links: dict[tuple[str, str], list[ForkLink]] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._retired: set[ForkLink] = set()
        self._tasks: Tasks
        self._is_closed = False

    def open(self, tasks: Tasks) -> None:
        """Begin to work."""
        self._tasks = tasks

    async def close(self) -> None:
        """End every fork server."""
        self._is_closed = True
        links = [link for links in self._links.values() for link in links]
        links += self._retired
        self._links.clear()
        self._retired.clear()
        await asyncio.gather(*(link.close() for link in links))

    async def link_for(self, tenant: str, workflow: str, version: str) -> ForkLink:
        """Return a fork server that has this code; OperationError if that is nowhere to be found."""
        source = self._sources.get(tenant, workflow, version)
        place = source.module, source.file
        link = self._find(place, workflow, version)
        if link is not None:
            return link
        async with self._locks.setdefault(place, asyncio.Lock()):
            link = self._find(place, workflow, version)
            if link is not None:
                return link
            newest = self._newest(place)
            if newest is None or newest.stamp != source.stamp():
                newest = await self._add(place, source)
        found = newest.versions.get(workflow)
        if found != version:
            raise _not_there(source, workflow, version, found)
        return newest

    def _find(self, place: tuple[str, str], workflow: str, version: str) -> ForkLink | None:
        for link in reversed(self._links.get(place, [])):
            if link.is_alive and link.versions.get(workflow) == version:
                return link
        return None

    def _newest(self, place: tuple[str, str]) -> ForkLink | None:
        alive = [link for link in self._links.get(place, []) if link.is_alive]
        return alive[-1] if alive else None

    async def _add(self, place: tuple[str, str], source: Source) -> ForkLink:
        link = ForkLink(source)
        watch = self._tasks.start(f"import: {source.module}", self._give_up(link))
        try:
            await link.open()
        finally:
            watch.cancel()
        if self._is_closed:
            await link.close()
            raise OperationError("the node is closing")
        links = self._links.setdefault(place, [])
        links.append(link)
        for old in [one for one in links if not one.is_alive] + [one for one in links if one.is_alive][:-KEPT]:
            self._let_go(place, old)
        self._let_packages_go()
        return link

    def _let_packages_go(self) -> None:
        """Let go of what was forked for packages that were unloaded since: every load of one is another place."""
        loaded = {one.tree for one in self._sources.made()}
        for place, links in tuple(self._links.items()):
            for link in tuple(links):
                if link.source.tree is not None and link.source.tree not in loaded:
                    self._let_go(place, link)
            if not self._links[place]:
                del self._links[place]
                self._locks.pop(place, None)

    def _let_go(self, place: tuple[str, str], link: ForkLink) -> None:
        self._links[place].remove(link)
        self._retired.add(link)
        self._tasks.start(f"retire: {link.source.module}", self._retire(link))

    async def _give_up(self, link: ForkLink) -> None:
        await asyncio.sleep(PATIENCE)  # real time: an import takes it, whatever the clock says
        link.give_up(f"it took longer than {PATIENCE:g} s")

    async def _retire(self, link: ForkLink) -> None:
        """Let a fork server go on until its last child has ended."""
        await link.drained()
        if link in self._retired:
            self._retired.discard(link)
            await link.close()


def _not_there(source: Source, workflow: str, version: str, found: str | None) -> OperationError:
    if found is None:
        return OperationError(f"{source.file} defines no workflow '{workflow}' any more")
    return OperationError(
        f"{source.file} holds version {found} of workflow '{workflow}' now, and version {version} is wanted"
    )
