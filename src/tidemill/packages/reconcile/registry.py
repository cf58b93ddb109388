"""The registry in the database: what was published there is wanted, whoever's it is."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from tidemill.engine.wakeup import Wakeup
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.format.archive import DEFAULT_LIMITS, PackageContents, parse_archive
from tidemill.packages.format.zip_format import ArchiveLimits, invalid_package_error
from tidemill.packages.reconcile.decision import DesiredPackage, PackageKey, PackageSource
from tidemill.storage.package_ports import Packages, PublishedPackage

Subscribe = Callable[[Callable[[], None]], Awaitable[None]]


class RegistrySource(PackageSource):
    """The published packages of all tenants.

    News are heard through `listen`, as far as the store can tell, and looked for every `interval` seconds.
    """

    def __init__(
        self,
        packages: Packages,
        clock: Clock,
        interval: float,
        subscribe: Subscribe | None = None,
        limits: ArchiveLimits = DEFAULT_LIMITS,
    ) -> None:
        self._packages = packages
        self._interval = interval
        self._subscribe = subscribe
        self._limits = limits
        self._wakeup = Wakeup(clock)

    async def desired_packages(self) -> Mapping[PackageKey, DesiredPackage]:
        """Return what is published now; archives are read when they are asked for."""
        return {
            PackageKey(one.tenant, one.name): DesiredPackage(
                key=PackageKey(one.tenant, one.name),
                digest=one.digest,
                title=_display_title(one),
                version=one.version,
                read=partial(self._read_published, one),
            )
            for one in await self._packages.list_published()
        }

    async def wait_for_change(self) -> None:
        """Return on news, and when it is time to look."""
        if self._subscribe is not None:
            await self._subscribe(self.wake)
            self._subscribe = None  # a store that could not be asked is asked again the next time
        await self._wakeup.wait(self._interval)

    def wake(self) -> None:
        """Let whoever waits for a change look now: this process has published or withdrawn something itself."""
        self._wakeup.notify()

    async def _read_published(self, package: PublishedPackage) -> PackageContents:
        raw = await self._packages.read_archive(package.tenant, package.name, package.digest)
        if raw is None:
            raise OperationError(f"{_display_title(package)} was replaced or withdrawn before it was read")
        contents: PackageContents = await call_in_thread(self._parse_published, package, raw)
        return contents

    def _parse_published(self, package: PublishedPackage, raw: bytes) -> PackageContents:
        if archive_digest(raw) != package.digest:
            raise invalid_package_error(
                _display_title(package), "the archive in the store is not the one that was published: publish it again"
            )
        contents = parse_archive(raw, _display_title(package), self._limits)
        found = (contents.manifest.name, str(contents.manifest.version))
        if found != (package.name, package.version):
            raise _damaged_archive_error(package, f"its archive holds {' '.join(found)}")
        return contents


def archive_digest(raw: bytes) -> str:
    """Return the digest by which the registry knows an archive."""
    return hashlib.sha256(raw).hexdigest()


def _damaged_archive_error(package: PublishedPackage, message: str) -> RequestError:
    return invalid_package_error(_display_title(package), f"{message}: withdraw it, and publish it again")


def _display_title(package: PublishedPackage) -> str:
    return f"{package.name} {package.version} in the registry of '{package.tenant}'"
