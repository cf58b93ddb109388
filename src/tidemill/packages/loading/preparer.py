"""Prepares packages for loading, next to what runs: nothing loaded is touched, and nothing is visible yet.

    requirements, signature    the package can run here, and is trusted
    a copy of its files        the author may change the originals meanwhile, and old versions stay as they were
    the probe                  a child process imports the copy: a fault there harms nothing else
    the import                 in this process, in a separate namespace, on a thread
    its declarations           read again, and compared with what the probe has seen

If one of these fails, nothing is left behind. A prepared package owns the copy and the namespace until it is discarded:
tasks that are still running may import modules and read data files at any time.
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

from tidemill.engine.tasks import Wakeup
from tidemill.graphs.snapshot import KeptValue
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import Problem
from tidemill.kernel.namespaces import Namespace, PackageTree
from tidemill.packages.format.archive import PackageContents, read_path
from tidemill.packages.format.manifest import Manifest
from tidemill.packages.format.signature import TrustPolicy
from tidemill.packages.loading.copies import PackageCopies
from tidemill.packages.loading.inspector import PackageInspector
from tidemill.packages.loading.metadata import PackageMetadata, ProbeError
from tidemill.packages.loading.probe import DEFAULT_PROBE_LIMITS, ProbeLimits, WarmProbe, run_probe
from tidemill.packages.loading.probe_environment import ProbeEnvironment, local_origin
from tidemill.packages.loading.process_guard import limiting_output, reverting_process_state
from tidemill.packages.loading.reader import Package

PREPARE_LIMIT = 8
"""How many packages of a node are prepared at a time: each takes a process, and a probe has little time."""

SLOT_TIMEOUT = 1.0
"""Seconds after which a slot no longer counts: its package hangs or waits, and must not delay the others."""


class ConcurrencyLimit:
    """Grants a number of slots, in the order in which they are requested.

    Work that takes longer than SLOT_TIMEOUT keeps its slot but is no longer counted. So packages that hang delay the
    others once, and only if there are as many of them as there are slots.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._slots: dict[object, float] = {}
        self._queue_lock = asyncio.Lock()
        self._wakeup = Wakeup(clock)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot, and hold it."""
        async with self._queue_lock:  # only the first in the queue waits for the next slot
            while (seconds := self._seconds_until_free()) > 0:
                await self._wakeup.wait(seconds)
            slot = object()
            self._slots[slot] = self._clock.monotonic()
        try:
            yield
        finally:
            del self._slots[slot]
            self._wakeup.notify()

    def _seconds_until_free(self) -> float:
        """Return when a slot stops counting, if none is released before; 0 if one is free."""
        now = self._clock.monotonic()
        left = [since + SLOT_TIMEOUT - now for since in self._slots.values() if since + SLOT_TIMEOUT > now]
        return min(left) if len(left) >= self._limit else 0.0


class PackageReference:
    """Keeps the modules and the files of a prepared package for as long as something needs them."""

    def __init__(self, prepared: "PreparedPackage") -> None:
        self._prepared = prepared

    def duplicate(self) -> "PackageReference":
        """Return another reference to the same package."""
        return self._prepared.add_reference()

    def release(self) -> None:
        """Release the package; a second call does nothing."""
        self._prepared.release(self)


class PreparedPackage:
    """A package that can be loaded: its definitions, with the manifest's settings, and its metadata.

    Its modules and its copy stay until it is discarded and every reference is released.
    """

    def __init__(
        self,
        package: Package,
        metadata: PackageMetadata,
        manifest: Manifest,
        namespace: Namespace,
        copies: PackageCopies,
        folder: Path,
    ) -> None:
        self.package = package
        self.metadata = metadata
        self.manifest = manifest
        self.digest = package.digest
        self._namespace = namespace
        self._copies = copies
        self._folder = folder
        self._references: set[PackageReference] = set()
        self._own_reference = self.add_reference()

    def add_reference(self) -> PackageReference:
        """Return a reference that keeps the package when it is discarded."""
        reference = PackageReference(self)
        self._references.add(reference)
        return reference

    def discard(self) -> None:
        """Release what preparation itself holds; a second call does nothing."""
        self._own_reference.release()

    def release(self, reference: PackageReference) -> None:
        """Release one reference; the last one removes the modules and the copy."""
        if reference in self._references:
            self._references.discard(reference)
            if not self._references:
                self._namespace.close()
                self._copies.remove_in_background(self._folder)


class PackagePreparer:
    """Prepares the packages of a node. Callers of `prepare` hold a slot of `limit`."""

    def __init__(
        self, folder: Path | None, trust: TrustPolicy, clock: Clock, limits: ProbeLimits = DEFAULT_PROBE_LIMITS
    ) -> None:
        """Create a preparer whose copies are in a new folder inside `folder`, or inside the system's temporary one."""
        self.limit = ConcurrencyLimit(PREPARE_LIMIT, clock)
        self.copies = PackageCopies(folder)
        self.limits = limits
        self.warm_probe: WarmProbe | None = None
        self._trust = trust
        self._clock = clock
        self._hanging_imports: set[tuple[str, str]] = set()
        """Tenants and digests of packages whose import took too long and has not ended yet."""

    def keep_warm_probe(self) -> None:
        """Keep a probe process ready for the next package: for sources whose packages are saved again and again."""
        self.warm_probe = self.warm_probe or WarmProbe()

    async def read(self, path: Path) -> PackageContents:
        """Read a package folder, an archive or a Python file."""
        contents: PackageContents = await call_in_thread(read_path, path)
        return contents

    async def prepare(
        self, contents: PackageContents, tenant: str, *, is_developer_code: bool = False
    ) -> PreparedPackage:
        """Prepare a package; raise a TidemillError, and leave nothing behind, if it cannot be loaded.

        Developer code is probed with the environment, and in the folder, in which it is loaded.
        """
        manifest = contents.manifest
        manifest.check_requirements()
        await self._trust.check(contents, tenant, self._clock.now())
        if (tenant, contents.digest) in self._hanging_imports:  # a thread cannot be ended: one that hangs is enough
            raise self._import_timeout_error(manifest.name)
        folder = await asyncio.to_thread(self.copies.reserve, manifest.name)
        try:
            await _run_to_completion(lambda: self.copies.write(folder, contents.files))
            metadata = await self._probe(contents, folder, is_developer_code=is_developer_code)
            return await self._import_with_timeout(lambda: self._import(contents, folder, metadata), contents, tenant)
        except BaseException:
            await _run_to_completion(lambda: self.copies.remove(folder))
            raise

    async def check(self, contents: PackageContents, tenant: str, kept: tuple[KeptValue, ...] = ()) -> PackageMetadata:
        """Check a package up to its import in a separate process; raise a TidemillError if it cannot be loaded.

        The process tries to read `kept` values of its reactors.
        """
        contents.manifest.check_requirements()
        await self._trust.check(contents, tenant, self._clock.now())
        async with self.limit.slot():
            folder = await asyncio.to_thread(self.copies.reserve, contents.manifest.name)
            try:
                await _run_to_completion(lambda: self.copies.write(folder, contents.files))
                return await self._probe(contents, folder, is_developer_code=False, kept=kept)
            finally:
                await _run_to_completion(lambda: self.copies.remove(folder))

    async def _probe(
        self, contents: PackageContents, folder: Path, *, is_developer_code: bool, kept: tuple[KeptValue, ...] = ()
    ) -> PackageMetadata:
        make_environment = ProbeEnvironment.inherit_all if is_developer_code else ProbeEnvironment.isolated
        limits = replace(self.limits, memory=0) if is_developer_code else self.limits
        return await run_probe(
            folder,
            contents.manifest,
            environment=make_environment(local_origin(contents.title)),
            limits=limits,
            clock=self._clock,
            warm_probe=self.warm_probe,
            kept=kept,
        )

    def _import(self, contents: PackageContents, folder: Path, metadata: PackageMetadata) -> PreparedPackage:
        """Import a package that passed the probe; blocks while it does."""
        manifest = contents.manifest
        namespace = Namespace(PackageTree(str(folder), _author_folder(contents), manifest.top_level_names))
        try:
            inspector = PackageInspector(namespace, manifest)
            with reverting_process_state(manifest.name), limiting_output(self.limits.output):
                reply = inspector.inspect()
            problems = reply.problems or tuple(_metadata_differences(metadata, reply.metadata))
            if problems or inspector.package is None:
                raise ProbeError(problems, f"package '{manifest.name}'", is_transient=reply.is_transient)
            package = replace(
                inspector.package,
                version=str(manifest.version),
                digest=contents.digest,
                shared=frozenset(name for name, one in manifest.reactors.items() if one.shared),
                workflows=tuple(
                    one.with_overrides(manifest.tasks).with_grants(manifest.grants)
                    for one in inspector.package.workflows
                ),
            )
        except BaseException:
            namespace.close()
            raise
        return PreparedPackage(package, metadata, manifest, namespace, self.copies, folder)

    async def _import_with_timeout(
        self, load: Callable[[], PreparedPackage], contents: PackageContents, tenant: str
    ) -> PreparedPackage:
        """Import on a thread that need not end, since an import may hang. A result that comes too late is discarded."""
        work, name = _start_thread(load), contents.manifest.name
        try:
            async with asyncio.TaskGroup() as group:
                timer = group.create_task(self._clock.sleep(self.limits.wall), name=f"import limit of {name}")
                loaded = asyncio.wrap_future(work)
                loaded.add_done_callback(lambda one: one.cancelled() or one.exception())  # raised below, if at all
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
            f"importing it in the node took longer than {self.limits.wall:g} s, though not in the probe: "
            "do no work at import that depends on the environment, the time or the machine, or raise the setting "
            "probe_timeout"
        )
        return ProbeError([Problem(message=message)], f"package '{name}'", is_transient=True)

    async def close(self) -> None:
        """End the warm probe and remove all copies; prepared packages are discarded, or no longer of use."""
        if self.warm_probe is not None:
            await _run_to_completion(self.warm_probe.close)
        await _run_to_completion(self.copies.close)


def _author_folder(contents: PackageContents) -> str:
    """Return the folder of the author's files, for tracebacks; a title that is not a path here stays as it is."""
    path = os.path.abspath(contents.title) if os.path.exists(contents.title) else contents.title
    return os.path.dirname(path) if path.endswith(".py") else path  # a single file may be a package


def _metadata_differences(probed: PackageMetadata, loaded: PackageMetadata | None) -> Iterator[Problem]:
    """Yield a problem for each kind of definition that differs from the probe's: it depends on the process."""
    for kind in ("reactors", "graphs", "triggers", "workflows"):
        before = {one.name: one for one in getattr(probed, kind)}
        after = {one.name: one for one in getattr(loaded, kind, ())}
        names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if names:
            message = (
                f"its {kind} differ from those that the probe found a moment ago: {', '.join(map(repr, names))}; "
                "declare the same in every environment, at any time and on any machine"
            )
            yield Problem(message=message)


async def _run_to_completion(work: Callable[[], None]) -> None:
    """Run blocking work on a thread; a cancellation waits until it is done."""
    task = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _start_thread(load: Callable[[], PreparedPackage]) -> "Future[PreparedPackage]":
    """Start to load on a daemon thread, which does not keep the process from ending."""
    work: Future[PreparedPackage] = Future()
    work.set_running_or_notify_cancel()

    def run() -> None:
        try:
            work.set_result(load())
        except BaseException as error:  # raised where the result is awaited
            work.set_exception(error)

    threading.Thread(target=run, daemon=True, name="tidemill import").start()
    return work


def _discard_result(work: "Future[PreparedPackage]") -> None:
    with suppress(BaseException):  # a load that failed has left nothing behind
        work.result().discard()
