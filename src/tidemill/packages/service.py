"""The packages of one node: where they are loaded, and what they leave in the store."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.registry import Key, Registry
from tidemill.engine.tasks import TaskScope, cancel_and_wait
from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.kernel.settings import Settings
from tidemill.packages.deploy.install_records import InstallRecords, record_origin
from tidemill.packages.deploy.installer import Engine, Installer
from tidemill.packages.deploy.pipeline import Pipeline
from tidemill.packages.deploy.retired_versions import Keepsake, RetiredVersions
from tidemill.packages.deploy.steps import (
    GraphBindingsStep,
    ReactorsStep,
    SchedulesStep,
    TriggerlessGraphsStep,
    TriggersStep,
    WorkflowsStep,
)
from tidemill.packages.format.archive import PackageContents, read_folder_or_archive, read_python_file
from tidemill.packages.format.signature import TrustPolicy, load_public_keys
from tidemill.packages.loading.metadata import PackageMetadata
from tidemill.packages.loading.preparer import PackagePreparer, PreparedPackage
from tidemill.packages.loading.reader import Package, read_package
from tidemill.packages.reconcile.controller import InstalledPackage, PackageHost
from tidemill.packages.reconcile.decision import PackageKey, PackageSource
from tidemill.packages.reconcile.folder import FolderSource
from tidemill.packages.reconcile.reconciler import Reconciler
from tidemill.packages.reconcile.registry import RegistrySource
from tidemill.packages.status import PackageStatus, StatusListener, merge_statuses
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import Owner
from tidemill.telemetry.metrics import Sample


class PackageService:
    """Loads and unloads what is given as modules and definitions, and what others have prepared."""

    def __init__(
        self,
        store: Store,
        environment: GraphRuntime,
        registry: Registry,
        scheduler: GraphScheduler,
        workflows: Engine,
        *,
        owner: Owner,
        liveness: ProcessLiveness,
    ) -> None:
        clock, settings = environment.clock, environment.settings
        self._tasks = environment.tasks
        self.records = InstallRecords(store, owner, liveness, clock)
        steps = (
            SchedulesStep(store.schedules, clock, self.records),
            TriggersStep(registry),
            ReactorsStep(scheduler, registry),
            TriggerlessGraphsStep(registry),
            GraphBindingsStep(scheduler),
            WorkflowsStep(workflows, registry, store.schedules),
        )
        backoff = Backoff(settings.backoff_base, settings.backoff_max)
        self.pipeline = Pipeline(steps, self.records, environment.tasks, clock, backoff, self._on_cleanup_done)
        superseded = RetiredVersions(workflows, environment.tasks, clock, backoff)
        self.installer = Installer(scheduler, registry, workflows, self.pipeline, superseded, clock)
        self.on_change: Callable[[], None] = lambda: None
        """Called when a package was loaded or unloaded."""

    @property
    def is_using_store(self) -> bool:
        """Whether something is on its way to the store, or from it."""
        return self.pipeline.is_using_store

    @property
    def is_busy(self) -> bool:
        """Whether something is being loaded or unloaded at this moment."""
        return self.pipeline.is_busy

    async def recover(self) -> None:
        """Unwind what earlier lives have left half done."""
        await self.records.recover_interrupted()

    async def load(self, definition: Any, tenant: str) -> str:
        """Load a module or a definition, and return the package's name; loaded again, it is swapped hot."""
        return await self.install(read_package(definition), tenant)

    async def install(self, package: Package, tenant: str, reference: Keepsake | None = None) -> str:
        """Load a package; what was imported for it is kept as long as anything needs it.

        It is seen through, also if whoever asked stops waiting.
        """
        work = self._install(package, tenant, reference)
        return await self._tasks.run_shielded(f"package {package.name}: load", work)

    async def _install(self, package: Package, tenant: str, reference: Keepsake | None) -> str:
        name = await self.installer.load(package, tenant, reference)
        self.on_change()
        return name

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package; it is seen through, also if whoever asked stops waiting."""
        await self._tasks.run_shielded(f"package {name}: unload", self._unload(name, tenant))

    async def _unload(self, name: str, tenant: str) -> None:
        await self.installer.unload(name, tenant)
        self.on_change()

    async def _on_cleanup_done(self) -> None:
        """Take note that something was put back, or taken away, after all."""
        await self.installer.collect_retired()
        self.on_change()

    def status(self, reported: Iterable[tuple[str, PackageStatus]]) -> list[PackageStatus]:
        """Return how things stand with what is loaded or wanted; what is known of it comes with who says so.

        If several want one package, whoever has loaded it says how it stands, and the others what keeps them from it.
        """
        said: dict[Key, list[tuple[str, PackageStatus]]] = {key: [] for key in self.installer.definitions}
        for origin, one in reported:
            said.setdefault((one.tenant, one.name), []).append((origin, one))
        return [self._merge_status(key, pairs) for key, pairs in sorted(said.items())]

    def _merge_status(self, key: Key, reported: Sequence[tuple[str, PackageStatus]]) -> PackageStatus:
        held = self.installer.definitions.get(key)
        if held is None:
            return replace(merge_statuses(*(one for _, one in reported)), version="")
        loaded = PackageStatus(
            tenant=key[0],
            name=key[1],
            version=held.version,
            wanted=held.version,
            state="loaded",
            since=self.installer.loaded_at[key],
        )
        own = next((one for origin, one in reported if origin == held.origin), loaded)
        return replace(merge_statuses(own, *(one for _, one in reported if one is not own)), version=held.version)

    def abandon(self) -> None:
        """Leave everything as the death of the process would: what is half loaded stays so."""
        self.pipeline.abandon()

    async def close(self) -> None:
        """End everything that was loaded."""
        await self.installer.close()

    def samples(self) -> Iterator[Sample]:
        """Yield what is counted."""
        yield Sample("packages_loaded", len(self.installer.definitions))


class Depot:
    """Prepares packages and hands them to the service, on demand or because a source wants them."""

    def __init__(
        self,
        service: PackageService,
        store: Store,
        registry: Registry,
        *,
        settings: Settings,
        tasks: TaskScope,
        clock: Clock,
    ) -> None:
        file_keys = [] if settings.trusted_keys is None else load_public_keys(Path(settings.trusted_keys))
        trust = TrustPolicy(store.trusted_keys, file_keys, settings.require_signatures)
        self._preparer = PackagePreparer(None, trust, clock)
        self._service = service
        self._store = store
        self._registry = registry
        self._settings = settings
        self._tasks = tasks
        self._clock = clock
        self._watched_sources: list[_WatchedSource] = []
        service.on_change = self._notify_reconcilers

    # -- on demand

    async def load(self, path: Path, tenant: str, *, allow_downgrade: bool = False) -> str:
        """Load the package in a folder, an archive or a Python file; return its name."""
        contents = await call_in_thread(_read_contents, path)
        prepared = await self.prepare(contents, tenant, allow_downgrade=allow_downgrade)
        try:
            return await self.install(prepared, tenant, allow_downgrade=allow_downgrade)
        finally:
            prepared.discard()

    async def load_all(self, paths: Sequence[Path], tenant: str, *, allow_downgrade: bool = False) -> dict[Path, str]:
        """Load several packages, each after those that bring what it names; return their names."""
        names: dict[Path, str] = {}
        read = {path: await call_in_thread(_read_contents, path) for path in paths}
        _check_distinct_names(read)
        async with self._prepare_all(read, tenant, allow_downgrade=allow_downgrade) as prepared:
            waiting = {path: prepared[path] for path in read}
            while waiting:
                ready = [path for path, one in waiting.items() if not self.missing_dependencies(tenant, one.metadata)]
                path = next(iter(ready or waiting))  # one that misses something says so itself
                names[path] = await self.install(waiting.pop(path), tenant, allow_downgrade=allow_downgrade)
        return names

    @asynccontextmanager
    async def _prepare_all(
        self, packages: Mapping[Path, PackageContents], tenant: str, **options: bool
    ) -> AsyncIterator[Mapping[Path, PreparedPackage]]:
        """Make several packages ready at once; raises the first error, in the order in which they were given."""
        prepared: dict[Path, PreparedPackage] = {}
        errors: dict[Path, Exception] = {}

        async def prepare(path: Path, contents: PackageContents) -> None:
            try:
                prepared[path] = await self.prepare(contents, tenant, **options)
            except Exception as error:  # it is raised below: which one does not hang on who was faster
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

    async def prepare(
        self, contents: PackageContents, tenant: str, *, allow_downgrade: bool = False, is_developer_code: bool = False
    ) -> PreparedPackage:
        """Make a package ready beside what runs; refused below a version that was recorded, unless that is allowed."""
        if not allow_downgrade:
            manifest = contents.manifest
            await self._service.records.check_version(tenant, manifest.name, str(manifest.version))
        return await self._preparer.prepare(contents, tenant, is_developer_code=is_developer_code)

    async def install(
        self, prepared: PreparedPackage, tenant: str, origin: str = "", *, allow_downgrade: bool = False
    ) -> str:
        """Load what was prepared, which is only borrowed."""
        package = replace(prepared.package, origin=origin, allow_downgrade=allow_downgrade)
        return await self._service.install(package, tenant, prepared.add_reference())

    def missing_dependencies(self, tenant: str, metadata: PackageMetadata) -> list[str]:
        """Return what other packages must bring before this one can be loaded, in words."""
        reactors = {one.name for one in metadata.reactors} | set(self._registry.reactors(tenant))
        reactors |= {f"{tenant}/{name}" for name in reactors}
        graphs = {one.name for one in metadata.graphs} | set(self._registry.graphs(tenant))
        triggers = {one.name for one in metadata.triggers} | set(self._registry.triggers(tenant))
        bound = [one.reactor for one in metadata.graphs if one.reactor is not None]
        called = [name for one in metadata.workflows for name in one.graphs]
        polled = [name for one in metadata.workflows for name in one.triggers]
        return sorted(
            {f"reactor '{name}'" for name in bound if name not in reactors and not self._is_shared(name)}
            | {f"graph '{name}'" for name in called if name not in graphs}
            | {f"trigger '{name}'" for name in polled if name not in triggers}
        )

    def _is_shared(self, reactor: str) -> bool:
        owner, _, name = reactor.rpartition("/")
        return self._registry.is_shared(owner, name)

    # -- because a source wants it

    async def watch_folder(
        self, path: Path, tenant: str, on_status: StatusListener | None = None, *, is_developer_code: bool = False
    ) -> Reconciler:
        """Load what lies in a folder, as it is saved there; the developer's own code is tried where it is to run.

        An older version is what its owner wants, unless signatures are required: then who may write to the folder may
        still not bring back what was signed once.
        """
        self._preparer.keep_warm_probe()
        allow_downgrade = self._settings.allow_downgrade or not self._settings.require_signatures
        site = _OriginHost(
            self, self._service, f"folder {path}", allow_downgrade=allow_downgrade, is_developer_code=is_developer_code
        )
        return await self._watch(FolderSource(path, tenant), site, on_status)

    async def watch_registry(self) -> Reconciler:
        """Load what was published in the store's registry; whether it may be older was asked when it was published."""
        source = RegistrySource(
            self._store.packages,
            self._clock,
            self._settings.package_poll_interval,
            lambda heard: self._store.listen(heard, "packages"),
        )
        return await self._watch(source, _OriginHost(self, self._service, "registry", allow_downgrade=True))

    async def _watch(
        self, source: PackageSource, host: "_OriginHost", on_status: StatusListener | None = None
    ) -> Reconciler:
        origin = host.origin
        reconciler = Reconciler(source, host, self._clock, self._tasks, self._settings, on_status=on_status)
        await self._remove_stale_records(source, origin)
        task = self._tasks.start(f"packages of {origin}", reconciler.run())
        self._watched_sources.append(_WatchedSource(origin, reconciler, task))
        return reconciler

    def check_not_desired(self, name: str, tenant: str) -> None:
        """Refuse to unload what the source wants that has brought it: it would only come back."""
        key = PackageKey(tenant, name)
        held = self._service.installer.definitions.get(key)
        for one in self._watched_sources:
            if held is not None and held.origin == one.origin and one.reconciler.is_desired(key):
                message = f"package '{name}' is wanted by the {one.origin}, and would be back at once: remove it there"
                raise RequestError(message, code="wanted", status=409, package=name)

    async def _remove_stale_records(self, source: PackageSource, origin: str) -> None:
        """Take away what earlier lives have left in the store of packages that their source wants no more."""
        pages = [page for page in await self._service.records.loaded_by_dead_nodes() if record_origin(page) == origin]
        if pages:
            try:
                wanted = await source.desired_packages()
            except TidemillError:
                return  # it cannot be told now what is wanted, and rows that stay harm nobody
            for page in pages:
                if (page.tenant, page.name) not in wanted:
                    await self._service.records.remove_record(page)

    def _notify_reconcilers(self) -> None:
        for one in self._watched_sources:
            one.reconciler.on_packages_changed()

    # -- looking, and the end

    @property
    def reconcilers(self) -> list[Reconciler]:
        """Those that see to what sources want."""
        return [one.reconciler for one in self._watched_sources]

    def status(self) -> list[tuple[str, PackageStatus]]:
        """Return how things stand with what sources want, each with the origin that its source gives to packages."""
        return [(one.origin, status) for one in self._watched_sources for status in one.reconciler.status()]

    def samples(self) -> Iterator[Sample]:
        """Yield what all sources together come to."""
        counts: Counter[str] = Counter()
        for one in self.reconcilers:
            counts.update({sample.name: int(sample.value) for sample in one.samples()})
        return (Sample(name, count) for name, count in counts.items())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being loaded or unloaded, or is to be now."""
        return all(one.is_idle for one in self.reconcilers)

    async def stop(self) -> None:
        """Load and unload nothing any more."""
        for one in self._watched_sources:
            await cancel_and_wait(one.task)

    async def close(self) -> None:
        """Remove every copy."""
        await self._preparer.close()


class _WatchedSource(NamedTuple):
    """A source that is seen to."""

    origin: str
    reconciler: Reconciler
    task: asyncio.Task[Any]


class _OriginHost(PackageHost):
    """A node as the reconciler of one source sees it."""

    def __init__(
        self,
        depot: Depot,
        service: PackageService,
        origin: str,
        *,
        allow_downgrade: bool,
        is_developer_code: bool = False,
    ) -> None:
        self.origin = origin
        self._depot = depot
        self._service = service
        self._allow_downgrade = allow_downgrade
        self._is_developer_code = is_developer_code

    async def prepare(self, key: PackageKey, contents: PackageContents) -> PreparedPackage:
        allow_downgrade, is_own = self._allow_downgrade, self._is_developer_code
        return await self._depot.prepare(
            contents, key.tenant, allow_downgrade=allow_downgrade, is_developer_code=is_own
        )

    def missing_dependencies(self, tenant: str, metadata: PackageMetadata) -> list[str]:
        return self._depot.missing_dependencies(tenant, metadata)

    async def install(self, key: PackageKey, prepared: PreparedPackage) -> None:
        await self._depot.install(prepared, key.tenant, self.origin, allow_downgrade=self._allow_downgrade)

    async def remove(self, key: PackageKey) -> None:
        await self._service.unload(key.name, key.tenant)

    def installed(self) -> Mapping[PackageKey, InstalledPackage]:
        held = self._service.installer.definitions
        return {PackageKey(*key): InstalledPackage(one.version, one.digest) for key, one in held.items()}


def _check_distinct_names(packages: Mapping[Path, PackageContents]) -> None:
    """Refuse two packages of one name: later, the second swaps the first, but nobody means that at once."""
    first: dict[str, Path] = {}
    for path, contents in packages.items():
        name = contents.manifest.name
        if first.setdefault(name, path) != path:
            message = f"package '{name}' is to be loaded twice, from {first[name]} and from {path}; leave one out"
            raise RequestError(message, code="name_taken", status=409, name=name)


def _read_contents(path: Path) -> PackageContents:
    return read_python_file(path) if path.suffix == ".py" and not path.is_dir() else read_folder_or_archive(path)
