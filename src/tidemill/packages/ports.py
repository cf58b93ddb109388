"""What the reconciler asks of a node: to prepare packages, to install and to remove them."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from tidemill.packages.archive import Contents
from tidemill.packages.metadata import Metadata
from tidemill.packages.preparing import Prepared
from tidemill.packages.wanted import PackageKey


class Installed(msgspec.Struct, frozen=True):
    """A package that is loaded, whoever loaded it."""

    version: str
    digest: str


class Site(Protocol):
    """A node, as far as its packages are concerned."""

    async def prepare(self, key: PackageKey, contents: Contents) -> Prepared:
        """Make a package ready beside what runs, or raise and leave nothing behind. Several may be made at once."""

    def missing(self, tenant: str, metadata: Metadata) -> list[str]:
        """Return what other packages must bring before this can be installed, in words."""

    async def install(self, key: PackageKey, prepared: Prepared) -> None:
        """Load a package, or swap it for the one that is loaded; if that fails, nothing has changed.

        What was prepared is only borrowed: whoever had it made discards it, also when it is loaded.
        """

    async def remove(self, key: PackageKey) -> None:
        """Unload a package; refused, with nothing changed, while others need it."""

    def installed(self) -> Mapping[PackageKey, Installed]:
        """Return everything that is loaded."""
