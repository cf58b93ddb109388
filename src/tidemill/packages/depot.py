"""The depot of one node: packages that lie in folders, archives and registries, on their way to being loaded.

What is loaded on demand, by its path, raises what is wrong with it. What a source wants is seen to by a reconciler:
that never raises, waits for others if it has to, and tells in the status how things stand.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from tidemill.engine.registry import Registry
from tidemill.engine.service import Tasks, stop
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import in_thread
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.kernel.settings import Settings
from tidemill.packages.archive import Contents, read_package_at
from tidemill.packages.ledger import origin_of
from tidemill.packages.metadata import Metadata
from tidemill.packages.ports import Installed, Site
from tidemill.packages.preparing import Prepared, Workshop
from tidemill.packages.reconciler import Reconciler
from tidemill.packages.service import PackageService
from tidemill.packages.signature import load_public_keys
from tidemill.packages.sources.database import RegistrySource
from tidemill.packages.sources.folder import FolderSource
from tidemill.packages.sources.plain import contents_of_file
from tidemill.packages.status import PackageStatus, StatusListener
from tidemill.packages.trust import Trust
from tidemill.packages.wanted import PackageKey, Source
from tidemill.storage.ports import Store
from tidemill.telemetry.metrics import Sample


class Depot:
    """Prepares packages and hands them to the service, on demand or because a source wants them."""

    def __init__(
        self,
        service: PackageService,
        store: Store,
        registry: Registry,
        *,
        settings: Settings,
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        file_keys = [] if settings.trusted_keys is None else load_public_keys(Path(settings.trusted_keys))
        trust = Trust(store.trusted_keys, file_keys, settings.require_signatures)
        self._workshop = Workshop(None, trust, clock)
        self._service = service
        self._store = store
        self._registry = registry
        self._settings = settings
        self._tasks = tasks
        self._clock = clock
        self._watching: list[_Watch] = []
        service.changed = self._changed

    # -- on demand

    async def load(self, path: Path, tenant: str, *, allow_downgrade: bool = False) -> str:
        """Load the package in a folder, an archive or a Python file; return its name."""
        contents = await in_thread(_contents, path)
        prepared = await self.prepare(contents, tenant, allow_downgrade=allow_downgrade)
        try:
            return await self.install(prepared, tenant, allow_downgrade=allow_downgrade)
        finally:
            prepared.discard()

    async def load_all(self, paths: Sequence[Path], tenant: str, *, allow_downgrade: bool = False) -> dict[Path, str]:
        """Load several packages, each after those that bring what it names; return their names."""
        names: dict[Path, str] = {}
        read = {path: await in_thread(_contents, path) for path in paths}
        _refuse_namesakes(read)
        async with self._all_prepared(read, tenant, allow_downgrade=allow_downgrade) as prepared:
            waiting = {path: prepared[path] for path in read}
            while waiting:
                ready = [path for path, one in waiting.items() if not self.missing(tenant, one.metadata)]
                path = next(iter(ready or waiting))  # one that misses something says so itself
                names[path] = await self.install(waiting.pop(path), tenant, allow_downgrade=allow_downgrade)
        return names

    @asynccontextmanager
    async def _all_prepared(
        self, packages: Mapping[Path, Contents], tenant: str, **options: bool
    ) -> AsyncIterator[Mapping[Path, Prepared]]:
        """Make several packages ready at once; raises the first error, in the order in which they were given."""
        prepared: dict[Path, Prepared] = {}
        errors: dict[Path, Exception] = {}

        async def prepare(path: Path, contents: Contents) -> None:
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
        self, contents: Contents, tenant: str, *, allow_downgrade: bool = False, is_own: bool = False
    ) -> Prepared:
        """Make a package ready beside what runs; refused below a version that was recorded, unless that is allowed."""
        if not allow_downgrade:
            manifest = contents.manifest
            await self._service.ledger.check_version(tenant, manifest.name, str(manifest.version))
        return await self._workshop.prepare(contents, tenant, is_own=is_own)

    async def install(self, prepared: Prepared, tenant: str, origin: str = "", *, allow_downgrade: bool = False) -> str:
        """Load what was prepared, which is only borrowed."""
        package = replace(prepared.package, origin=origin, allow_downgrade=allow_downgrade)
        return await self._service.install(package, tenant, prepared.lend())

    def missing(self, tenant: str, metadata: Metadata) -> list[str]:
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
        self, path: Path, tenant: str, told: StatusListener | None = None, *, is_own: bool = False
    ) -> Reconciler:
        """Load what lies in a folder, as it is saved there; the developer's own code is tried where it is to run.

        An older version is what its owner wants, unless signatures are required: then who may write to the folder may
        still not bring back what was signed once.
        """
        self._workshop.keep_spare()
        allow_downgrade = self._settings.allow_downgrade or not self._settings.require_signatures
        site = _OriginSite(self, self._service, f"folder {path}", allow_downgrade=allow_downgrade, is_own=is_own)
        return await self._watch(FolderSource(path, tenant), site, told)

    async def watch_registry(self) -> Reconciler:
        """Load what was published in the store's registry; whether it may be older was asked when it was published."""
        source = RegistrySource(
            self._store.packages,
            self._clock,
            self._settings.package_poll_interval,
            lambda heard: self._store.listen(heard, "packages"),
        )
        return await self._watch(source, _OriginSite(self, self._service, "registry", allow_downgrade=True))

    async def _watch(self, source: Source, site: "_OriginSite", told: StatusListener | None = None) -> Reconciler:
        origin = site.origin
        reconciler = Reconciler(source, site, self._clock, self._tasks, self._settings, told=told)
        await self._clear_up(source, origin)
        task = self._tasks.start(f"packages of {origin}", reconciler.run())
        self._watching.append(_Watch(origin, reconciler, task))
        return reconciler

    def refuse_wanted(self, name: str, tenant: str) -> None:
        """Refuse to unload what the source wants that has brought it: it would only come back."""
        key = PackageKey(tenant, name)
        held = self._service.installer.holdings.get(key)
        for one in self._watching:
            if held is not None and held.origin == one.origin and one.reconciler.wants(key):
                message = f"package '{name}' is wanted by the {one.origin}, and would be back at once: remove it there"
                raise RequestError(message, code="wanted", status=409, package=name)

    async def _clear_up(self, source: Source, origin: str) -> None:
        """Take away what earlier lives have left in the store of packages that their source wants no more."""
        pages = [page for page in await self._service.ledger.left_by_the_dead() if origin_of(page) == origin]
        if pages:
            try:
                wanted = await source.wanted()
            except TidemillError:
                return  # it cannot be told now what is wanted, and rows that stay harm nobody
            for page in pages:
                if (page.tenant, page.name) not in wanted:
                    await self._service.ledger.take_away(page)

    def _changed(self) -> None:
        for one in self._watching:
            one.reconciler.changed()

    # -- looking, and the end

    @property
    def reconcilers(self) -> list[Reconciler]:
        """Those that see to what sources want."""
        return [one.reconciler for one in self._watching]

    def status(self) -> list[tuple[str, PackageStatus]]:
        """Return how things stand with what sources want, each with the origin that its source gives to packages."""
        return [(one.origin, status) for one in self._watching for status in one.reconciler.status()]

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
        for one in self._watching:
            await stop(one.task)

    async def close(self) -> None:
        """Remove every copy."""
        await self._workshop.close()


class _Watch(NamedTuple):
    """A source that is seen to."""

    origin: str
    reconciler: Reconciler
    task: asyncio.Task[Any]


class _OriginSite(Site):
    """A node as the reconciler of one source sees it."""

    def __init__(
        self, depot: Depot, service: PackageService, origin: str, *, allow_downgrade: bool, is_own: bool = False
    ) -> None:
        self.origin = origin
        self._depot = depot
        self._service = service
        self._allow_downgrade = allow_downgrade
        self._is_own = is_own

    async def prepare(self, key: PackageKey, contents: Contents) -> Prepared:
        allow_downgrade, is_own = self._allow_downgrade, self._is_own
        return await self._depot.prepare(contents, key.tenant, allow_downgrade=allow_downgrade, is_own=is_own)

    def missing(self, tenant: str, metadata: Metadata) -> list[str]:
        return self._depot.missing(tenant, metadata)

    async def install(self, key: PackageKey, prepared: Prepared) -> None:
        await self._depot.install(prepared, key.tenant, self.origin, allow_downgrade=self._allow_downgrade)

    async def remove(self, key: PackageKey) -> None:
        await self._service.unload(key.name, key.tenant)

    def installed(self) -> Mapping[PackageKey, Installed]:
        held = self._service.installer.holdings
        return {PackageKey(*key): Installed(one.version, one.digest) for key, one in held.items()}


def _refuse_namesakes(packages: Mapping[Path, Contents]) -> None:
    """Refuse two packages of one name: later, the second swaps the first, but nobody means that at once."""
    first: dict[str, Path] = {}
    for path, contents in packages.items():
        name = contents.manifest.name
        if first.setdefault(name, path) != path:
            message = f"package '{name}' is to be loaded twice, from {first[name]} and from {path}; leave one out"
            raise RequestError(message, code="name_taken", status=409, name=name)


def _contents(path: Path) -> Contents:
    return contents_of_file(path) if path.suffix == ".py" and not path.is_dir() else read_package_at(path)
