"""Packages made ready to be loaded, beside what runs: nothing that is loaded is touched, and nobody sees them yet.

    requirements, signature        can it run here, and may it?
    a copy of its files            so that the author may change them meanwhile, and old versions stay as they were
    the probe                      a child process imports the copy: what goes wrong there harms nobody
    the import                     in this process, in a namespace of its own, and on a thread
    what it declares               once more, and it has to be what the probe has seen

If one of these fails, nothing of it is left. What comes of it owns the copy and the namespace until it is discarded:
tasks that are still running may import, and read their data, at any time.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tidemill.engine.wakeup import Wakeup
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import Problem
from tidemill.kernel.namespaces import Namespace, PackageTree
from tidemill.packages.format.archive import PackageContents
from tidemill.packages.format.manifest import Manifest
from tidemill.packages.format.signature import TrustPolicy
from tidemill.packages.loading.copies import PackageCopies
from tidemill.packages.loading.inspector import PackageInspector
from tidemill.packages.loading.metadata import PackageMetadata
from tidemill.packages.loading.probe import DEFAULT_PROBE_LIMITS, ProbeError, ProbeLimits, WarmProbe, run_probe
from tidemill.packages.loading.probe_environment import ProbeEnvironment, local_origin
from tidemill.packages.loading.process_guard import limiting_output, reverting_process_state
from tidemill.packages.loading.reader import Package

SLOT_TIMEOUT = 1.0
"""Seconds after which work counts no more: it hangs, or waits for something, and keeps nobody from working."""


class ConcurrencyLimit:
    """A bench with so many places, given in the order in which they are asked for.

    What works for longer than a moment keeps its place and is no longer counted. So what hangs delays the others once,
    and only if there are as many of its kind as there are places.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._slots: dict[object, float] = {}
        self._queue_lock = asyncio.Lock()
        self._wakeup = Wakeup(clock)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a place, and have it for a while."""
        async with self._queue_lock:  # nobody else has to look out for the next one
            while (seconds := self._seconds_until_free()) > 0:
                await self._wakeup.wait(seconds)
            us = object()
            self._slots[us] = self._clock.monotonic()
        try:
            yield
        finally:
            del self._slots[us]
            self._wakeup.notify()

    def _seconds_until_free(self) -> float:
        """Return for how long all places are taken if nobody leaves; 0 if one is free."""
        now = self._clock.monotonic()
        left = [since + SLOT_TIMEOUT - now for since in self._slots.values() if since + SLOT_TIMEOUT > now]
        return min(left) if len(left) >= self._limit else 0.0


_PREPARE_LIMIT = 8
"""How many are prepared at a time: more would only take one another's time, of which a probe has little."""


class PackageReference:
    """A share in what was prepared, for as long as something that runs needs it."""

    def __init__(self, release: Callable[[object], None]) -> None:
        self._release = release

    def release(self) -> None:
        """Give it back; again is no error."""
        self._release(self)


class PreparedPackage:
    """A package that can be loaded: its definitions, with the manifest's settings, and what is known of them.

    Its modules and its copy stay until it is discarded, and all that was lent of it too.
    """

    def __init__(
        self,
        package: Package,
        metadata: PackageMetadata,
        manifest: Manifest,
        namespace: Namespace,
        remove_copy: Callable[[], None],
    ) -> None:
        self.package = package
        self.metadata = metadata
        self.manifest = manifest
        self.digest = package.digest
        self._namespace = namespace
        self._remove_copy = remove_copy
        self._references: set[object] = {self}

    def add_reference(self) -> PackageReference:
        """Return a share in it, which keeps it when it is discarded itself."""
        loan = PackageReference(self._release_reference)
        self._references.add(loan)
        return loan

    def discard(self) -> None:
        """Let go of it: whoever had it made does not need it any more. Again is no error."""
        self._release_reference(self)

    def _release_reference(self, holder: object) -> None:
        if holder in self._references:
            self._references.discard(holder)
            if not self._references:
                self._namespace.close()
                self._remove_copy()


class PackagePreparer:
    """Where the packages of a node are made ready."""

    def __init__(
        self, folder: Path | None, trust: TrustPolicy, clock: Clock, limits: ProbeLimits = DEFAULT_PROBE_LIMITS
    ) -> None:
        """Copies lie in a new folder inside `folder`, or among the system's temporary ones."""
        self._copies = PackageCopies(folder)
        self._trust = trust
        self._clock = clock
        self._limits = limits
        self._prepare_slots = ConcurrencyLimit(_PREPARE_LIMIT, clock)
        self._warm_probe: WarmProbe | None = None
        self._hanging_imports: set[tuple[str, str]] = set()
        """Tenants and digests of what took too long to import, and has not ended yet."""

    def keep_warm_probe(self) -> None:
        """Keep a process ready for the next package from the first one on: where packages are saved again and again."""
        self._warm_probe = self._warm_probe or WarmProbe()

    async def prepare(
        self, contents: PackageContents, tenant: str, *, is_developer_code: bool = False
    ) -> PreparedPackage:
        """Make a package ready; raises a TidemillError if it is not fit for that, and leaves nothing behind.

        The developer's own code is tried with the environment, and in the folder, in which it is loaded.
        """
        manifest = contents.manifest
        manifest.check_requirements()
        await self._trust.check(contents, tenant, self._clock.now())
        if (tenant, contents.digest) in self._hanging_imports:
            raise self._import_timeout_error(
                manifest.name
            )  # a thread that hangs cannot be ended: one of them is enough
        async with self._prepare_slots.slot():
            folder = await asyncio.to_thread(self._copies.reserve, manifest.name)
            try:
                await _run_to_completion(lambda: self._copies.write(folder, contents.files))
                metadata = await self._probe(contents, folder, is_developer_code=is_developer_code)
                return await self._import_with_timeout(
                    lambda: self._import(contents, folder, metadata), contents, tenant
                )
            except BaseException:
                await _run_to_completion(lambda: self._copies.remove(folder))
                raise

    async def _probe(self, contents: PackageContents, folder: Path, *, is_developer_code: bool) -> PackageMetadata:
        origin = local_origin(contents.title)
        return await run_probe(
            folder,
            contents.manifest,
            environment=ProbeEnvironment.inherit_all(origin)
            if is_developer_code
            else ProbeEnvironment.isolated(origin),
            limits=self._limits,
            clock=self._clock,
            warm_probe=self._warm_probe,
        )

    def _import(self, contents: PackageContents, folder: Path, metadata: PackageMetadata) -> PreparedPackage:
        """Import a package that was tried; blocks for as long as that takes."""
        manifest = contents.manifest
        namespace = Namespace(PackageTree(str(folder), _author_folder(contents), manifest.top_level_names))
        try:
            examination = PackageInspector(namespace, manifest)
            with reverting_process_state(manifest.name), limiting_output(self._limits.output):
                answer = examination.inspect()
            problems = answer.problems or tuple(_metadata_differences(metadata, answer.metadata))
            if problems or examination.package is None:
                raise ProbeError(problems, f"package '{manifest.name}'", is_transient=answer.is_transient)
            package = replace(
                examination.package,
                version=str(manifest.version),
                digest=contents.digest,
                shared=frozenset(name for name, one in manifest.reactors.items() if one.shared),
                workflows=tuple(one.with_overrides(manifest.tasks) for one in examination.package.workflows),
            )
        except BaseException:
            namespace.close()
            raise
        return PreparedPackage(
            package, metadata, manifest, namespace, lambda: self._copies.remove_in_background(folder)
        )

    async def _import_with_timeout(
        self, load: Callable[[], PreparedPackage], contents: PackageContents, tenant: str
    ) -> PreparedPackage:
        """Load on a thread that nobody has to wait for: an import may never end. What comes too late is discarded."""
        work, name = _start_thread(load), contents.manifest.name
        try:
            async with asyncio.TaskGroup() as group:
                timer = group.create_task(self._clock.sleep(self._limits.wall), name=f"import limit of {name}")
                loaded = asyncio.wrap_future(work)
                loaded.add_done_callback(lambda one: one.cancelled() or one.exception())  # raised below, or not at all
                either: list[asyncio.Future[Any]] = [loaded, timer]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                timer.cancel()
        except asyncio.CancelledError:
            work.add_done_callback(_discard_result)
            raise
        if not work.done():
            hanging = tenant, contents.digest
            self._hanging_imports.add(hanging)
            work.add_done_callback(lambda _: self._hanging_imports.discard(hanging))
            work.add_done_callback(_discard_result)
            raise self._import_timeout_error(name)
        return work.result()

    def _import_timeout_error(self, name: str) -> ProbeError:
        message = (
            f"importing it in the node took longer than {self._limits.wall:g} s, though not when it was tried: "
            "do no work at import, whatever the environment, the time or the machine"
        )
        return ProbeError([Problem(message=message)], f"package '{name}'", is_transient=True)

    async def close(self) -> None:
        """Remove all copies: what was prepared is discarded by then, or is of no use any more."""
        if self._warm_probe is not None:
            await _run_to_completion(self._warm_probe.close)
        await _run_to_completion(self._copies.close)


def _author_folder(contents: PackageContents) -> str:
    """Return where the author has the files, for tracebacks; what is no place on this machine stays as it is named."""
    place = os.path.abspath(contents.title) if os.path.exists(contents.title) else contents.title
    return os.path.dirname(place) if place.endswith(".py") else place  # a file may be a package by itself


def _metadata_differences(tried: PackageMetadata, loaded: PackageMetadata | None) -> Iterator[Problem]:
    """Yield what a package declares otherwise than before: it asks its surroundings, or chance."""
    for kind in ("reactors", "graphs", "triggers", "workflows"):
        before = {one.name: one for one in getattr(tried, kind)}
        after = {one.name: one for one in getattr(loaded, kind, ())}
        names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if names:
            message = (
                f"its {kind} are others than when it was tried a moment ago: {', '.join(map(repr, names))}; "
                "declare the same always, whatever the environment, the time or the machine"
            )
            yield Problem(message=message)


async def _run_to_completion(work: Callable[[], None]) -> None:
    """Do something on a thread, and be cancelled only when it is done."""
    task = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _start_thread(load: Callable[[], PreparedPackage]) -> "Future[PreparedPackage]":
    """Begin to load on a thread of its own, which keeps no process from ending."""
    work: Future[PreparedPackage] = Future()
    work.set_running_or_notify_cancel()

    def run() -> None:
        try:
            work.set_result(load())
        except BaseException as error:  # it is raised where it is waited for
            work.set_exception(error)

    threading.Thread(target=run, daemon=True, name="tidemill import").start()
    return work


def _discard_result(work: "Future[PreparedPackage]") -> None:
    with suppress(BaseException):  # it has failed, and so left nothing
        work.result().discard()
