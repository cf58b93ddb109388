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

from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import OperationError, RequestError, TidemillError
from tidemill.packages.format.archive import DEFAULT_LIMITS, PackageContents
from tidemill.packages.format.zip_format import ArchiveLimits
from tidemill.packages.reconcile.debounce import Debouncer, DebounceTimes
from tidemill.packages.reconcile.decision import DesiredPackage, PackageSource
from tidemill.packages.reconcile.scanner import FolderScan, FolderScanner, FoundPackage
from tidemill.packages.status import PackageKey

# Real time, in milliseconds: that of editors and file systems.
WATCH_QUIET_MS = 10  # a change is told when nothing more was heard for so long
WATCH_BATCH_LIMIT_MS = 60  # or after this time, in a folder where something is written all the time
RESCAN_INTERVAL_MS = 10  # between looks at something that is just changing
RESCAN_LIMIT = 30  # how many of them are waited for
WATCHER_POLL_INTERVAL_MS = 300  # for the watcher itself, on systems that cannot tell
UNPROMPTED_SCAN_INTERVAL_MS = (
    2000  # how often to look unasked: network drives tell nothing, nor does a folder whose parent was moved
)

DEFAULT_DEBOUNCE = DebounceTimes()

ReportedState = Mapping[PackageKey, tuple[str, str]] | str | None
"""Packages with their digests and their places; or why it cannot be told; None before the first look."""


class FolderSource(PackageSource):
    """The packages in a folder, or the one that the folder is; or a single archive or Python file.

    In a folder that is none itself these are wanted: every folder in it with a manifest, every archive, and every
    Python file that imports Tidemill, unless its name is that of a test or begins with '_'.
    """

    def __init__(
        self,
        path: Path,
        tenant: str,
        limits: ArchiveLimits = DEFAULT_LIMITS,
        debounce: DebounceTimes = DEFAULT_DEBOUNCE,
    ) -> None:
        self.path = path
        self._tenant = tenant
        self._scanner = FolderScanner(path, limits)
        self._debouncer = Debouncer(debounce, self._scanner)
        self._scan_lock = threading.Lock()  # a look that nobody waits for any more may still be under way
        self._names: dict[Path, str] = {}
        self._name_owners: dict[str, Path] = {}
        self._reported: ReportedState = None

    async def desired_packages(self) -> Mapping[PackageKey, DesiredPackage]:
        """Return the packages that are there now; OperationError if the folder is not, or cannot be read.

        A package that was read once keeps its name when its manifest is damaged: so it stays the same package. What is
        just being saved is waited for, and if that takes long, it is still told as it was before.
        """
        look: FolderScan = await call_in_thread(self._scan)
        for _ in range(RESCAN_LIMIT if look.is_changing else 0):
            await asyncio.sleep(RESCAN_INTERVAL_MS / 1000)  # real time: that of whoever saves
            look = await call_in_thread(self._scan)
            if not look.is_changing:
                break
        self._reported = self._reported_state(look)
        if look.problem is not None:
            raise OperationError(look.problem)
        return self._build_desired(look)

    async def wait_for_change(self) -> None:
        """Return when packages are not what they were when they were last told, or when this last returned."""
        stop = threading.Event()
        pool = ThreadPoolExecutor(1, thread_name_prefix="tidemill folder watch")
        work = asyncio.get_running_loop().run_in_executor(pool, self._watch_until_change, stop)
        pool.shutdown(wait=False)
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([work])
            raise
        work.result()

    # -- which packages

    def _scan(self) -> FolderScan:
        with self._scan_lock:
            return self._debouncer.debounce(self._scanner.scan(), monotonic())

    def _reported_state(self, scan: FolderScan) -> ReportedState:
        return scan.problem or {key: (one.digest, str(one.path)) for key, one in self._by_key(scan).items()}

    def _build_desired(self, scan: FolderScan) -> dict[PackageKey, DesiredPackage]:
        return {
            key: DesiredPackage(
                key=key,
                digest=sighting.digest,
                title=str(sighting.path),
                version=sighting.version,
                read=partial(self._read_found, key, sighting),
            )
            for key, sighting in self._by_key(scan).items()
        }

    def _by_key(self, scan: FolderScan) -> dict[PackageKey, FoundPackage]:
        """Return what was found by key; of those with one name, the first that had it keeps it."""
        with self._scan_lock:
            self._names = {one.path: one.name or self._names.get(one.path, one.base_name) for one in scan.packages}
            named: dict[str, list[FoundPackage]] = {}
            for one in scan.packages:
                named.setdefault(self._names[one.path], []).append(one)
            first = self._name_owners = {name: self._name_owner(name, ones) for name, ones in named.items()}
        return {
            PackageKey(self._tenant, name if one.path == first[name] else f"{name} ({one.path.name})"): one
            for name, ones in named.items()
            for one in ones
        }

    def _name_owner(self, name: str, found: Iterable[FoundPackage]) -> Path:
        holder = self._name_owners.get(name)
        return min(found, key=lambda one: (one.path != holder, one.name is None, one.path)).path

    async def _read_found(self, key: PackageKey, found: FoundPackage) -> PackageContents:
        contents = await self._read_stable_contents(key, found)
        name = contents.manifest.name
        if name == key.name:
            return contents
        holder = self._name_owners.get(name)
        if holder not in (None, found.path):
            message = f"{found.path} is a package '{name}', and so is {holder}; rename or remove one of them"
            raise RequestError(message, code="name_taken", status=409, name=name)
        raise OperationError(f"{found.path} was changed while it was read: it is '{name}' now, not '{key.name}'")

    async def _read_stable_contents(self, key: PackageKey, found: FoundPackage) -> PackageContents:
        """Return what was seen; if it is just being saved, what is there afterwards is not told in its place."""
        reason = ""
        for _ in range(RESCAN_LIMIT):
            try:
                contents: PackageContents
                contents, is_what_was_seen = await call_in_thread(_read_and_compare, found)
                if is_what_was_seen or contents.manifest.name != key.name:
                    return contents
            except TidemillError as error:
                if str(error) == reason:  # else it may be wrong for this moment only
                    raise
                reason = str(error)
            await asyncio.sleep(RESCAN_INTERVAL_MS / 1000)  # real time: as above
        raise OperationError(f"{found.path} was changed again before it was read")

    # -- news, on a thread of their own

    def _watch_until_change(self, stop: threading.Event) -> None:
        while not stop.is_set():
            look = self._scan()
            places = [path for path, _ in look.folders]
            try:
                with RustNotify(places, False, False, WATCHER_POLL_INTERVAL_MS, False, True) as watcher:
                    self._recheck_recent()
                    if self._watch_folders(watcher, look, stop):
                        return
            except FileNotFoundError:
                stop.wait(WATCH_QUIET_MS / 1000)  # a folder is gone since it was seen
            except (OSError, WatchfilesRustInternalError):  # the system watches nothing more for us
                if self._is_changed(look):
                    return
                stop.wait((RESCAN_INTERVAL_MS if look.is_changing else UNPROMPTED_SCAN_INTERVAL_MS) / 1000)

    def _watch_folders(self, watcher: RustNotify, before: FolderScan, stop: threading.Event) -> bool:
        """Return True when there is news, False when other folders are to be watched."""
        while not stop.is_set():
            look = self._scan()
            if self._is_changed(look):
                return True
            if look.folders != before.folders:
                return False
            self._wait_for_events(
                watcher, RESCAN_INTERVAL_MS if look.is_changing else UNPROMPTED_SCAN_INTERVAL_MS, stop
            )
        return False

    def _wait_for_events(self, watcher: RustNotify, limit: int, stop: threading.Event) -> None:
        heard = watcher.watch(WATCH_BATCH_LIMIT_MS, WATCH_QUIET_MS, limit, stop)
        if isinstance(heard, set):
            with self._scan_lock:
                self._scanner.invalidate({os.path.basename(path) for _, path in heard})

    def _recheck_recent(self) -> None:
        with self._scan_lock:
            self._scanner.invalidate_recent()

    def _is_changed(self, scan: FolderScan) -> bool:
        """Tell whether a look has found something else than the last one that was told, which it is then."""
        before, self._reported = self._reported, self._reported_state(scan)
        return self._reported != before


def _read_and_compare(found: FoundPackage) -> tuple[PackageContents, bool]:
    contents = found.read(found.path)
    return contents, found.matches(contents)
