"""The registry of packages as commands see it, on a server or on a store."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tidemill.packages.format.archive import PackageContents


class PackageLine(NamedTuple):
    """A published package, as commands list it."""

    name: str
    version: str
    at: datetime
    digest: str | None = None
    size: int | None = None
    """In bytes; a server does not say it."""
    state: str | None = None
    """What a server makes of it: loaded, waiting, failed; a store does not know."""
    reason: str = ""
    """Why it failed."""


class PackageRegistry(Protocol):
    """The published packages of one tenant."""

    whose: str
    """The tenant, as the end of a sentence; empty if it is that of a key."""

    async def publish(self, path: Path, contents: "PackageContents", *, allow_downgrade: bool) -> PackageLine:
        """Publish the package that was read from a path."""

    async def list_published(self) -> list[PackageLine]:
        """Return the packages by name."""

    async def withdraw(self, name: str) -> None:
        """Withdraw a package: nodes unload it."""
