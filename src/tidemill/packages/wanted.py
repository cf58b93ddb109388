"""Which packages are wanted, whoever says so: a folder that is watched, or the registry in the database."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from tidemill.packages.archive import Contents


class PackageKey(NamedTuple):
    """Which package."""

    tenant: str
    name: str


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A package that is to be loaded, as far as it is known without reading it."""

    key: PackageKey
    digest: str
    """Changes when anything of it does."""

    title: str
    """Where it comes from, for people."""

    version: str | None
    """None if it cannot be told, because its manifest cannot be read."""

    read: Callable[[], Awaitable[Contents]]
    """Returns all of it; raises a TidemillError if it cannot be read."""


class Source(Protocol):
    """Where it is said which packages are wanted."""

    async def wanted(self) -> Mapping[PackageKey, Wanted]:
        """Return everything that is wanted now; raises a TidemillError if that cannot be told."""

    async def changed(self) -> None:
        """Return when something may have changed since the last call; too often harms nobody."""
