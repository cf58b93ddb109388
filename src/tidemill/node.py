"""The node: takes settings, and runs the parts that it is composed of as one."""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidemill.access.secret_source import SecretSource
from tidemill.engine.access.given_values import read_given_values
from tidemill.engine.graphs.checkpoints.checkpointer import to_recovery
from tidemill.engine.workflows.executors.code import ensure_not_importing
from tidemill.kernel.concurrency import call_in_new_thread
from tidemill.kernel.errors import RequestError
from tidemill.kernel.ids import new_instance_id
from tidemill.kernel.limits import DEFAULT_CONCURRENCY, validate_tenant
from tidemill.kernel.settings import Settings
from tidemill.node_arguments import NodeArguments, NodeProfile, check_count, check_pools, list_loads
from tidemill.node_operations import NodeOperations
from tidemill.node_parts import compose_node
from tidemill.packages.loading.reader import sort_for_loading
from tidemill.packages.status import StatusListener
from tidemill.storage.addresses import make_store
from tidemill.telemetry import events
from tidemill.telemetry.author_output import AUTHOR_OUTPUT

if TYPE_CHECKING:
    from tidemill.packages.reconcile.reconciler import Reconciler

logger = logging.getLogger(__name__)


__all__ = ["IDLE_CHECK_INTERVAL", "Node", "make_store"]

IDLE_CHECK_INTERVAL = 0.0005  # seconds between two checks whether the node is idle
RESTORED_RECOVERIES_LIMIT = 1000  # stored recoveries that are read back per tenant


class Node(NodeOperations):
    """One running Tidemill, as an async context manager.

    `load` takes modules, definitions, and paths of package folders and archives. `store` is the address of a database,
    "sqlite:///path" or "postgresql://user@host:port/database"; without one, state is kept in memory and ends with the
    node. Tasks of workflows run at `executor` unless they name another one, at most `concurrency` at a time; by default
    8, and 16 coroutines. `pools` sets the number of slots of pools: it is kept in the store, and holds for every
    process on it. Tasks of this node read `variables` and `secrets` before those of the store, with `ctx.variable` and
    `ctx.secret`; `secrets` may be a SecretSource.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        load: Iterable[Any] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        executor: str = "in_process",
        concurrency: int = DEFAULT_CONCURRENCY,
        pools: Mapping[str, int] | None = None,
        tenant: str = "public",
        variables: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | SecretSource | None = None,
        _profile: NodeProfile | None = None,
    ) -> None:
        read, checked_tenant = Settings.read(settings), validate_tenant(tenant)
        self._given_loads = list_loads(load)
        arguments = NodeArguments(
            address=store,
            settings=read,
            executor=executor,
            concurrency=check_count("concurrency", concurrency),
            pools=check_pools(pools),
            tenant=checked_tenant,
            given=read_given_values(variables, secrets, checked_tenant, os.environ, read),
        )
        super().__init__(compose_node(arguments, _profile or NodeProfile(), self))
        self._restored_tenants: set[str] = set()
        self._was_opened = self._observes_output = False

    # -- opening and closing

    async def __aenter__(self) -> Self:
        ensure_not_importing()
        if self._was_opened:
            raise RequestError("a node runs once: make a new one", code="already_used", status=409)
        self._was_opened = True
        await self._run_store.open()
        await self._graph_runtime.tasks.open()
        if self._parts.loop_watch is not None:
            self._parts.loop_watch.start()
        self._is_open = True
        self._observe_output()
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def _start(self) -> None:
        """Load the given definitions. Nothing fires until all are loaded, so that restored inputs find their graphs."""
        self._graph_runtime.tasks.start("graph scheduler: watch", self._scheduler.watch_progress())
        if self._checkpointer is not None:
            await self._checkpointer.open()
        await self._workflows.open()
        await self._parts.router.open()
        await self._packages.recover()
        with self._graph_runtime.starting_up():
            await self._load_initial()
            await self._scheduler.checkpoint_loaded()
        self._scheduler.activate()
        if self.settings.packages is not None:
            await self._packages.watch_folder(Path(self.settings.packages), self.tenant)
        if self.settings.load_published:
            await self._packages.watch_registry()
        if self._parts.ray_hosts is not None:
            await self._parts.ray_hosts.open(await self._run_store.attempt_orders.instance(new_instance_id()))

    async def _load_initial(self) -> None:
        loads = list(self._initial_loads())
        for thing, tenant in loads:
            if not isinstance(thing, str | Path):
                await self._parts.standby.load_or_wait(partial(self._load, thing, tenant))
        for tenant in dict.fromkeys(tenant for _, tenant in loads):
            paths = [Path(thing) for thing, owner in loads if owner == tenant and isinstance(thing, str | Path)]
            if paths:
                await self._parts.standby.load_or_wait(partial(self._load_paths, paths, tenant))

    async def _load_paths(self, paths: Sequence[Path], tenant: str) -> Mapping[Path, str]:
        return await self._packages.load_all(paths, tenant)

    def _initial_loads(self) -> Iterable[tuple[Any, str]]:
        """Return the definitions and paths to load at the start, each with its tenant."""
        return [(thing, self.tenant) for thing in sort_for_loading(self._given_loads)]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._direct_pushes.clear()
            self.event_feed.close()
            if self._parts.ray_hosts is not None:
                await self._parts.ray_hosts.close()
            await self._parts.router.close()
            await self._packages.stop()
            await self._workflows.close(self.settings.unload_timeout)
            await self._packages.close()
            await self._workflows.subscriptions.drain(self.settings.unload_timeout)
            await self._graph_runtime.tasks.close(self.settings.unload_timeout)
            await self._packages.remove_copies()
            if self._parts.loop_watch is not None:
                await self._parts.loop_watch.close(self.settings.unload_timeout)
            if (ownership := self._parts.foundation.ownership) is not None:
                ownership.close()
            await self._run_store.close()
            self._leave_output()
            if self.spans.is_enabled:
                await self._send_spans()

    def _observe_output(self) -> None:
        if self.settings.capture_output:
            self._observes_output = True
            AUTHOR_OUTPUT.open()

    def _leave_output(self) -> None:
        if self._observes_output:
            self._observes_output = False
            AUTHOR_OUTPUT.close()

    async def _send_spans(self) -> None:
        """Send the last spans; a collector that does not answer does not delay the end for long."""
        try:
            async with asyncio.timeout(self.settings.unload_timeout):  # real time: that of the collector
                await call_in_new_thread("node: send spans", self.spans.close)
        except TimeoutError:
            logger.warning(events.SPANS_NOT_SENT, extra={"collector": self.settings.otlp_endpoint})

    # -- packages

    async def load(self, thing: Any, *, tenant: str | None = None, allow_downgrade: bool | None = None) -> str:
        """Load a module, a definition, or the path of a package folder or archive; return the package's name.

        If it is loaded already, it is hot-swapped. A version lower than an earlier one needs `allow_downgrade`, here or
        in the settings.
        """
        work = self._load(thing, self._resolve_tenant(tenant), allow_downgrade=allow_downgrade)
        return await self._graph_runtime.tasks.run_shielded("node: load", work)

    async def _load(self, thing: Any, tenant: str, *, allow_downgrade: bool | None = None) -> str:
        await self._restore_recoveries(tenant)
        return await self._packages.load(thing, tenant, allow_downgrade=allow_downgrade)

    async def _restore_recoveries(self, tenant: str) -> None:
        """Read a tenant's stored recoveries, once."""
        store = self._parts.foundation.store
        if store is not None and tenant not in self._restored_tenants:
            self._restored_tenants.add(tenant)
            stored = await store.recoveries.list_newest(tenant, RESTORED_RECOVERIES_LIMIT)
            self._graph_runtime.supervisor.load_history(tenant, [to_recovery(row) for row in stored])

    async def unload(self, name: str, *, tenant: str | None = None) -> None:
        """Unload a package by the name that `load` returned; refused while a folder or registry wants it loaded."""
        if not isinstance(name, str):
            raise RequestError(f"name the package to unload, as `load` returned it, not {name!r}", code="invalid_name")
        work = self._unload(name, self._resolve_tenant(tenant))
        await self._graph_runtime.tasks.run_shielded("node: unload", work)

    async def _unload(self, name: str, tenant: str) -> None:
        await self._packages.unload(name, tenant)

    async def watch_folder(
        self,
        path: str | Path,
        on_status: StatusListener | None = None,
        *,
        tenant: str | None = None,
        is_developer_code: bool = False,
    ) -> "Reconciler":
        """Load the packages of a folder, and reload them as they are saved; `on_status` receives their status changes.

        Developer code is probed with the environment of this process.
        """
        owner = self._resolve_tenant(tenant)
        return await self._packages.watch_folder(Path(path), owner, on_status, is_developer_code=is_developer_code)

    # -- status

    async def settle(self) -> None:
        """Wait until the node is idle: no event in process, no firing running or due, no unsaved change.

        Does not wait for a checkpoint whose write has failed.
        """
        await self._wait_until_idle()
        while self._checkpointer is not None and self._checkpointer.has_pending_changes:
            await self._checkpointer.write()
            await self._wait_until_idle()
            if self._checkpointer.last_write_failed:
                return

    async def _wait_until_idle(self) -> None:
        idle_checks = 0
        while idle_checks < 3:
            await asyncio.sleep(0 if self._is_idle else IDLE_CHECK_INTERVAL)  # real time: it waits for work, not time
            idle_checks = idle_checks + 1 if self._is_idle else 0

    @property
    def _is_idle(self) -> bool:
        is_idle = self._scheduler.is_idle and self._workflows.is_idle and self._packages.is_idle
        return is_idle and self._parts.router.is_idle and (self._checkpointer is None or self._checkpointer.is_idle)
