"""The published packages of a store: read, published and withdrawn without a node.

Publishing imports what reads archives and signatures when it is used: most commands on a store need none of it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.limits import is_storable
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.states import StepTime
from tidemill.packages.status import PackageStatus
from tidemill.storage.store import Store
from tidemill.storage.tables.packages import PublishedPackage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidemill.engine.graphs.checkpoints.kept_values import Managed
    from tidemill.packages.format.archive import PackageContents
    from tidemill.packages.format.signature import TrustPolicy
    from tidemill.packages.kept_state import Probe, StateCheck
    from tidemill.packages.publishing import Publisher


class PackageOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A package that is published, loaded here, or wanted here."""

    name: str
    status: PackageStatus | None = None
    """None if this node does not load published packages, or has not seen this one yet."""
    published: PublishedPackage | None
    """None if a folder or a program loaded it."""
    steps: list[StepTime] = []

    @property
    def since(self) -> datetime:
        """Since when it is in its state; when it was published, if this node has not seen it."""
        if self.status is not None:
            return self.status.since
        assert self.published is not None, "a package is published or loaded"
        return self.published.at


class KeptVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a package whose archive the registry has."""

    package: PublishedPackage
    is_published: bool
    unfinished_runs: int
    """Runs that need its code to end."""


class PublishedPackages:
    """Reads and changes what is published in a store; the nodes on it follow."""

    def __init__(self, store: Store, clock: Clock, settings: Settings, find_trust: "Callable[[], TrustPolicy]") -> None:
        self._store = store
        self._managed: Managed = {}
        self._packages = store.packages
        self._versions = store.versions
        self._clock = clock
        self._history = settings.package_history
        self._find_trust = find_trust

    async def list_all(self, tenant: str) -> list[PackageOverview]:
        """Return the packages of a tenant by name."""
        return [
            PackageOverview(name=one.name, published=one)
            for one in await self._packages.list_published()
            if one.tenant == tenant
        ]

    async def find(self, tenant: str, name: str) -> PackageOverview:
        """Return a package; NotFoundError if it is neither published nor loaded."""
        known = {one.name: one for one in await self.list_all(tenant)}
        if name in known:
            return known[name]
        message = f"package '{name}' is neither published nor loaded{did_you_mean(name, known)}"
        raise NotFoundError("package", name, message, known)

    async def history(self, tenant: str, name: str) -> list[KeptVersion]:
        """Return the versions of a package that the registry keeps, the one published last first."""
        kept = await self._packages.list_history(tenant, name) if is_storable(name) else []
        if not kept:
            await self.find(tenant, name)  # it was never published
        published = {
            one.digest for one in await self._packages.list_published() if (one.tenant, one.name) == (tenant, name)
        }
        unfinished = await self._versions.count_unfinished(tenant, name)
        return [
            KeptVersion(
                package=one, is_published=one.digest in published, unfinished_runs=unfinished.get(one.digest, 0)
            )
            for one in kept
        ]

    async def rollback(self, tenant: str, name: str, version: str | None = None) -> PackageOverview:
        """Publish a version that the registry has kept: by default, the next lower one."""
        return await self.publish(tenant, await self.read_kept(tenant, name, version), allow_downgrade=True)

    async def read_kept(self, tenant: str, name: str, version: str | None) -> "PackageContents":
        """Return the contents of a version that the registry has kept; by default, of the next lower one."""
        from tidemill.packages.format.archive import parse_archive  # on use: cryptography takes long to import

        kept = await self.history(tenant, name)
        chosen = find_lower(kept, name) if version is None else find_kept(kept, name, version)
        raw = await self._packages.read_archive(tenant, name, chosen.digest)
        if raw is None:  # other processes have published newer versions meanwhile
            raise _not_kept_error(kept, name, chosen.version)
        title = f"{name} {chosen.version} in the registry of '{tenant}'"
        contents: PackageContents = await call_in_thread(parse_archive, raw, title)
        return contents

    async def check_state(self, tenant: str, probe: "Probe") -> "StateCheck":
        """Return what a package reads of the stored state of its reactors; `probe` imports it."""
        from tidemill.packages.kept_state import check_kept_state  # on use: most commands on a store read no state

        return await check_kept_state(self._store, tenant, probe, self._managed)

    async def publish(
        self, tenant: str, contents: "PackageContents", *, allow_downgrade: bool = False
    ) -> PackageOverview:
        """Publish a package that was checked."""
        published = await self._publisher.publish(contents, tenant, allow_downgrade=allow_downgrade)
        return PackageOverview(name=published.name, published=published)

    async def remove(self, tenant: str, name: str) -> None:
        """Withdraw a package, so that nodes unload it as soon as no other package needs it."""
        await self.find(tenant, name)
        await self._publisher.withdraw(tenant, name)

    @property
    def _publisher(self) -> "Publisher":
        from tidemill.packages.publishing import Publisher  # on use: cryptography takes long to import

        return Publisher(self._packages, self._find_trust(), self._clock, self._history)


def find_lower(kept: Sequence[KeptVersion], name: str) -> PublishedPackage:
    """Return the kept version below the published one; if none is published, the one that was last."""
    from tidemill.packages.format.versions import Version  # on use: most commands on a store compare no versions

    published = next((one.package for one in kept if one.is_published), None)
    if published is None:
        return kept[0].package
    current = Version.parse(published.version)
    lower = [one.package for one in kept if Version.parse(one.package.version) < current]
    if not lower:
        message = f"the registry keeps no version of package '{name}' below {published.version}, which is published"
        raise RequestError(message, code="no_older_version", status=409, version=published.version)
    return max(lower, key=lambda one: (Version.parse(one.version), one.revision))


def find_kept(kept: Sequence[KeptVersion], name: str, version: str) -> PublishedPackage:
    """Return a kept version; of several archives with this version, the one that was published last."""
    found = next((one.package for one in kept if one.package.version == version), None)
    if found is None:
        raise _not_kept_error(kept, name, version)
    return found


def _not_kept_error(kept: Sequence[KeptVersion], name: str, version: str) -> NotFoundError:
    known = list(dict.fromkeys(one.package.version for one in kept))
    message = f"the registry does not keep version {version} of package '{name}'; it has {', '.join(known)}"
    return NotFoundError("package_version", version, message, known)
