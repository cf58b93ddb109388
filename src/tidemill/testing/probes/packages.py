"""A view of the packages of a node."""

from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tidemill.engine.workflows.starts.schedules import ScheduleRunner
from tidemill.engine.workflows.starts.triggers import TriggerPollers
from tidemill.node import Node
from tidemill.packages.format.archive import PackageContents
from tidemill.packages.loading.inspector import ProbeLimits
from tidemill.packages.loading.preparer import PackageReference, PreparedPackage
from tidemill.packages.loading.reader import PROGRAM, Package
from tidemill.packages.reconcile.reconciler import Reconciler
from tidemill.packages.service import PackageService
from tidemill.storage.store import Store
from tidemill.storage.tables.schedules import ScheduleKey


class PackageProbe:
    """Shows parts of the packages of a node that the public API does not show, and drives them step by step."""

    def __init__(self, service: PackageService) -> None:
        self._service = service

    @classmethod
    def of(cls, node: Node) -> "PackageProbe":
        """Return the probe of a node that runs on real time."""
        return cls(node._packages)

    # -- state

    @property
    def store(self) -> Store:
        """The store that holds the records of packages, schedules and runs."""
        return self._service.store

    @property
    def loaded(self) -> dict[tuple[str, str], str]:
        """The versions of the loaded packages, by tenant and name."""
        return {key: one.version for key, one in sorted(self._service.installer.definitions.items())}

    @property
    def pending_cleanups(self) -> list[tuple[str, str]]:
        """The packages, by tenant and name, whose rollback or removal is still to be finished."""
        return list(self._service.installer.pipeline.pending_cleanups)

    @property
    def copies(self) -> list[Path]:
        """The copies of package files that the node keeps."""
        return self._service.files.preparer.copies.folders()

    @property
    def has_warm_probe(self) -> bool:
        """Whether the node keeps a probe process ready for the next package."""
        return self._service.files.preparer.warm_probe is not None

    @property
    def warm_probe_pid(self) -> int | None:
        """The process id of the probe process that is ready; None if none is."""
        warm_probe = self._service.files.preparer.warm_probe
        return None if warm_probe is None else warm_probe.pid

    def running_keys(self) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        """Return the reactors and the accumulators that run, by tenant and name."""
        return self._service.installer.scheduler.loaded.running_keys()

    def subscribers(self, reactor: str, tenant: str = "public") -> list[str]:
        """Return the graphs that are bound to a reactor."""
        return self._service.installer.scheduler.loaded.subscribers(tenant, reactor)

    def traces(self, tenant: str = "public") -> dict[str, Any]:
        """Return everything that packages have in this process, apart from the registry; the node leads."""
        engine, tasks = self._service.installer.engine, self._service.tasks
        assert engine.leader.scheduler is not None, "the node does not lead"
        schedules, triggers = engine.leader.scheduler.due_work
        assert isinstance(schedules, ScheduleRunner)
        assert isinstance(triggers, TriggerPollers)
        return {
            "loaded": self.loaded,
            "pending cleanups": self.pending_cleanups,
            "running": self.running_keys(),
            "bound": {name: self.subscribers(name, tenant) for name in self._service.registry.reactors(tenant)},
            "tasks": sorted(tasks.names),
            "workflow tasks": sorted(engine.runtime.tasks.names),
            "current": sorted(engine.versions.current),
            "schedules": sorted(schedules.watched_keys),
            "triggers": sorted(triggers.watched_keys),
        }

    # -- actions

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run work in a task of the node, which a crash of the node cancels."""
        self._service.tasks.start("test", work)

    def set_probe_limits(self, limits: ProbeLimits) -> None:
        """Set the limits of the next probes and imports."""
        self._service.files.preparer.limits = limits

    async def prepare(self, contents: PackageContents, tenant: str = "public") -> PreparedPackage:
        """Prepare a package without installing it."""
        return await self._service.prepare(contents, tenant, PROGRAM)

    async def install_prepared(self, prepared: PreparedPackage, tenant: str = "public") -> str:
        """Install a prepared package."""
        return await self._service.install(prepared, tenant, PROGRAM)

    async def install(self, package: Package, tenant: str = "public", reference: PackageReference | None = None) -> str:
        """Install definitions as a package, with a reference to what was imported for them."""
        return await self._service.install_package(package, tenant, reference=reference)

    async def load_all(self, paths: Sequence[Path], tenant: str = "public") -> dict[Path, str]:
        """Load several package files together, as a node does when it starts."""
        return await self._service.load_all(paths, tenant)

    async def watch_registry(self) -> Reconciler:
        """Load what is published in the store, as a node with `load_published` does."""
        return await self._service.watch_registry()

    @asynccontextmanager
    async def holding_changes(self) -> AsyncIterator[None]:
        """Let no load or unload begin."""
        async with self._service.installer.pipeline.change_lock:
            yield

    async def close(self) -> None:
        """Stop everything that was loaded, as a closing node does."""
        await self._service.close()

    async def recover_interrupted(self) -> None:
        """Undo what dead nodes left half loaded."""
        await self._service.records.recover_interrupted()

    async def schedules_of_other_nodes(self) -> set[ScheduleKey]:
        """Return the schedules that other nodes have loaded."""
        return await self._service.records.schedules_of_other_nodes()
