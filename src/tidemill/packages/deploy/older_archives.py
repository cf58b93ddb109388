"""Older versions of published packages, which a node loads while unfinished runs need the code of their workflows.

A run is pinned to the version of its workflow that it began with. After a release and a restart, only the newest
package is loaded, so the node looks for runs whose code it does not have, and loads it from the archive that the
registry has kept: its workflows, and the graphs that their tasks call; neither reactors, nor schedules, nor triggers.
The code is discarded like that of any replaced version, as soon as no unfinished run needs it.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from tidemill.engine.tasks import Wakeup, run_forever
from tidemill.engine.workflows.versions import OlderCode
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.kernel.settings import Settings
from tidemill.packages.deploy.installer import Installer
from tidemill.packages.format.archive import PackageContents, parse_archive
from tidemill.packages.loading.preparer import PackagePreparer
from tidemill.packages.sanitizing import sanitize_error
from tidemill.storage.store import Store
from tidemill.storage.tables.versions import CodeArchive
from tidemill.telemetry import events
from tidemill.workflows.records import VersionKey

logger = logging.getLogger(__name__)

RETRY_LIMIT = 600.0
"""The longest time in seconds between two attempts to load an archive."""


class _TenantArchive(NamedTuple):
    """A published archive of a tenant."""

    tenant: str
    archive: CodeArchive

    @property
    def title(self) -> str:
        """The archive, for people."""
        return f"{self.archive.package} {self.archive.version}"


class _Failure(NamedTuple):
    """Why an archive could not be loaded, and when to try it again."""

    reason: str
    failures: int
    """Failed attempts in a row."""
    retry_at: float
    """On the monotonic clock."""


class OlderArchives(OlderCode):
    """Loads older versions of published packages on one node, for the runs that need them."""

    def __init__(
        self, store: Store, installer: Installer, preparer: PackagePreparer, clock: Clock, settings: Settings
    ) -> None:
        self._store = store
        self._installer = installer
        self._preparer = preparer
        self._clock = clock
        self._interval = settings.package_poll_interval
        self._backoff = Backoff(self._interval, max(self._interval, RETRY_LIMIT))
        self._wakeup = Wakeup(clock)
        self._needed: Mapping[VersionKey, CodeArchive] = {}
        """What was found to be needed last, with the archives that have it."""
        self._requested: set[VersionKey] = set()
        """What was asked for since it was last read what is needed."""
        self._unpublished: set[VersionKey] = set()
        """What was asked for, and no archive has."""
        self._failures: dict[_TenantArchive, _Failure] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being looked for or loaded."""
        return self._wakeup.is_waiting

    def request(self, key: VersionKey) -> str | None:
        """Load the code of a version soon, if possible; return why it is not, None if that is not known yet."""
        if key in self._needed:
            failure = self._failures.get(_TenantArchive(key.tenant, self._needed[key]))
            return None if failure is None else failure.reason
        if key in self._unpublished:
            return ""
        self._requested.add(key)
        self._wakeup.notify()
        return None

    async def run(self, wait_until_settled: Callable[[], Awaitable[None]]) -> None:
        """Load what unfinished runs need, from when the published versions are loaded, until cancelled."""
        await wait_until_settled()
        self._wakeup.notify()
        await run_forever(self._wait_and_load, self._on_error)

    async def _wait_and_load(self) -> None:
        await self._wakeup.wait(self._interval)
        await self._load_needed()

    def _on_error(self, error: Exception) -> None:
        is_bug = not isinstance(error, StoreError)
        fields = {"package": "", "version": "", "reason": sanitize_error(error)[0]}
        logger.warning(events.PACKAGE_OLDER_FAILED, exc_info=error if is_bug else None, extra=fields)

    async def _load_needed(self) -> None:
        versions = self._installer.engine.versions
        requested, self._requested = self._requested, set()
        self._needed = needed = await self._store.versions.list_needed()
        self._unpublished = (self._unpublished | requested) - needed.keys()
        wanted = {_TenantArchive(key.tenant, archive) for key, archive in needed.items()}
        self._failures = {archive: one for archive, one in self._failures.items() if archive in wanted}
        missing: dict[_TenantArchive, list[VersionKey]] = {}
        for key, kept in needed.items():
            if key not in versions.loaded:
                missing.setdefault(_TenantArchive(key.tenant, kept), []).append(key)
        if not missing:
            return
        published = {(one.tenant, one.digest) for one in await self._store.packages.list_published()}
        for archive, keys in missing.items():
            failure = self._failures.get(archive)
            is_due = failure is None or self._clock.monotonic() >= failure.retry_at
            if is_due and (archive.tenant, archive.archive.digest) not in published:  # those are loaded as packages
                await self._try_archive(archive, keys)

    async def _try_archive(self, archive: _TenantArchive, keys: Sequence[VersionKey]) -> None:
        fields = {"tenant": archive.tenant, "package": archive.archive.package, "version": archive.archive.version}
        try:
            await self._load_archive(archive, keys)
        except StoreError:
            raise
        except Exception as error:  # the error concerns this archive only
            reason, _ = sanitize_error(error)
            before = self._failures.get(archive)
            failures = 1 if before is None else before.failures + 1
            self._failures[archive] = _Failure(
                reason, failures, self._clock.monotonic() + self._backoff.delay(failures)
            )
            if before is None or before.reason != reason:
                logger.warning(events.PACKAGE_OLDER_FAILED, extra=fields | {"reason": reason})
        else:
            self._failures.pop(archive, None)
            names = sorted({key.workflow for key in keys})
            logger.info(events.PACKAGE_OLDER_LOADED, extra=fields | {"workflows": names})

    async def _load_archive(self, archive: _TenantArchive, keys: Sequence[VersionKey]) -> None:
        contents = await self._read(archive)
        async with self._preparer.limit.slot():
            prepared = await self._preparer.prepare(contents, archive.tenant)
        try:
            found = self._installer.find_versions(prepared.package, archive.tenant, keys)
            await self._installer.keep_older(archive.tenant, found, prepared)
        finally:
            prepared.discard()
        if len(found) < len(keys):
            raise OperationError(
                f"{archive.title} in the registry declares other tasks now than when the run began: they depend on the "
                "environment, on another package, or on the version of Tidemill"
            )

    async def _read(self, archive: _TenantArchive) -> PackageContents:
        package, _, digest = archive.archive
        raw = await self._store.packages.read_archive(archive.tenant, package, digest)
        if raw is None:
            raise OperationError(f"the registry no longer has the archive of {archive.title}")
        title = f"{archive.title} in the registry of '{archive.tenant}'"
        contents: PackageContents = await call_in_thread(parse_archive, raw, title)
        return contents
