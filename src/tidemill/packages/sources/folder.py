"""A folder that is watched: the packages in it are wanted, and again when they change."""

import asyncio
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from tidemill.kernel.concurrency import in_thread
from tidemill.kernel.errors import OperationError, RequestError, TidemillError
from tidemill.packages.archive import STANDARD, Contents
from tidemill.packages.entries import Limits
from tidemill.packages.sources.scanning import Look, Scanner, Sighting
from tidemill.packages.sources.settling import Patience, Settling
from tidemill.packages.wanted import PackageKey, Source, Wanted

# Real time, in milliseconds: that of editors and file systems.
STEP = 10  # a change is told when nothing more was heard for so long
LONGEST = 60  # or after this time, in a folder where something is written all the time
QUIET = 10  # between looks at something that is just changing
SETTLING = 30  # how many of them are waited for
POLL = 300  # for the watcher itself, on systems that cannot tell
GLANCE = 2000  # how often to look unasked: network drives tell nothing, nor does a folder whose parent was moved

UNHURRIED = Patience()

Seen = Mapping[PackageKey, tuple[str, str]] | str | None
"""Packages with their digests and their places; or why it cannot be told; None before the first look."""


class FolderSource(Source):
    """The packages in a folder, or the one that the folder is; or a single archive or Python file.

    In a folder that is none itself these are wanted: every folder in it with a manifest, every archive, and every
    Python file that imports Tidemill, unless its name is that of a test or begins with '_'.
    """

    def __init__(self, path: Path, tenant: str, limits: Limits = STANDARD, patience: Patience = UNHURRIED) -> None:
        self.path = path
        self._tenant = tenant
        self._scanner = Scanner(path, limits)
        self._settling = Settling(patience, self._scanner.mark)
        self._turn = threading.Lock()  # a look that nobody waits for any more may still be under way
        self._names: dict[Path, str] = {}
        self._first: dict[str, Path] = {}
        self._seen: Seen = None

    async def wanted(self) -> Mapping[PackageKey, Wanted]:
        """Return the packages that are there now; OperationError if the folder is not, or cannot be read.

        A package that was read once keeps its name when its manifest is damaged: so it stays the same package. What is
        just being saved is waited for, and if that takes long, it is still told as it was before.
        """
        look: Look = await in_thread(self._look)
        for _ in range(SETTLING if look.is_changing else 0):
            await asyncio.sleep(QUIET / 1000)  # real time: that of whoever saves
            look = await in_thread(self._look)
            if not look.is_changing:
                break
        self._seen = self._state(look)
        if look.problem is not None:
            raise OperationError(look.problem)
        return self._wanted(look)

    async def changed(self) -> None:
        """Return when packages are not what they were when they were last told, or when this last returned."""
        stop = threading.Event()
        pool = ThreadPoolExecutor(1, thread_name_prefix="tidemill folder watch")
        work = asyncio.get_running_loop().run_in_executor(pool, self._wait, stop)
        pool.shutdown(wait=False)
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([work])
            raise
        work.result()

    # -- which packages

    def _look(self) -> Look:
        with self._turn:
            return self._settling.tell(self._scanner.look(), monotonic())

    def _state(self, look: Look) -> Seen:
        return look.problem or {key: (one.digest, str(one.path)) for key, one in self._keyed(look).items()}

    def _wanted(self, look: Look) -> dict[PackageKey, Wanted]:
        return {
            key: Wanted(
                key=key,
                digest=sighting.digest,
                title=str(sighting.path),
                version=sighting.version,
                read=partial(self._read, key, sighting),
            )
            for key, sighting in self._keyed(look).items()
        }

    def _keyed(self, look: Look) -> dict[PackageKey, Sighting]:
        """Return what was found by key; of those with one name, the first that had it keeps it."""
        with self._turn:
            self._names = {one.path: one.name or self._names.get(one.path, one.place) for one in look.sightings}
            named: dict[str, list[Sighting]] = {}
            for one in look.sightings:
                named.setdefault(self._names[one.path], []).append(one)
            first = self._first = {name: self._holder(name, ones) for name, ones in named.items()}
        return {
            PackageKey(self._tenant, name if one.path == first[name] else f"{name} ({one.path.name})"): one
            for name, ones in named.items()
            for one in ones
        }

    def _holder(self, name: str, sightings: Iterable[Sighting]) -> Path:
        holder = self._first.get(name)
        return min(sightings, key=lambda one: (one.path != holder, one.name is None, one.path)).path

    async def _read(self, key: PackageKey, sighting: Sighting) -> Contents:
        contents = await self._contents(key, sighting)
        name = contents.manifest.name
        if name == key.name:
            return contents
        holder = self._first.get(name)
        if holder not in (None, sighting.path):
            message = f"{sighting.path} is a package '{name}', and so is {holder}; rename or remove one of them"
            raise RequestError(message, code="name_taken", status=409, name=name)
        raise OperationError(f"{sighting.path} was changed while it was read: it is '{name}' now, not '{key.name}'")

    async def _contents(self, key: PackageKey, sighting: Sighting) -> Contents:
        """Return what was seen; if it is just being saved, what is there afterwards is not told in its place."""
        reason = ""
        for _ in range(SETTLING):
            try:
                contents: Contents
                contents, is_what_was_seen = await in_thread(_read, sighting)
                if is_what_was_seen or contents.manifest.name != key.name:
                    return contents
            except TidemillError as error:
                if str(error) == reason:  # else it may be wrong for this moment only
                    raise
                reason = str(error)
            await asyncio.sleep(QUIET / 1000)  # real time: as above
        raise OperationError(f"{sighting.path} was changed again before it was read")

    # -- news, on a thread of their own

    def _wait(self, stop: threading.Event) -> None:
        while not stop.is_set():
            look = self._look()
            places = [path for path, _ in look.folders]
            try:
                with RustNotify(places, False, False, POLL, False, True) as watcher:
                    self._doubt()
                    if self._follow(watcher, look, stop):
                        return
            except FileNotFoundError:
                stop.wait(STEP / 1000)  # a folder is gone since it was seen
            except (OSError, WatchfilesRustInternalError):  # the system watches nothing more for us
                if self._is_news(look):
                    return
                stop.wait((QUIET if look.is_changing else GLANCE) / 1000)

    def _follow(self, watcher: RustNotify, before: Look, stop: threading.Event) -> bool:
        """Return True when there is news, False when other folders are to be watched."""
        while not stop.is_set():
            look = self._look()
            if self._is_news(look):
                return True
            if look.folders != before.folders:
                return False
            self._listen(watcher, QUIET if look.is_changing else GLANCE, stop)
        return False

    def _listen(self, watcher: RustNotify, limit: int, stop: threading.Event) -> None:
        heard = watcher.watch(LONGEST, STEP, limit, stop)
        if isinstance(heard, set):
            with self._turn:
                self._scanner.forget({os.path.basename(path) for _, path in heard})

    def _doubt(self) -> None:
        with self._turn:
            self._scanner.doubt()

    def _is_news(self, look: Look) -> bool:
        """Tell whether a look has found something else than the last one that was told, which it is then."""
        before, self._seen = self._seen, self._state(look)
        return self._seen != before


def _read(sighting: Sighting) -> tuple[Contents, bool]:
    contents = sighting.read(sighting.path)
    return contents, sighting.is_of(contents)
