"""The packages of one node: loading and unloading them, watching their sources, and their status.

A node that loads only definitions does not import what reads package files: `packages.files`, with the preparer,
signatures and reconcilers, is imported when the first package file is loaded or the first source is watched.
"""

import asyncio
import importlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.registry import Registry
from tidemill.engine.tasks import cancel_and_wait
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.packages.deploy.change import NO_DEFINITIONS, NameClaim, definition_names
from tidemill.packages.deploy.checks import missing_dependencies
from tidemill.packages.deploy.install_records import InstallRecords
from tidemill.packages.deploy.installer import NOTHING_LEAVING, Installer
from tidemill.packages.loading.metadata import PackageMetadata
from tidemill.packages.loading.reader import PROGRAM, REGISTRY, Package, PackageOrigin, PackageScope, read_package
from tidemill.packages.standby import StandbyLoads
from tidemill.packages.status import (
    InstalledPackage,
    PackageKey,
    PackageStatus,
    StatusListener,
    StatusReport,
    merge_reports,
)
from tidemill.storage.store import Store
from tidemill.telemetry import events
from tidemill.telemetry.metrics import Sample

if TYPE_CHECKING:
    from tidemill.packages.deploy.older_archives import OlderArchives
    from tidemill.packages.files import PackageFiles
    from tidemill.packages.format.archive import PackageContents
    from tidemill.packages.loading.preparer import PackageReference, PreparedPackage
    from tidemill.packages.reconcile.decision import PackageSource
    from tidemill.packages.reconcile.reconciler import Reconciler

REGISTRY_PATIENCE = 60.0
"""Seconds for which a node that starts waits for a registry that cannot be read."""


class PackageService:
    """Loads, unloads and watches the packages of one node, for every tenant."""

    def __init__(
        self,
        store: Store,
        runtime: GraphRuntime,
        registry: Registry,
        scheduler: GraphScheduler,
        workflows: WorkflowEngine,
        liveness: ProcessLiveness,
        standby: StandbyLoads,
        *,
        scope: PackageScope = "all",
    ) -> None:
        """Create the service of a node; `scope` is what it loads of each package."""
        self.store = store
        self._scope: PackageScope = scope
        self.registry = registry
        self._settings = runtime.settings
        self.tasks = runtime.tasks
        self._node_events = runtime.node_events
        self._clock = runtime.clock
        self.records = InstallRecords(store, workflows.owner, liveness, runtime.clock)
        self.installer = Installer(
            runtime, scheduler, registry, workflows, store, self.records, standby, self._notify_reconcilers
        )
        self._files: PackageFiles | None = None
        self._watched_sources: list[_WatchedSource] = []
        self._older_code: OlderArchives | None = None

    # -- loading and unloading

    async def recover(self) -> None:
        """Undo what earlier processes left half loaded or half unloaded."""
        await self.records.recover_interrupted()

    async def load(self, thing: Any, tenant: str, *, allow_downgrade: bool | None = None) -> str:
        """Load a module, a definition, or the path of a package folder, archive or Python file; return its name.

        A package that is already loaded is replaced without a gap. `allow_downgrade` defaults to the setting.
        """
        if not isinstance(thing, str | Path):
            return await self.install_package(read_package(thing), tenant)
        origin = self._program_origin(allow_downgrade)
        contents = await self.files.preparer.read(Path(thing))
        prepared = await self._prepare_in_slot(contents, tenant, origin)
        try:
            return await self.install(prepared, tenant, origin)
        finally:
            prepared.discard()

    async def load_all(
        self, paths: Sequence[Path], tenant: str, *, allow_downgrade: bool | None = None
    ) -> dict[Path, str]:
        """Load several packages, each after those that it depends on; return their names."""
        origin, names = self._program_origin(allow_downgrade), {}
        contents = {path: await self.files.preparer.read(path) for path in paths}
        _check_distinct_names(contents)
        async with self._prepare_all(contents, tenant, origin) as prepared:
            waiting = {path: prepared[path] for path in contents}
            while waiting:
                ready = [path for path, one in waiting.items() if not self._is_incomplete(tenant, one.metadata)]
                path = next(iter(ready or waiting))  # if none is ready, installing one reports what is missing
                names[path] = await self.install(waiting.pop(path), tenant, origin)
        return names

    def _is_incomplete(self, tenant: str, metadata: PackageMetadata) -> bool:
        return bool(self.missing_dependencies(PackageKey(tenant, metadata.name), metadata))

    def _program_origin(self, allow_downgrade: bool | None) -> PackageOrigin:
        is_allowed = self._settings.allow_downgrade if allow_downgrade is None else allow_downgrade
        return PackageOrigin(allow_downgrade=is_allowed)

    @asynccontextmanager
    async def _prepare_all(
        self, packages: "Mapping[Path, PackageContents]", tenant: str, origin: PackageOrigin
    ) -> "AsyncIterator[Mapping[Path, PreparedPackage]]":
        """Prepare several packages in parallel; raise the error of the first one that failed, in the given order."""
        prepared: dict[Path, PreparedPackage] = {}
        errors: dict[Path, Exception] = {}

        async def prepare(path: Path, contents: "PackageContents") -> None:
            try:
                prepared[path] = await self._prepare_in_slot(contents, tenant, origin)
            except Exception as error:  # raised below, so that it does not depend on which task was faster
                errors[path] = error

        try:
            async with asyncio.TaskGroup() as group:
                for path, contents in packages.items():
                    group.create_task(prepare(path, contents), name=f"prepare {contents.manifest.name}")
            for path in packages:
                if path in errors:
                    raise errors[path]
            yield prepared
        finally:
            for one in prepared.values():
                one.discard()

    async def _prepare_in_slot(
        self, contents: "PackageContents", tenant: str, origin: PackageOrigin
    ) -> "PreparedPackage":
        async with self.files.preparer.limit.slot():
            return await self.prepare(contents, tenant, origin)

    async def prepare(self, contents: "PackageContents", tenant: str, origin: PackageOrigin) -> "PreparedPackage":
        """Prepare a package next to what runs; the caller holds a slot of the preparer's limit.

        A version below the recorded one is rejected unless the origin allows downgrades.
        """
        if not origin.allow_downgrade:
            manifest = contents.manifest
            await self.records.check_version(tenant, manifest.name, str(manifest.version))
        prepared = await self.files.preparer.prepare(contents, tenant, is_developer_code=origin.is_developer_code)
        prepared.metadata = prepared.metadata.within(self._scope, prepared.package)
        return prepared

    async def install(
        self,
        prepared: "PreparedPackage",
        tenant: str,
        origin: PackageOrigin,
        leaving: Mapping[PackageKey, frozenset[NameClaim]] = NOTHING_LEAVING,
    ) -> str:
        """Load a prepared package and return its name; the caller still discards `prepared`.

        `leaving` are names that other packages give up: the package takes over those that it declares.
        """
        return await self.install_package(prepared.package, tenant, origin, prepared.add_reference(), leaving)

    async def install_package(
        self,
        package: Package,
        tenant: str,
        origin: PackageOrigin = PROGRAM,
        reference: "PackageReference | None" = None,
        leaving: Mapping[PackageKey, frozenset[NameClaim]] = NOTHING_LEAVING,
    ) -> str:
        """Load a package and return its name; it completes even if the caller is cancelled.

        `reference` keeps the imported modules; it is released when nothing needs them.
        """
        work = self.installer.load(package.within(self._scope), tenant, origin, reference, leaving)
        await self.tasks.run_shielded(f"package {package.name}: load", work)
        if self._node_events.is_recorded and (loaded := self.installed(PackageKey(tenant, package.name))) is not None:
            fields = {"package": package.name, "version": loaded.version}
            self._node_events.publish(events.PACKAGE_LOADED, tenant, **fields)
        return package.name

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package; it completes even if the caller is cancelled.

        Rejected while other packages need it, and while the source that loaded it still wants it.
        """
        self._check_not_desired(PackageKey(tenant, name))
        await self.tasks.run_shielded(f"package {name}: unload", self.installer.unload(name, tenant))
        self._node_events.publish(events.PACKAGE_REMOVED, tenant, package=name)

    async def reclaim(self, tenant: str, reactor: str) -> None:
        """Acquire a reactor that another node had acquired; it completes even if the caller is cancelled."""
        await self.installer.reclaim(tenant, reactor)

    def _check_not_desired(self, key: PackageKey) -> None:
        definitions = self.installer.definitions.get(key)
        for source in self._watched_sources:
            is_owner = definitions is not None and definitions.origin == source.reconciler.origin
            if is_owner and source.reconciler.is_desired(key):
                message = f"package '{key.name}' is wanted by the {source.reconciler.origin}, which would load it again"
                raise RequestError(f"{message}: remove it there", code="wanted", status=409, package=key.name)

    def missing_dependencies(self, key: PackageKey, metadata: PackageMetadata) -> list[str]:
        """Return what other packages must provide before a package can be installed."""
        leaving = self.loaded_names(key) - self.declared_names(key.tenant, metadata)
        return missing_dependencies(self.registry, key.tenant, metadata, leaving)

    def loaded_names(self, key: PackageKey) -> frozenset[NameClaim]:
        """Return the names that the loaded version of a package defines; none if it is not loaded."""
        return self.installer.definitions.get(key, NO_DEFINITIONS).names(key.tenant)

    def declared_names(self, tenant: str, metadata: PackageMetadata) -> frozenset[NameClaim]:
        """Return the names that a version declares, with those that it only imports."""
        return definition_names(tenant, metadata.reactors, metadata.graphs, metadata.triggers, metadata.workflows)

    def installed(self, key: PackageKey) -> InstalledPackage | None:
        """Return the loaded version of a package; None if it is not loaded."""
        definitions = self.installer.definitions.get(key)
        return None if definitions is None else InstalledPackage(definitions.version, definitions.digest)

    @property
    def files(self) -> "PackageFiles":
        """The part that reads package files and sources, which is imported and made when it is first needed."""
        if self._files is None:
            kind: type[PackageFiles] = importlib.import_module("tidemill.packages.files").PackageFiles
            self._files = kind(self, self.store, clock=self._clock, tasks=self.tasks, settings=self._settings)
        return self._files

    # -- watching sources

    async def watch_folder(
        self, path: Path, tenant: str, on_status: StatusListener | None = None, *, is_developer_code: bool = False
    ) -> "Reconciler":
        """Load the packages of a folder, and reload them as they are saved.

        Developer code is probed with the environment of this process. An older version is loaded, since the owner of
        the folder put it there, unless signatures are required: write access to the folder does not allow to bring
        back an older signed version.
        """
        allow_downgrade = self._settings.allow_downgrade or not self._settings.require_signatures
        origin = PackageOrigin(
            name=f"folder {path}", allow_downgrade=allow_downgrade, is_developer_code=is_developer_code
        )
        listener = self._publishing_failures(on_status)
        return await self._watch(self.files.make_folder_reconciler(path, tenant, origin, listener))

    @property
    def loads_published(self) -> bool:
        """Whether this node loads the packages of the registry."""
        return any(one.reconciler.origin == REGISTRY for one in self._watched_sources)

    def on_pools_found(self) -> None:
        """Try the packages again that failed because a pool did not exist."""
        self._notify_reconcilers()

    def on_registry_changed(self) -> None:
        """Read the registry now, because this process has changed it."""
        for one in self._watched_sources:
            if one.reconciler.origin == REGISTRY:
                one.reconciler.on_source_changed()

    async def watch_registry(self) -> "Reconciler":
        """Load the packages of the store's registry; downgrades were checked when they were published."""
        origin = PackageOrigin(name=REGISTRY, allow_downgrade=True)
        reconciler = await self._watch(self.files.make_registry_reconciler(origin, self._publishing_failures(None)))
        if self._scope != "partitions":  # what runs partitions runs no tasks
            self._older_code = older = self.files.make_older_code(self.installer)
            self.tasks.start("packages: code of unfinished runs", older.run(reconciler.wait_until_settled))
        return reconciler

    def _publishing_failures(self, on_status: StatusListener | None) -> StatusListener:
        """Return a listener that publishes failures to the event feed, and passes every status on."""

        def listen(status: PackageStatus) -> None:
            if status.state == "failed":
                fields = {"package": status.name, "version": status.wanted, "reason": status.reason}
                self._node_events.publish(events.PACKAGE_FAILED, status.tenant, **fields)
            if on_status is not None:
                on_status(status)

        return listen

    async def _watch(self, reconciler: "Reconciler") -> "Reconciler":
        await self._remove_stale_records(reconciler.source, reconciler.origin)
        task = self.tasks.start(f"packages of {reconciler.origin}", reconciler.run())
        self._watched_sources.append(_WatchedSource(reconciler, task, self._clock.monotonic()))
        return reconciler

    async def _remove_stale_records(self, source: "PackageSource", origin: str) -> None:
        """Remove what dead nodes left in the store of packages that their source no longer wants."""
        if records := await self.records.loaded_by_dead_nodes(origin):
            source.remember_packages(PackageKey(one.tenant, one.name) for one in records)
            try:
                desired = await source.desired_packages()
            except TidemillError:
                return  # the source is not readable now, and stale rows do no harm
            if any(one.version is None for one in desired.values()):
                return  # a package whose manifest is damaged now may be any of them
            for record in records:
                if (record.tenant, record.name) not in desired:
                    await self.records.remove_record(record)

    def _notify_reconcilers(self) -> None:
        for source in self._watched_sources:
            source.reconciler.on_packages_changed()

    # -- status

    def status(self) -> list[PackageStatus]:
        """Return the status of every package that is loaded or that a source wants."""
        reports: dict[PackageKey, list[StatusReport]] = {key: [] for key in self.installer.definitions}
        for source in self._watched_sources:
            for status in source.reconciler.status():
                report = StatusReport(source.reconciler.origin, status)
                reports.setdefault(PackageKey(status.tenant, status.name), []).append(report)
        return [self._merge_status(key, reported) for key, reported in sorted(reports.items())]

    def find_unsettled(self) -> str:
        """Return what is left to do before every package that was wanted at the start has been tried; "" if nothing.

        A folder that cannot be read has been tried; a registry only after REGISTRY_PATIENCE, for its store may be away.
        """
        unsettled = [one.reconciler for one in self._watched_sources if not self._is_settled(one)]
        if number := sum(one.busy_count for one in unsettled):
            return f"{number} {'is' if number == 1 else 'are'} still being loaded"
        return "it was not read yet which are wanted" if unsettled else ""

    def _is_settled(self, source: "_WatchedSource") -> bool:
        reconciler = source.reconciler
        if reconciler.is_settled or not reconciler.source_error:
            return reconciler.is_settled
        return reconciler.origin != REGISTRY or self._clock.monotonic() - source.since >= REGISTRY_PATIENCE

    def count_unreadable_sources(self) -> int:
        """Return the number of sources that cannot be read at present."""
        return sum(bool(one.reconciler.source_error) for one in self._watched_sources)

    def _merge_status(self, key: PackageKey, reports: Sequence[StatusReport]) -> PackageStatus:
        definitions = self.installer.definitions.get(key)
        if definitions is None:
            return merge_reports(None, "", reports)
        loaded = PackageStatus(
            tenant=key.tenant,
            name=key.name,
            version=definitions.version,
            wanted=definitions.version,
            state="loaded",
            since=self.installer.loaded_at[key],
        )
        return merge_reports(loaded, definitions.origin, reports)

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of the packages, those of all sources added up."""
        yield Sample("packages_loaded", len(self.installer.definitions))
        counts: Counter[str] = Counter()
        for source in self._watched_sources:
            counts.update({sample.name: int(sample.value) for sample in source.reconciler.samples()})
        yield from (Sample(name, count) for name, count in counts.items())

    @property
    def is_using_store(self) -> bool:
        """Whether a read or a write of the store is in progress."""
        return self.installer.pipeline.is_using_store

    @property
    def is_busy(self) -> bool:
        """Whether a package is being loaded or unloaded at this moment."""
        return self.installer.pipeline.is_busy

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do now."""
        is_loading_older = self._older_code is not None and not self._older_code.is_idle
        is_working = self.is_using_store or is_loading_older
        return not is_working and all(one.reconciler.is_idle for one in self._watched_sources)

    # -- closing

    async def stop(self) -> None:
        """Stop watching sources; loaded packages stay loaded."""
        for source in self._watched_sources:
            await cancel_and_wait(source.task)

    async def close(self) -> None:
        """Stop everything that was loaded."""
        await self.installer.close()

    async def remove_copies(self) -> None:
        """Remove the copies of package files; nothing of the packages may still run."""
        if self._files is not None:
            await self._files.preparer.close()


class _WatchedSource(NamedTuple):
    """The reconciler of a source, the task that runs it, and since when it does, by the monotonic clock."""

    reconciler: "Reconciler"
    task: "asyncio.Task[Any]"
    since: float


def _check_distinct_names(packages: "Mapping[Path, PackageContents]") -> None:
    """Reject two packages of one name. Loaded one after the other, the second would replace the first."""
    first: dict[str, Path] = {}
    for path, contents in packages.items():
        name = contents.manifest.name
        if first.setdefault(name, path) != path:
            message = f"package '{name}' is to be loaded twice, from {first[name]} and from {path}; leave one out"
            raise RequestError(message, code="name_taken", status=409, name=name)
