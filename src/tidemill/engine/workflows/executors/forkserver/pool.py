"""The fork servers of a node: one for each module that defines tasks, started on first use."""

import asyncio

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.executors.code import CodeLocation, CodeLocations
from tidemill.engine.workflows.executors.forkserver.client import ForkServerClient
from tidemill.kernel.errors import OperationError
from tidemill.workflows.records import VersionKey

SERVERS_PER_MODULE_LIMIT = 3
"""The number of fork servers kept for one module: older ones still hold code that runs may be pinned to."""

IMPORT_TIMEOUT = 60.0
"""Seconds that the import of a module may take."""

CodeKey = tuple[str, str]
"""The module and the file that code comes from."""


class ForkServerPool:
    """Finds the fork server that has the code of a version, and starts another one when the file has changed."""

    def __init__(
        self, locations: CodeLocations, import_timeout: float = IMPORT_TIMEOUT, lease: float | None = None
    ) -> None:
        self._import_timeout = import_timeout
        self._lease = lease
        self._locations = locations
        self._servers: dict[CodeKey, list[ForkServerClient]] = {}
        self._locks: dict[CodeKey, asyncio.Lock] = {}
        self._retired: set[ForkServerClient] = set()
        self._tasks: TaskScope
        self._is_closed = False

    def open(self, tasks: TaskScope) -> None:
        """Start accepting requests."""
        self._tasks = tasks

    async def close(self) -> None:
        """End every fork server."""
        self._is_closed = True
        servers = [server for servers in self._servers.values() for server in servers]
        servers += self._retired
        self._servers.clear()
        self._retired.clear()
        await asyncio.gather(*(server.close() for server in servers))

    def renew_leases(self) -> None:
        """Let the children of all fork servers run on for the length of a lease."""
        for server in (*self._retired, *(one for servers in self._servers.values() for one in servers)):
            server.renew_leases()

    def find_server(self, version: VersionKey) -> ForkServerClient | None:
        """Return a running fork server that has this code, if there is one; OperationError if it is not loaded."""
        location = self._locations.get(*version)
        return self._find_server((location.module, location.file), version.workflow, version.version)

    async def get_server(self, tenant: str, workflow: str, version: str) -> ForkServerClient:
        """Return a fork server that has this code; OperationError if neither a fork server nor the file has it."""
        location = self._locations.get(tenant, workflow, version)
        code_key = location.module, location.file
        server = self._find_server(code_key, workflow, version)
        if server is not None:
            return server
        async with self._locks.setdefault(code_key, asyncio.Lock()):
            server = self._find_server(code_key, workflow, version)
            if server is not None:
                return server
            newest = self._newest_server(code_key)
            if newest is None or newest.mtime_ns != location.read_mtime_ns():
                newest = await self._start_server(code_key, location)
        loaded = newest.versions.get(workflow)
        if loaded != version:
            raise _build_missing_version_error(location, workflow, version, loaded)
        return newest

    def _find_server(self, code_key: CodeKey, workflow: str, version: str) -> ForkServerClient | None:
        for server in reversed(self._servers.get(code_key, [])):
            if server.is_alive and server.versions.get(workflow) == version:
                return server
        return None

    def _newest_server(self, code_key: CodeKey) -> ForkServerClient | None:
        alive = [server for server in self._servers.get(code_key, []) if server.is_alive]
        return alive[-1] if alive else None

    async def _start_server(self, code_key: CodeKey, location: CodeLocation) -> ForkServerClient:
        server = ForkServerClient(location, self._lease)
        watchdog = self._tasks.start(f"import: {location.module}", self._abort_after_timeout(server))
        try:
            await server.open()
        finally:
            watchdog.cancel()
        if self._is_closed:
            await server.close()
            raise OperationError("the node is closing")
        servers = self._servers.setdefault(code_key, [])
        servers.append(server)
        dead = [one for one in servers if not one.is_alive]
        alive = [one for one in servers if one.is_alive]
        for old in dead + alive[:-SERVERS_PER_MODULE_LIMIT]:
            self._retire_server(code_key, old)
        self._retire_unloaded_packages()
        return server

    def _retire_unloaded_packages(self) -> None:
        """Retire the fork servers of unloaded packages: each load of a package has another location."""
        loaded = {location.tree for location in self._locations.values()}
        for code_key, servers in tuple(self._servers.items()):
            for server in tuple(servers):
                if server.location.tree is not None and server.location.tree not in loaded:
                    self._retire_server(code_key, server)
            if not self._servers[code_key]:
                del self._servers[code_key]
                self._locks.pop(code_key, None)

    def _retire_server(self, code_key: CodeKey, server: ForkServerClient) -> None:
        self._servers[code_key].remove(server)
        self._retired.add(server)
        self._tasks.start(f"retire: {server.location.module}", self._close_when_drained(server))

    async def _abort_after_timeout(self, server: ForkServerClient) -> None:
        await asyncio.sleep(self._import_timeout)  # real time: an import does not follow the node's clock
        server.abort(f"it took longer than {self._import_timeout:g} s")

    async def _close_when_drained(self, server: ForkServerClient) -> None:
        """Close a fork server after its last child has ended."""
        await server.wait_drained()
        if server in self._retired:
            self._retired.discard(server)
            await server.close()


def _build_missing_version_error(
    location: CodeLocation, workflow: str, version: str, loaded: str | None
) -> OperationError:
    if loaded is None:
        return OperationError(f"{location.file} no longer defines workflow '{workflow}'")
    return OperationError(
        f"{location.file} now has version {loaded} of workflow '{workflow}', not the requested version {version}"
    )
