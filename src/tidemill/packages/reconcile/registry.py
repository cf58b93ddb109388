"""The registry in the store as a package source: every published package is desired, for every tenant."""

from collections.abc import Iterable, Mapping
from functools import partial

from tidemill.engine.tasks import Wakeup
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.format.archive import DEFAULT_LIMITS, PackageContents, archive_digest, parse_archive
from tidemill.packages.format.zip_format import ArchiveLimits, invalid_package_error
from tidemill.packages.reconcile.decision import DesiredPackage, PackageSource
from tidemill.packages.status import PackageKey
from tidemill.storage.store import Store
from tidemill.storage.tables.packages import PublishedPackage


class RegistrySource(PackageSource):
    """The published packages of all tenants.

    The store notifies of changes if it can; the registry is also read every `interval` seconds.
    """

    def __init__(self, store: Store, clock: Clock, interval: float, limits: ArchiveLimits = DEFAULT_LIMITS) -> None:
        self._store = store
        self._interval = interval
        self._limits = limits
        self._wakeup = Wakeup(clock)
        self._is_listening = False

    def remember_packages(self, keys: Iterable[PackageKey]) -> None:
        """Do nothing: what is published has a name, even if it is damaged."""

    async def desired_packages(self) -> Mapping[PackageKey, DesiredPackage]:
        """Return the packages that are published now; their archives are not read yet."""
        return {
            PackageKey(one.tenant, one.name): DesiredPackage(
                key=PackageKey(one.tenant, one.name),
                digest=one.digest,
                title=_display_title(one),
                version=one.version,
                read=partial(self._read_published, one),
            )
            for one in await self._store.packages.list_published()
        }

    async def wait_for_change(self) -> None:
        """Return when the store notifies of a change, or after the interval."""
        if not self._is_listening:  # if the store is down, the next call subscribes
            await self._store.listen(self._wakeup.notify, "packages")
            self._is_listening = True
        await self._wakeup.wait(self._interval)

    async def _read_published(self, package: PublishedPackage) -> PackageContents:
        raw = await self._store.packages.read_archive(package.tenant, package.name, package.digest)
        if raw is None:
            raise OperationError(f"{_display_title(package)} was replaced or withdrawn before it could be read")
        contents: PackageContents = await call_in_thread(self._parse_published, package, raw)
        return contents

    def _parse_published(self, package: PublishedPackage, raw: bytes) -> PackageContents:
        if archive_digest(raw) != package.digest:
            raise invalid_package_error(
                _display_title(package), "the archive in the store differs from the published one: publish it again"
            )
        contents = parse_archive(raw, _display_title(package), self._limits)
        found = (contents.manifest.name, str(contents.manifest.version))
        if found != (package.name, package.version):
            raise _damaged_archive_error(package, f"its archive holds {' '.join(found)}")
        return contents


def _damaged_archive_error(package: PublishedPackage, message: str) -> RequestError:
    return invalid_package_error(_display_title(package), f"{message}: withdraw it, and publish it again")


def _display_title(package: PublishedPackage) -> str:
    return f"{package.name} {package.version} in the registry of '{package.tenant}'"
