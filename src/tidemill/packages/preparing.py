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
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import Problem
from tidemill.kernel.namespaces import Namespace, Tree
from tidemill.packages.aftermath import put_back_after
from tidemill.packages.archive import Contents
from tidemill.packages.bench import Bench
from tidemill.packages.examination import Examination
from tidemill.packages.import_output import bounded_output
from tidemill.packages.loader import Package
from tidemill.packages.manifest import Manifest
from tidemill.packages.metadata import Metadata
from tidemill.packages.probe import STANDARD, ProbeError, ProbeLimits, Spare, probe
from tidemill.packages.snapshots import Snapshots
from tidemill.packages.surroundings import Surroundings, origin_of
from tidemill.packages.trust import Trust

_AT_ONCE = 8
"""How many are prepared at a time: more would only take one another's time, of which a probe has little."""


class Loan:
    """A share in what was prepared, for as long as something that runs needs it."""

    def __init__(self, let_go: Callable[[object], None]) -> None:
        self._let_go = let_go

    def discard(self) -> None:
        """Give it back; again is no error."""
        self._let_go(self)


class Prepared:
    """A package that can be loaded: its definitions, with the manifest's settings, and what is known of them.

    Its modules and its copy stay until it is discarded, and all that was lent of it too.
    """

    def __init__(
        self, package: Package, metadata: Metadata, manifest: Manifest, namespace: Namespace, remove: Callable[[], None]
    ) -> None:
        self.package = package
        self.metadata = metadata
        self.manifest = manifest
        self.digest = package.digest
        self._namespace = namespace
        self._remove = remove
        self._holders: set[object] = {self}

    def lend(self) -> Loan:
        """Return a share in it, which keeps it when it is discarded itself."""
        loan = Loan(self._let_go)
        self._holders.add(loan)
        return loan

    def discard(self) -> None:
        """Let go of it: whoever had it made does not need it any more. Again is no error."""
        self._let_go(self)

    def _let_go(self, holder: object) -> None:
        if holder in self._holders:
            self._holders.discard(holder)
            if not self._holders:
                self._namespace.close()
                self._remove()


class Workshop:
    """Where the packages of a node are made ready."""

    def __init__(self, folder: Path | None, trust: Trust, clock: Clock, limits: ProbeLimits = STANDARD) -> None:
        """Copies lie in a new folder inside `folder`, or among the system's temporary ones."""
        self._snapshots = Snapshots(folder)
        self._trust = trust
        self._clock = clock
        self._limits = limits
        self._bench = Bench(_AT_ONCE, clock)
        self._spare: Spare | None = None
        self._hanging: set[tuple[str, str]] = set()
        """Tenants and digests of what took too long to import, and has not ended yet."""

    def keep_spare(self) -> None:
        """Keep a process ready for the next package from the first one on: where packages are saved again and again."""
        self._spare = self._spare or Spare()

    async def prepare(self, contents: Contents, tenant: str, *, is_own: bool = False) -> Prepared:
        """Make a package ready; raises a TidemillError if it is not fit for that, and leaves nothing behind.

        The developer's own code is tried with the environment, and in the folder, in which it is loaded.
        """
        manifest = contents.manifest
        manifest.check_requirements()
        await self._trust.check(contents, tenant, self._clock.now())
        if (tenant, contents.digest) in self._hanging:
            raise self._too_slow(manifest.name)  # a thread that hangs cannot be ended: one of them is enough
        async with self._bench.place():
            folder = await asyncio.to_thread(self._snapshots.reserve, manifest.name)
            try:
                await _finished(lambda: self._snapshots.write(folder, contents.files))
                metadata = await self._try(contents, folder, is_own=is_own)
                return await self._abandonable(lambda: self._load(contents, folder, metadata), contents, tenant)
            except BaseException:
                await _finished(lambda: self._snapshots.remove(folder))
                raise

    async def _try(self, contents: Contents, folder: Path, *, is_own: bool) -> Metadata:
        origin = origin_of(contents.title)
        return await probe(
            folder,
            contents.manifest,
            surroundings=Surroundings.shared(origin) if is_own else Surroundings.bare(origin),
            limits=self._limits,
            clock=self._clock,
            spare=self._spare,
        )

    def _load(self, contents: Contents, folder: Path, metadata: Metadata) -> Prepared:
        """Import a package that was tried; blocks for as long as that takes."""
        manifest = contents.manifest
        namespace = Namespace(Tree(str(folder), _shown(contents), manifest.tops))
        try:
            examination = Examination(namespace, manifest)
            with put_back_after(manifest.name), bounded_output(self._limits.output):
                answer = examination.answer()
            problems = answer.problems or tuple(_differences(metadata, answer.metadata))
            if problems or examination.package is None:
                raise ProbeError(problems, f"package '{manifest.name}'", may_pass=answer.may_pass)
            package = replace(
                examination.package,
                version=str(manifest.version),
                digest=contents.digest,
                shared=frozenset(name for name, one in manifest.reactors.items() if one.shared),
                workflows=tuple(one.configured(manifest.tasks) for one in examination.package.workflows),
            )
        except BaseException:
            namespace.close()
            raise
        return Prepared(package, metadata, manifest, namespace, lambda: self._snapshots.remove_soon(folder))

    async def _abandonable(self, load: Callable[[], Prepared], contents: Contents, tenant: str) -> Prepared:
        """Load on a thread that nobody has to wait for: an import may never end. What comes too late is discarded."""
        work, name = _begun(load), contents.manifest.name
        try:
            async with asyncio.TaskGroup() as group:
                timer = group.create_task(self._clock.sleep(self._limits.wall), name=f"import limit of {name}")
                loaded = asyncio.wrap_future(work)
                loaded.add_done_callback(lambda one: one.cancelled() or one.exception())  # raised below, or not at all
                either: list[asyncio.Future[Any]] = [loaded, timer]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                timer.cancel()
        except asyncio.CancelledError:
            work.add_done_callback(_discard)
            raise
        if not work.done():
            hanging = tenant, contents.digest
            self._hanging.add(hanging)
            work.add_done_callback(lambda _: self._hanging.discard(hanging))
            work.add_done_callback(_discard)
            raise self._too_slow(name)
        return work.result()

    def _too_slow(self, name: str) -> ProbeError:
        message = (
            f"importing it in the node took longer than {self._limits.wall:g} s, though not when it was tried: "
            "do no work at import, whatever the environment, the time or the machine"
        )
        return ProbeError([Problem(message=message)], f"package '{name}'", may_pass=True)

    async def close(self) -> None:
        """Remove all copies: what was prepared is discarded by then, or is of no use any more."""
        if self._spare is not None:
            await _finished(self._spare.close)
        await _finished(self._snapshots.close)


def _shown(contents: Contents) -> str:
    """Return where the author has the files, for tracebacks; what is no place on this machine stays as it is named."""
    place = os.path.abspath(contents.title) if os.path.exists(contents.title) else contents.title
    return os.path.dirname(place) if place.endswith(".py") else place  # a file may be a package by itself


def _differences(tried: Metadata, loaded: Metadata | None) -> Iterator[Problem]:
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


async def _finished(work: Callable[[], None]) -> None:
    """Do something on a thread, and be cancelled only when it is done."""
    task = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _begun(load: Callable[[], Prepared]) -> "Future[Prepared]":
    """Begin to load on a thread of its own, which keeps no process from ending."""
    work: Future[Prepared] = Future()
    work.set_running_or_notify_cancel()

    def run() -> None:
        try:
            work.set_result(load())
        except BaseException as error:  # it is raised where it is waited for
            work.set_exception(error)

    threading.Thread(target=run, daemon=True, name="tidemill import").start()
    return work


def _discard(work: "Future[Prepared]") -> None:
    with suppress(BaseException):  # it has failed, and so left nothing
        work.result().discard()
