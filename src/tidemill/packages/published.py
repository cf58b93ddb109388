"""The published packages of a store: read, published and withdrawn without a node.

Publishing imports what reads archives and signatures when it is used: most commands on a store need none of it.
"""

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import NotFoundError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.states import StepTime
from tidemill.packages.status import PackageStatus
from tidemill.storage.tables.packages import Packages, PublishedPackage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidemill.packages.format.archive import PackageContents
    from tidemill.packages.format.signature import TrustPolicy
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


class PublishedPackages:
    """Reads and changes what is published in a store; the nodes on it follow."""

    def __init__(self, packages: Packages, clock: Clock, find_trust: "Callable[[], TrustPolicy]") -> None:
        self._packages = packages
        self._clock = clock
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

        return Publisher(self._packages, self._find_trust(), self._clock)
