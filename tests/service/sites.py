"""A source and a site that keep their contracts, fail on demand, and notice what must never happen."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from tidemill.engine.tasks import TaskScope
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError, StoreError
from tidemill.kernel.settings import Settings
from tidemill.packages.reconcile.controller import InstalledPackage
from tidemill.packages.reconcile.decision import DesiredPackage, PackageKey
from tidemill.packages.reconcile.reconciler import Reconciler
from tidemill.packages.status import PackageStatus

BROKEN = DefinitionError([Problem(message="no such name", location=Location("market.py", 3))], "package 'market'")
MARKET = frozenset(["market"])
PATIENCE = 2000  # turns of the loop after which work is taken to hang


def key(name: str) -> PackageKey:
    return PackageKey("public", name)


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a package: which reactors it brings and needs, and what is wrong with it."""

    version: str = "1.0.0"
    digest: str = "1"
    brings: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    unreadable: Exception | None = None
    unfit: Exception | None = None
    """Raised when it is prepared."""

    misfit: Exception | None = None
    """Raised when it is installed."""

    hangs: bool = False
    """Whether its import never ends."""


def version(number: int, **what: object) -> Parcel:
    """Return a version of a package."""
    return Parcel(version=f"{number}.0.0", digest=str(number), **what)  # type: ignore[arg-type]


class FakePrepared:
    """A parcel that was prepared. Its digest is not that of the wish: contents and wishes are told apart anyhow."""

    def __init__(self, parcel: Parcel, living: "set[FakePrepared]") -> None:
        self.metadata = self.parcel = parcel
        self.digest = f"of {parcel}"
        self.is_loaded = False
        self._is_kept = True
        self._living = living
        living.add(self)

    def discard(self) -> None:
        self._is_kept = False
        self._tidy()

    def put(self, *, is_loaded: bool) -> None:
        """Put it in place, or take it away."""
        assert self in self._living, "it was discarded"
        self.is_loaded = is_loaded
        self._tidy()

    def _tidy(self) -> None:
        if not self._is_kept and not self.is_loaded:
            self._living.discard(self)


class FakeSource:
    """Wants what it is told to."""

    def __init__(self) -> None:
        self.parcels: dict[PackageKey, Parcel] = {}
        self.titles: dict[str, str] = {}
        self.error: Exception | None = None
        self.looks = 0
        self._news = asyncio.Event()

    def want(self, name: str, parcel: Parcel | None) -> None:
        """Want a version of a package, or no version any more."""
        if parcel is None:
            self.parcels.pop(key(name), None)
        else:
            self.parcels[key(name)] = parcel
        self._news.set()

    def ring(self) -> None:
        """Say that something may have changed."""
        self._news.set()

    async def desired_packages(self) -> Mapping[PackageKey, DesiredPackage]:
        self.looks += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return {
            one: DesiredPackage(
                key=one,
                digest=parcel.digest,
                title=self.titles.get(one.name, one.name),
                version=parcel.version,
                read=_reader(parcel),
            )
            for one, parcel in self.parcels.items()
        }

    async def wait_for_change(self) -> None:
        await self._news.wait()
        self._news.clear()


def _reader(parcel: Parcel) -> Any:
    async def read() -> Parcel:
        await asyncio.sleep(0)
        if parcel.unreadable is not None:
            raise parcel.unreadable
        return parcel

    return read


class FakeSite:
    """Loads parcels: guards reactors that others need, refuses names that others have, and writes to a store."""

    def __init__(self) -> None:
        self.loaded: dict[PackageKey, FakePrepared] = {}
        self.prepared: set[FakePrepared] = set()
        """Those that were neither discarded nor replaced."""
        self.trace: list[tuple[str, str]] = []
        self.preparing = 0
        self.most = 0
        """How many were prepared at once at most."""
        self.store_failures = 0
        self.lag: Counter[str] = Counter()
        """Turns of the loop from what happens to a package to the answer."""
        self.released = asyncio.Event()
        self._turn = asyncio.Lock()
        self.in_work: list[PackageKey] = []
        self.violations: list[str] = []

    # -- the port

    async def prepare(self, key: PackageKey, contents: Any) -> Any:
        async with self._work("prepare", key):
            self.preparing += 1
            self.most = max(self.most, self.preparing)
            try:
                await (self.released.wait() if contents.hangs else asyncio.sleep(0))
            finally:
                self.preparing -= 1
            if contents.unfit is not None:
                raise contents.unfit
            return FakePrepared(contents, self.prepared)

    def missing_dependencies(self, tenant: str, metadata: Any) -> list[str]:
        there = {name for prepared in self.loaded.values() for name in prepared.parcel.brings} | metadata.brings
        return [f"reactor '{name}'" for name in sorted(metadata.needs - there)]

    async def install(self, key: PackageKey, prepared: Any) -> None:
        async with self._work("install", key):
            async with self._turn:
                await asyncio.sleep(0)
                self._check(key, prepared.parcel)
                self._write()
            self._replace(key, prepared)

    async def remove(self, key: PackageKey) -> None:
        async with self._work("remove", key), self._turn:
            await asyncio.sleep(0)
            if key not in self.loaded:
                raise RequestError("it is not loaded", code="unknown_package", status=404)
            self._guard(key, frozenset())
            self._write()
            self._replace(key, None)

    def installed(self) -> Mapping[PackageKey, InstalledPackage]:
        return {
            one: InstalledPackage(prepared.parcel.version, prepared.digest) for one, prepared in self.loaded.items()
        }

    # -- what code does

    def load(self, name: str, *brings: str) -> None:
        """Load something under a name, as code does that has a node at hand."""
        parcel = Parcel(version="0.9.0", digest="", brings=frozenset(brings))
        prepared = FakePrepared(parcel, self.prepared)
        self._replace(key(name), prepared)
        prepared.discard()

    def unload(self, name: str) -> None:
        """Unload it again."""
        self._replace(key(name), None)

    def versions(self) -> dict[str, str]:
        """Return the digests of what is loaded, by name."""
        return {one.name: prepared.parcel.digest for one, prepared in sorted(self.loaded.items())}

    def count(self, verb: str, name: str) -> int:
        """Return how often something was begun."""
        return self.trace.count((verb, name))

    # -- inside

    @asynccontextmanager
    async def _work(self, verb: str, key: PackageKey) -> AsyncIterator[None]:
        """Take note of work, and of a key that is worked on twice at once; an error here would only be a failure."""
        if key in self.in_work:
            self.violations.append(f"{verb} of {key.name} while it is worked on")
        self.trace.append((verb, key.name))
        self.in_work.append(key)
        try:
            yield
        finally:
            for _ in range(self.lag[key.name]):
                await asyncio.sleep(0)
            self.in_work.remove(key)

    def _check(self, key: PackageKey, parcel: Parcel) -> None:
        if parcel.misfit is not None:
            raise parcel.misfit
        if missing := self.missing_dependencies(key.tenant, parcel):
            raise RequestError(f"not loaded: {missing}", code="reactor_not_loaded", status=409)
        for other, prepared in self.loaded.items():
            if other != key and parcel.brings & prepared.parcel.brings:
                raise RequestError(f"taken by '{other.name}'", code="name_taken", status=409)
        self._guard(key, parcel.brings)

    def _guard(self, key: PackageKey, kept: frozenset[str]) -> None:
        going = self.loaded[key].parcel.brings - kept if key in self.loaded else frozenset()
        users = sorted(one.name for one, held in self.loaded.items() if one != key and held.parcel.needs & going)
        if users:
            raise RequestError(f"bound: {users}; unbind them first", code="reactor_in_use", status=409)

    def _write(self) -> None:
        if self.store_failures:
            self.store_failures -= 1
            raise StoreError("the database is away")

    def _replace(self, key: PackageKey, prepared: FakePrepared | None) -> None:
        before = self.loaded.pop(key, None)
        if before is not None:
            before.put(is_loaded=False)
        if prepared is not None:
            prepared.put(is_loaded=True)
            self.loaded[key] = prepared


class Bench:
    """A reconciler that runs between a source and a site, in virtual time."""

    def __init__(self, *, backoff: float = 1.0, **options: Any) -> None:
        self.source = FakeSource()
        self.site = FakeSite()
        self.clock = VirtualClock()
        self.tasks = TaskScope()
        self.told: list[PackageStatus] = []
        settings = Settings(backoff_base=backoff, backoff_max=60 * backoff)
        options = {"on_status": self.told.append} | options
        self.reconciler = Reconciler(self.source, self.site, self.clock, self.tasks, settings, **options)
        self._running: asyncio.Task[Any] | None = None

    async def start(self) -> None:
        """Begin, and do what can be done now."""
        await self.tasks.open()
        self._running = self.tasks.start("packages", self.reconciler.run())
        await self.calm_down()

    async def stop(self) -> None:
        """End the reconciler, and everything that it has started."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        assert len(self.tasks) == 0, "tasks were left behind"
        assert not self.site.violations
        await self.tasks.close()

    async def want(self, name: str, parcel: Parcel | None) -> None:
        """Want something else, and do what can be done now."""
        self.source.want(name, parcel)
        await self.calm_down()

    async def calm_down(self) -> None:
        """Give everybody turns until nothing is left to do now, or what is left hangs."""
        calm = turns = 0
        while calm < 5 and turns < PATIENCE:
            await asyncio.sleep(0)
            is_calm = self.reconciler.is_idle and not self.clock.has_pending_wakeups and not self.source._news.is_set()
            calm = calm + 1 if is_calm else 0
            turns += 1

    async def advance(self, seconds: float) -> None:
        """Let time pass, step by step."""
        target = self.clock.monotonic() + seconds
        await self.calm_down()
        while (due := self.clock.next_wakeup()) is not None and due <= target:
            self.clock.advance_to(due)
            await self.calm_down()
        self.clock.advance_to(target)
        await self.calm_down()

    def status(self, name: str) -> PackageStatus:
        """Return the status of a package."""
        return {one.name: one for one in self.reconciler.status()}[name]

    def figures(self) -> dict[str, float]:
        """Return what was counted."""
        return {one.name: one.value for one in self.reconciler.samples()}


@asynccontextmanager
async def bench(wishes: Mapping[str, Parcel] | None = None, **options: Any) -> AsyncIterator[Bench]:
    """Run a reconciler that begins with some wishes."""
    made = Bench(**options)
    for name, parcel in (wishes or {}).items():
        made.source.want(name, parcel)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def states(bench: Bench, name: str) -> list[str]:
    """Return the states that a package was told to have, repetitions left out."""
    told = [one.state for one in bench.told if one.name == name]
    return [state for before, state in zip([None, *told], told, strict=False) if state != before]
