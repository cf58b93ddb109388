"""A fake source and a fake host for reconcilers: they keep their contracts, fail on demand, and record violations."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import msgspec

from tidemill.engine.tasks import TaskScope
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError, StoreError
from tidemill.kernel.settings import Settings
from tidemill.packages.deploy.change import NameClaim
from tidemill.packages.loading.preparer import PREPARE_LIMIT, ConcurrencyLimit
from tidemill.packages.loading.reader import PackageOrigin
from tidemill.packages.reconcile.decision import DesiredPackage
from tidemill.packages.reconcile.reconciler import Reconciler
from tidemill.packages.status import InstalledPackage, PackageKey, PackageStatus

BROKEN = DefinitionError([Problem(message="no such name", location=Location("market.py", 3))], "package 'market'")
MARKET = frozenset(["market"])
TURN_LIMIT = 2000  # turns of the loop after which work is taken to hang


def key(name: str) -> PackageKey:
    return PackageKey("public", name)


class FakeVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a package: which reactors it provides and needs, and how it fails."""

    version: str = "1.0.0"
    digest: str = "1"
    provides: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    read_error: Exception | None = None
    prepare_error: Exception | None = None
    install_error: Exception | None = None
    hangs: bool = False
    """Whether its import never ends."""


def version(number: int, **options: object) -> FakeVersion:
    """Return a version of a package."""
    return FakeVersion(version=f"{number}.0.0", digest=str(number), **options)


class FakeContents(NamedTuple):
    """The contents of a version."""

    name: str
    version: FakeVersion


class FakePrepared:
    """A prepared version. Its digest differs from that of the desired package, as for real packages."""

    def __init__(self, name: str, version: FakeVersion, living: "set[FakePrepared]") -> None:
        self.name = name
        self.metadata = self.version = version
        self.digest = f"of {version}"
        self.is_loaded = False
        self._is_kept = True
        self._living = living
        living.add(self)

    def discard(self) -> None:
        self._is_kept = False
        self._forget_unused()

    def set_loaded(self, *, is_loaded: bool) -> None:
        """Record that the version was loaded or unloaded."""
        assert self in self._living, "it was discarded"
        self.is_loaded = is_loaded
        self._forget_unused()

    def _forget_unused(self) -> None:
        if not self._is_kept and not self.is_loaded:
            self._living.discard(self)


class FakeSource:
    """Desires the packages that a test sets."""

    def __init__(self) -> None:
        self.versions: dict[PackageKey, FakeVersion] = {}
        self.titles: dict[str, str] = {}
        self.error: Exception | None = None
        self.reads = 0
        self._changed = asyncio.Event()

    def want(self, name: str, version: FakeVersion | None) -> None:
        """Desire a version of a package, or no longer the package."""
        self.want_silently(name, version)
        self._changed.set()

    def want_silently(self, name: str, version: FakeVersion | None) -> None:
        """Desire a version of a package without a notification."""
        if version is None:
            self.versions.pop(key(name), None)
        else:
            self.versions[key(name)] = version

    def notify(self) -> None:
        """Announce that something may have changed."""
        self._changed.set()

    @property
    def is_notified(self) -> bool:
        """Whether a notification has not been received yet."""
        return self._changed.is_set()

    async def desired_packages(self) -> Mapping[PackageKey, DesiredPackage]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return {
            one: DesiredPackage(
                key=one,
                digest=version.digest,
                title=self.titles.get(one.name, one.name),
                version=version.version,
                read=_reader(one.name, version),
            )
            for one, version in self.versions.items()
        }

    async def wait_for_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()


def _reader(name: str, version: FakeVersion) -> Any:
    async def read() -> FakeContents:
        await asyncio.sleep(0)
        if version.read_error is not None:
            raise version.read_error
        return FakeContents(name, version)

    return read


def _claims(tenant: str, reactors: frozenset[str]) -> frozenset[NameClaim]:
    return frozenset(NameClaim("reactor", tenant, name) for name in reactors)


class FakeHost:
    """Loads versions: protects reactors that others need, rejects taken names, and writes to a store."""

    def __init__(self) -> None:
        self.loaded: dict[PackageKey, FakePrepared] = {}
        self.prepared: set[FakePrepared] = set()
        """Those that are neither discarded nor replaced."""
        self.handed_over: dict[PackageKey, frozenset[str]] = {}
        """The reactors that other packages took over from a loaded one."""
        self.trace: list[tuple[str, str]] = []
        self.preparing = 0
        self.max_preparing = 0
        """The largest number of versions that were prepared at the same time."""
        self.store_failures = 0
        self.lag: Counter[str] = Counter()
        """Turns of the loop from an effect on a package to the answer."""
        self.after_replace: Callable[[], None] | None = None
        """Called once, after the next version was loaded or unloaded."""
        self.released = asyncio.Event()
        self._turn = asyncio.Lock()
        self.in_work: list[PackageKey] = []
        self.violations: list[str] = []

    # -- the port

    async def prepare(self, contents: FakeContents, tenant: str, origin: PackageOrigin) -> Any:
        async with self._work("prepare", PackageKey(tenant, contents.name)):
            self.preparing += 1
            self.max_preparing = max(self.max_preparing, self.preparing)
            try:
                await (self.released.wait() if contents.version.hangs else asyncio.sleep(0))
            finally:
                self.preparing -= 1
            if contents.version.prepare_error is not None:
                raise contents.version.prepare_error
            return FakePrepared(contents.name, contents.version, self.prepared)

    def missing_dependencies(self, key: PackageKey, metadata: Any) -> list[str]:
        others = [self._provided(one) for one in self.loaded if one != key]
        return [f"reactor '{name}'" for name in sorted(metadata.needs.difference(metadata.provides, *others))]

    def loaded_names(self, key: PackageKey) -> frozenset[NameClaim]:
        return _claims(key.tenant, self._provided(key)) if key in self.loaded else frozenset()

    def declared_names(self, tenant: str, metadata: Any) -> frozenset[NameClaim]:
        return _claims(tenant, metadata.provides)

    async def install(
        self,
        prepared: FakePrepared,
        tenant: str,
        origin: PackageOrigin,
        leaving: Mapping[PackageKey, frozenset[NameClaim]],
    ) -> str:
        key = PackageKey(tenant, prepared.name)
        async with self._work("install", key):
            async with self._turn:
                await asyncio.sleep(0)
                moved = {
                    one: {claim.name for claim in claims} & prepared.version.provides & self._provided(one)
                    for one, claims in leaving.items()
                    if one in self.loaded
                }
                self._check(key, prepared.version, frozenset().union(*moved.values()))
                self._write()
            for one, names in moved.items():
                self.handed_over[one] = self.handed_over.get(one, frozenset()) | names
            self._replace(key, prepared)
        return prepared.name

    def _provided(self, key: PackageKey) -> frozenset[str]:
        """Return the reactors that a loaded package still has."""
        return self.loaded[key].version.provides - self.handed_over.get(key, frozenset())

    async def unload(self, name: str, tenant: str) -> None:
        key = PackageKey(tenant, name)
        async with self._work("unload", key), self._turn:
            await asyncio.sleep(0)
            if key not in self.loaded:
                raise RequestError("it is not loaded", code="package_not_found", status=404)
            self._check_unused(key, frozenset())
            self._write()
            self._replace(key, None)

    def installed(self, key: PackageKey) -> InstalledPackage | None:
        prepared = self.loaded.get(key)
        return None if prepared is None else InstalledPackage(prepared.version.version, prepared.digest)

    # -- what a program does

    def load_directly(self, name: str, *provides: str) -> None:
        """Load a package as a program does that has the node."""
        version = FakeVersion(version="0.9.0", digest="", provides=frozenset(provides))
        prepared = FakePrepared(name, version, self.prepared)
        self._replace(key(name), prepared)
        prepared.discard()

    def unload_directly(self, name: str) -> None:
        """Unload a package as a program does."""
        self._replace(key(name), None)

    def versions(self) -> dict[str, str]:
        """Return the digests of the loaded versions, by name."""
        return {one.name: prepared.version.digest for one, prepared in sorted(self.loaded.items())}

    def count(self, verb: str, name: str) -> int:
        """Return how often an action on a package was started."""
        return self.trace.count((verb, name))

    # -- inside

    @asynccontextmanager
    async def _work(self, verb: str, key: PackageKey) -> AsyncIterator[None]:
        """Record an action, and a violation if two overlap; an exception would only be another failed attempt."""
        if key in self.in_work:
            self.violations.append(f"{verb} of {key.name} during another action")
        self.trace.append((verb, key.name))
        self.in_work.append(key)
        try:
            yield
        finally:
            for _ in range(self.lag[key.name]):
                await asyncio.sleep(0)
            self.in_work.remove(key)

    def _check(self, key: PackageKey, version: FakeVersion, moved: frozenset[str]) -> None:
        if version.install_error is not None:
            raise version.install_error
        if missing := self.missing_dependencies(key, version):
            raise RequestError(f"not loaded: {missing}", code="reactor_not_found", status=409)
        for other in self.loaded:
            if other != key and version.provides & self._provided(other) - moved:
                raise RequestError(f"taken by '{other.name}'", code="name_taken", status=409)
        self._check_unused(key, version.provides)

    def _check_unused(self, key: PackageKey, kept: frozenset[str]) -> None:
        leaving = self._provided(key) - kept if key in self.loaded else frozenset()
        users = sorted(one.name for one, other in self.loaded.items() if one != key and other.version.needs & leaving)
        if users:
            raise RequestError(f"bound: {users}; unbind them first", code="reactor_in_use", status=409)

    def _write(self) -> None:
        if self.store_failures:
            self.store_failures -= 1
            raise StoreError("the database is away")

    def _replace(self, key: PackageKey, prepared: FakePrepared | None) -> None:
        before = self.loaded.pop(key, None)
        self.handed_over.pop(key, None)
        if before is not None:
            before.set_loaded(is_loaded=False)
        if prepared is not None:
            prepared.set_loaded(is_loaded=True)
            self.loaded[key] = prepared
        after, self.after_replace = self.after_replace, None
        if after is not None:
            after()


class Harness:
    """A reconciler that runs between a fake source and a fake host, in virtual time."""

    def __init__(self, *, backoff: float = 1.0, **options: Any) -> None:
        self.source = FakeSource()
        self.host = FakeHost()
        self.clock = VirtualClock()
        self.tasks = TaskScope()
        self.statuses: list[PackageStatus] = []
        """Every reported status, oldest first."""
        self.reconciler = Reconciler(
            self.source,
            self.host,
            PackageOrigin(name="fake"),
            ConcurrencyLimit(PREPARE_LIMIT, self.clock),
            clock=self.clock,
            tasks=self.tasks,
            settings=Settings(backoff_base=backoff, backoff_max=60 * backoff),
            **{"on_status": self.statuses.append} | options,
        )
        self._running: asyncio.Task[Any] | None = None

    async def start(self) -> None:
        """Start the reconciler, and wait until nothing is left to do now."""
        await self.tasks.open()
        self._running = self.tasks.start("packages", self.reconciler.run())
        await self.settle()

    async def stop(self) -> None:
        """Stop the reconciler, and everything that it has started."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        assert len(self.tasks) == 0, "tasks were left behind"
        assert not self.host.violations
        await self.tasks.close()

    async def want(self, name: str, version: FakeVersion | None) -> None:
        """Desire another version, and wait until nothing is left to do now."""
        self.source.want(name, version)
        await self.settle()

    async def settle(self) -> None:
        """Run the loop until nothing is left to do now, or until the rest hangs."""
        calm = turns = 0
        while calm < 5 and turns < TURN_LIMIT:
            await asyncio.sleep(0)
            is_calm = self.reconciler.is_idle and not self.clock.has_pending_wakeups and not self.source.is_notified
            calm = calm + 1 if is_calm else 0
            turns += 1

    async def advance(self, seconds: float) -> None:
        """Move time forward, wakeup by wakeup."""
        target = self.clock.monotonic() + seconds
        await self.settle()
        while (due := self.clock.next_wakeup()) is not None and due <= target:
            self.clock.advance_to(due)
            await self.settle()
        self.clock.advance_to(target)
        await self.settle()

    def status(self, name: str) -> PackageStatus:
        """Return the status of a package."""
        return {one.name: one for one in self.reconciler.status()}[name]

    def metrics(self) -> dict[str, float]:
        """Return the metrics by name."""
        return {one.name: one.value for one in self.reconciler.samples()}


@asynccontextmanager
async def harness(versions: Mapping[str, FakeVersion] | None = None, **options: Any) -> AsyncIterator[Harness]:
    """Run a reconciler whose source desires some versions from the start."""
    made = Harness(**options)
    for name, version in (versions or {}).items():
        made.source.want(name, version)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def states(harness: Harness, name: str) -> list[str]:
    """Return the reported states of a package, without repetitions."""
    reported = [one.state for one in harness.statuses if one.name == name]
    return [state for before, state in zip([None, *reported], reported, strict=False) if state != before]
