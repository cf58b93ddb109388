"""The registry in the database: what was published there is wanted, whoever's it is."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from tidemill.engine.wakeups import Alarm
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import in_thread
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.archive import STANDARD, Contents, parse_archive
from tidemill.packages.entries import Limits, invalid
from tidemill.packages.wanted import PackageKey, Source, Wanted
from tidemill.storage.package_ports import Packages, Published

Listen = Callable[[Callable[[], None]], Awaitable[None]]


class RegistrySource(Source):
    """The published packages of all tenants.

    News are heard through `listen`, as far as the store can tell, and looked for every `interval` seconds.
    """

    def __init__(
        self,
        packages: Packages,
        clock: Clock,
        interval: float,
        listen: Listen | None = None,
        limits: Limits = STANDARD,
    ) -> None:
        self._packages = packages
        self._interval = interval
        self._listen = listen
        self._limits = limits
        self._alarm = Alarm(clock)

    async def wanted(self) -> Mapping[PackageKey, Wanted]:
        """Return what is published now; archives are read when they are asked for."""
        return {
            PackageKey(one.tenant, one.name): Wanted(
                key=PackageKey(one.tenant, one.name),
                digest=one.digest,
                title=_title(one),
                version=one.version,
                read=partial(self._read, one),
            )
            for one in await self._packages.published()
        }

    async def changed(self) -> None:
        """Return on news, and when it is time to look."""
        if self._listen is not None:
            await self._listen(self.wake)
            self._listen = None  # a store that could not be asked is asked again the next time
        await self._alarm.sleep(self._interval)

    def wake(self) -> None:
        """Let whoever waits for a change look now: this process has published or withdrawn something itself."""
        self._alarm.ring()

    async def _read(self, package: Published) -> Contents:
        raw = await self._packages.archive(package.tenant, package.name, package.digest)
        if raw is None:
            raise OperationError(f"{_title(package)} was replaced or withdrawn before it was read")
        contents: Contents = await in_thread(self._parse, package, raw)
        return contents

    def _parse(self, package: Published, raw: bytes) -> Contents:
        if archive_digest(raw) != package.digest:
            raise invalid(
                _title(package), "the archive in the store is not the one that was published: publish it again"
            )
        contents = parse_archive(raw, _title(package), self._limits)
        found = (contents.manifest.name, str(contents.manifest.version))
        if found != (package.name, package.version):
            raise _damaged(package, f"its archive holds {' '.join(found)}")
        return contents


def archive_digest(raw: bytes) -> str:
    """Return the digest by which the registry knows an archive."""
    return hashlib.sha256(raw).hexdigest()


def _damaged(package: Published, message: str) -> RequestError:
    return invalid(_title(package), f"{message}: withdraw it, and publish it again")


def _title(package: Published) -> str:
    return f"{package.name} {package.version} in the registry of '{package.tenant}'"
