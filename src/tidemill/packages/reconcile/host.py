"""The host port: a node that prepares, installs and unloads packages, as its reconcilers see it."""

from collections.abc import Mapping
from typing import Protocol

from tidemill.packages.format.archive import PackageContents
from tidemill.packages.loading.metadata import PackageMetadata
from tidemill.packages.loading.preparer import PreparedPackage
from tidemill.packages.loading.reader import PackageOrigin
from tidemill.packages.reconcile.handover import Names
from tidemill.packages.status import InstalledPackage, PackageKey


class PackageHost(Protocol):
    """A node, as its reconcilers see it."""

    async def prepare(self, contents: PackageContents, tenant: str, origin: PackageOrigin) -> PreparedPackage:
        """Prepare a package next to what runs, or raise and leave nothing behind. The caller holds a slot."""

    def missing_dependencies(self, key: PackageKey, metadata: PackageMetadata) -> list[str]:
        """Return what other packages must provide before a package can be installed."""

    def loaded_names(self, key: PackageKey) -> Names:
        """Return the names that the loaded version of a package defines; none if it is not loaded."""

    def declared_names(self, tenant: str, metadata: PackageMetadata) -> Names:
        """Return the names that a version declares."""

    async def install(
        self, prepared: PreparedPackage, tenant: str, origin: PackageOrigin, leaving: Mapping[PackageKey, Names]
    ) -> str:
        """Load a package, or replace its older version; if that fails, nothing has changed.

        `leaving` are names that other packages give up: the package takes over those that it declares. The caller
        discards `prepared`, even if it was loaded. Return the name of the package.
        """

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package; rejected, with nothing changed, while other packages need it."""

    def installed(self, key: PackageKey) -> InstalledPackage | None:
        """Return the loaded version of a package, from any origin."""
