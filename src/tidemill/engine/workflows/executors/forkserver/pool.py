"""The fork servers of a node: one for each module that tasks come from, started when first needed."""

import asyncio

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.executors.code import CodeLocation, VersionCache, WorkflowLookup, locate_code
from tidemill.engine.workflows.executors.forkserver.client import ForkServerClient
from tidemill.kernel.errors import OperationError

SERVERS_PER_MODULE_LIMIT = 3
"""How many fork servers of one module are kept: older ones still have the code that runs may be pinned to."""


IMPORT_TIMEOUT = 60.0
"""Seconds that the import of a module may take."""


class ForkServerPool:
    """Finds the fork server that has the code of a version, and starts another one when the file has changed."""

    def __init__(self, lookup: WorkflowLookup) -> None:
        self._locations: VersionCache[CodeLocation] = VersionCache(lookup, locate_code)
        self._servers: dict[tuple[str, str], list[ForkServerClient]] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._retired: set[ForkServerClient] = set()
        self._tasks: TaskScope
        self._is_closed = False

    def open(self, tasks: TaskScope) -> None:
        """Begin to work."""
        self._tasks = tasks

    async def close(self) -> None:
        """End every fork server."""
        self._is_closed = True
        links = [link for links in self._servers.values() for link in links]
        links += self._retired
        self._servers.clear()
        self._retired.clear()
        await asyncio.gather(*(link.close() for link in links))

    async def get_server(self, tenant: str, workflow: str, version: str) -> ForkServerClient:
        """Return a fork server that has this code; OperationError if that is nowhere to be found."""
        source = self._locations.get(tenant, workflow, version)
        place = source.module, source.file
        link = self._find_server(place, workflow, version)
        if link is not None:
            return link
        async with self._locks.setdefault(place, asyncio.Lock()):
            link = self._find_server(place, workflow, version)
            if link is not None:
                return link
            newest = self._newest_server(place)
            if newest is None or newest.mtime_ns != source.read_mtime_ns():
                newest = await self._start_server(place, source)
        found = newest.versions.get(workflow)
        if found != version:
            raise _build_missing_version_error(source, workflow, version, found)
        return newest

    def _find_server(self, code_key: tuple[str, str], workflow: str, version: str) -> ForkServerClient | None:
        for link in reversed(self._servers.get(code_key, [])):
            if link.is_alive and link.versions.get(workflow) == version:
                return link
        return None

    def _newest_server(self, code_key: tuple[str, str]) -> ForkServerClient | None:
        alive = [link for link in self._servers.get(code_key, []) if link.is_alive]
        return alive[-1] if alive else None

    async def _start_server(self, code_key: tuple[str, str], location: CodeLocation) -> ForkServerClient:
        link = ForkServerClient(location)
        watch = self._tasks.start(f"import: {location.module}", self._abort_after_timeout(link))
        try:
            await link.open()
        finally:
            watch.cancel()
        if self._is_closed:
            await link.close()
            raise OperationError("the node is closing")
        links = self._servers.setdefault(code_key, [])
        links.append(link)
        for old in [one for one in links if not one.is_alive] + [one for one in links if one.is_alive][
            :-SERVERS_PER_MODULE_LIMIT
        ]:
            self._retire_server(code_key, old)
        self._retire_unloaded_packages()
        return link

    def _retire_unloaded_packages(self) -> None:
        """Let go of what was forked for packages that were unloaded since: every load of one is another place."""
        loaded = {one.tree for one in self._locations.values()}
        for place, links in tuple(self._servers.items()):
            for link in tuple(links):
                if link.location.tree is not None and link.location.tree not in loaded:
                    self._retire_server(place, link)
            if not self._servers[place]:
                del self._servers[place]
                self._locks.pop(place, None)

    def _retire_server(self, code_key: tuple[str, str], server: ForkServerClient) -> None:
        self._servers[code_key].remove(server)
        self._retired.add(server)
        self._tasks.start(f"retire: {server.location.module}", self._close_when_drained(server))

    async def _abort_after_timeout(self, server: ForkServerClient) -> None:
        await asyncio.sleep(IMPORT_TIMEOUT)  # real time: an import takes it, whatever the clock says
        server.abort(f"it took longer than {IMPORT_TIMEOUT:g} s")

    async def _close_when_drained(self, server: ForkServerClient) -> None:
        """Let a fork server go on until its last child has ended."""
        await server.wait_drained()
        if server in self._retired:
            self._retired.discard(server)
            await server.close()


def _build_missing_version_error(
    location: CodeLocation, workflow: str, version: str, found: str | None
) -> OperationError:
    if found is None:
        return OperationError(f"{location.file} defines no workflow '{workflow}' any more")
    return OperationError(
        f"{location.file} holds version {found} of workflow '{workflow}' now, and version {version} is wanted"
    )
