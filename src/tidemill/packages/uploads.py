"""Uploads: publishes packages in the registry of the store, so that every node loads them, and withdraws them.

An upload is checked as thoroughly as a load, up to an import in a separate process, before anything is stored.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidemill.engine.graphs.checkpoints.kept_values import unread_state_error
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings
from tidemill.packages.published import PackageOverview, PublishedPackages
from tidemill.packages.service import PackageService
from tidemill.packages.status import PackageKey
from tidemill.storage.tables.packages import PublishedPackage

if TYPE_CHECKING:
    from tidemill.packages.format.archive import PackageContents
    from tidemill.packages.kept_state import StateCheck

CHECK_INTERVAL = 0.05
"""Seconds between two checks whether a package is loaded or unloaded here."""
WAIT_SECONDS = 10.0
"""Seconds that an upload or a withdrawal waits for this node; others, and slower ones, follow."""


class PackageUploads(PublishedPackages):
    """Publishes and withdraws the packages of a store, and reads their status on this node."""

    def __init__(self, service: PackageService, clock: Clock, settings: Settings) -> None:
        super().__init__(service.store, clock, settings, lambda: service.files.trust)
        self._service = service
        self._managed = service.installer.scheduler.loaded.managed
        self._refuses_unread_state = settings.unread_state == "refuse"

    # -- reading

    async def list_all(self, tenant: str) -> list[PackageOverview]:
        """Return the packages of a tenant by name."""
        published = {one.name: one for one in await self._packages.list_published() if one.tenant == tenant}
        statuses = {one.name: one for one in self._service.status() if one.tenant == tenant}
        return [
            PackageOverview(
                name=name,
                status=statuses.get(name),
                published=published.get(name),
                steps=self._service.installer.pipeline.step_times.of(PackageKey(tenant, name)),
            )
            for name in sorted(published.keys() | statuses.keys())
        ]

    async def check_archive(self, tenant: str, name: str, archive: bytes) -> "StateCheck":
        """Check an archive as an upload does, and return what it reads of the kept state of its reactors."""
        return await self.try_state(tenant, await _parse(name, archive))

    async def try_state(self, tenant: str, contents: "PackageContents") -> "StateCheck":
        """Check a package as an upload does, and return what it reads of the kept state of its reactors."""
        return await self.check_state(tenant, partial(self._service.files.preparer.check, contents, tenant))

    # -- changing

    async def upload(self, tenant: str, name: str, archive: bytes, *, allow_downgrade: bool = False) -> bool:
        """Check an archive and publish it, and wait for this node to load it; return whether it is new."""
        contents = await _parse(name, archive)
        before = await self._find_published(tenant, name)
        await self.publish(tenant, contents, allow_downgrade=allow_downgrade)
        return before is None or before.digest != contents.digest

    async def publish(
        self, tenant: str, contents: "PackageContents", *, allow_downgrade: bool = False
    ) -> PackageOverview:
        """Check a package and publish it, and wait for this node to load it."""
        if self._refuses_unread_state:
            if unread := (await self.try_state(tenant, contents)).unread:
                raise unread_state_error(contents.manifest.name, unread)
        else:
            await self._service.files.preparer.check(contents, tenant)
        published = await self._publisher.publish(contents, tenant, allow_downgrade=allow_downgrade)
        await self._follow(lambda: self._is_tried(PackageKey(tenant, published.name), published.version))
        return await self.find(tenant, published.name)

    async def remove(self, tenant: str, name: str) -> None:
        """Withdraw a published package, or unload one that a program loaded; RequestError while others need it."""
        key = PackageKey(tenant, name)
        if await self._find_published(tenant, name) is None:
            await self.find(tenant, name)
            await self._service.unload(name, tenant)
            return
        if self._service.installed(key) is not None:
            self._service.installer.check_unloadable(key)
        await self._publisher.withdraw(tenant, name)
        await self._follow(lambda: self._service.installed(key) is None)

    async def _find_published(self, tenant: str, name: str) -> PublishedPackage | None:
        published = await self._packages.list_published()
        return next((one for one in published if (one.tenant, one.name) == (tenant, name)), None)

    def _is_tried(self, key: PackageKey, version: str) -> bool:
        """Return whether this node has loaded a version, or has failed to, or waits for something else."""
        for one in self._service.status():
            if (one.tenant, one.name) == key and one.wanted == version:
                return one.state in ("loaded", "failed", "waiting")
        return not self._service.loads_published

    async def _follow(self, is_done: Callable[[], bool]) -> None:
        """Let this node follow a change of the registry, and wait until it has."""
        self._service.on_registry_changed()
        deadline = self._clock.monotonic() + WAIT_SECONDS
        while not is_done() and self._clock.monotonic() < deadline and self._service.loads_published:
            await self._clock.sleep(CHECK_INTERVAL)


async def _parse(name: str, archive: bytes) -> "PackageContents":
    """Return the contents of the archive of a package."""
    from tidemill.packages.format.archive import parse_archive  # on use: cryptography takes long to import

    contents: PackageContents = await call_in_thread(parse_archive, archive, f"the archive of '{name}'")
    if contents.manifest.name != name:
        message = f"the archive holds package '{contents.manifest.name}', not '{name}': upload it under its name"
        raise RequestError(message, code="wrong_package", package=contents.manifest.name)
    return contents
