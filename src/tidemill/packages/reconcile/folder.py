"""A watched folder as a package source: the packages in it are desired, and reloaded when they change."""

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

# Real time, in milliseconds, since editors and file systems take real time.
WATCH_QUIET_MS = 10  # a batch of events ends when none came for this long
WATCH_BATCH_LIMIT_MS = 60  # or after this time, in a folder that is written to all the time
RESCAN_INTERVAL_MS = 10  # between scans of a package that is changing
RESCAN_LIMIT = 30  # how many such scans a read waits for
WATCHER_POLL_INTERVAL_MS = 300  # of the watcher itself, on systems without file notifications
# Scans without an event: network drives send none, nor does a folder whose parent was moved.
UNPROMPTED_SCAN_INTERVAL_MS = 2000

DEFAULT_DEBOUNCE = DebounceTimes()

ReportedState = Mapping[PackageKey, tuple[str, str]] | str | None
"""Packages with their digests and paths; or why the folder cannot be read; None before the first scan."""


class FolderSource(PackageSource):
    """The packages in a folder, or a folder, archive or Python file that is a package itself.

    In a folder that is not a package itself, these are desired: every folder with a manifest, every archive, and every
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
        self._scan_lock = threading.Lock()  # a scan whose caller was cancelled may still be running
        self._names: dict[Path, str] = {}
        self._name_owners: dict[str, Path] = {}
        self._reported: ReportedState = None

    def remember_packages(self, keys: Iterable[PackageKey]) -> None:
        """Take the files of these packages for packages, even if they are broken now."""
        with self._scan_lock:
            self._scanner.remember_packages(key.name for key in keys if key.tenant == self._tenant)

    async def desired_packages(self) -> Mapping[PackageKey, DesiredPackage]:
        """Return the packages of the folder; raise OperationError if it is missing or cannot be read.

        A package whose manifest is damaged keeps the name that was read before, so it stays the same package. So does
        a Python file that was a package and is broken now. A package that is being saved is waited for; if that takes
        long, it is reported as it was before.
        """
        scan: FolderScan = await call_in_thread(self._scan)
        for _ in range(RESCAN_LIMIT if scan.is_changing else 0):
            await asyncio.sleep(RESCAN_INTERVAL_MS / 1000)  # real time: the author's editor takes it
            scan = await call_in_thread(self._scan)
            if not scan.is_changing:
                break
        self._reported = self._reported_state(scan)
        if scan.problem is not None:
            raise OperationError(scan.problem)
        return self._build_desired(scan)

    async def wait_for_change(self) -> None:
        """Return when packages differ from those last reported, or from those at the last return."""
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

    # -- packages

    def _scan(self) -> FolderScan:
        with self._scan_lock:
            return self._debouncer.debounce(self._scanner.scan(), monotonic())

    def _reported_state(self, scan: FolderScan) -> ReportedState:
        return scan.problem or {key: (one.digest, str(one.path)) for key, one in self._by_key(scan).items()}

    def _build_desired(self, scan: FolderScan) -> dict[PackageKey, DesiredPackage]:
        return {
            key: DesiredPackage(
                key=key,
                digest=found.digest,
                title=str(found.path),
                version=found.version,
                read=partial(self._read_found, key, found),
            )
            for key, found in self._by_key(scan).items()
        }

    def _by_key(self, scan: FolderScan) -> dict[PackageKey, FoundPackage]:
        """Return the packages by key; of several with one name, the first that had it keeps it."""
        with self._scan_lock:
            self._names = {one.path: one.name or self._names.get(one.path, one.base_name) for one in scan.packages}
            named: dict[str, list[FoundPackage]] = {}
            for one in scan.packages:
                named.setdefault(self._names[one.path], []).append(one)
            owners = self._name_owners = {name: self._name_owner(name, ones) for name, ones in named.items()}
        return {
            PackageKey(self._tenant, name if one.path == owners[name] else f"{name} ({one.path.name})"): one
            for name, ones in named.items()
            for one in ones
        }

    def _name_owner(self, name: str, found: Iterable[FoundPackage]) -> Path:
        owner = self._name_owners.get(name)
        return min(found, key=lambda one: (one.path != owner, one.name is None, one.path)).path

    async def _read_found(self, key: PackageKey, found: FoundPackage) -> PackageContents:
        contents = await self._read_stable_contents(key, found)
        name = contents.manifest.name
        if name == key.name:
            return contents
        owner = self._name_owners.get(name)
        if owner not in (None, found.path):
            message = f"{found.path} is a package '{name}', and so is {owner}; rename or remove one of them"
            raise RequestError(message, code="name_taken", status=409, name=name)
        raise OperationError(f"{found.path} was changed while it was read: it is '{name}' now, not '{key.name}'")

    async def _read_stable_contents(self, key: PackageKey, found: FoundPackage) -> PackageContents:
        """Return the contents that the scan saw; wait while they are being saved, and never return later ones."""
        reason = ""
        for _ in range(RESCAN_LIMIT):
            try:
                contents: PackageContents
                contents, is_unchanged = await call_in_thread(_read_and_compare, found)
                if is_unchanged or contents.manifest.name != key.name:
                    return contents
            except TidemillError as error:
                if str(error) == reason:  # the first time it may only be a save in progress
                    raise
                reason = str(error)
            await asyncio.sleep(RESCAN_INTERVAL_MS / 1000)  # real time: as above
        raise OperationError(f"{found.path} was changed again before it was read")

    # -- file notifications, on a separate thread

    def _watch_until_change(self, stop: threading.Event) -> None:
        while not stop.is_set():
            scan = self._scan()
            folders = [path for path, _ in scan.folders]
            try:
                with RustNotify(folders, False, False, WATCHER_POLL_INTERVAL_MS, False, True) as watcher:
                    self._recheck_recent()
                    if self._watch_folders(watcher, scan, stop):
                        return
            except FileNotFoundError:
                stop.wait(WATCH_QUIET_MS / 1000)  # a folder was removed since the scan
            except (OSError, WatchfilesRustInternalError):  # the system has no watches left
                if self._is_changed(scan):
                    return
                stop.wait((RESCAN_INTERVAL_MS if scan.is_changing else UNPROMPTED_SCAN_INTERVAL_MS) / 1000)

    def _watch_folders(self, watcher: RustNotify, before: FolderScan, stop: threading.Event) -> bool:
        """Return True when packages have changed, False when other folders are to be watched."""
        while not stop.is_set():
            scan = self._scan()
            if self._is_changed(scan):
                return True
            if scan.folders != before.folders:
                return False
            interval = RESCAN_INTERVAL_MS if scan.is_changing else UNPROMPTED_SCAN_INTERVAL_MS
            self._wait_for_events(watcher, interval, stop)
        return False

    def _wait_for_events(self, watcher: RustNotify, limit: int, stop: threading.Event) -> None:
        events = watcher.watch(WATCH_BATCH_LIMIT_MS, WATCH_QUIET_MS, limit, stop)
        if isinstance(events, set):
            with self._scan_lock:
                self._scanner.invalidate({os.path.basename(path) for _, path in events})

    def _recheck_recent(self) -> None:
        with self._scan_lock:
            self._scanner.invalidate_recent()

    def _is_changed(self, scan: FolderScan) -> bool:
        """Return whether this scan differs from the last one reported, and record it as reported."""
        before, self._reported = self._reported, self._reported_state(scan)
        return self._reported != before


def _read_and_compare(found: FoundPackage) -> tuple[PackageContents, bool]:
    contents = found.read(found.path)
    return contents, found.matches(contents)
