"""What packages ask of a database: which are wanted, who may sign them, and what each node has loaded of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol

import msgspec


class PublishedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package that every node of the store is to load; its archive is read apart."""

    tenant: str
    name: str
    version: str
    digest: str
    """Of the archive."""
    size: int
    at: datetime
    revision: int = 0
    """Rises whenever one of this name is published, also after it was withdrawn; 0 for one that is not stored yet."""


class Packages(Protocol):
    """The registry of packages that are wanted, one version of each, and the versions that were recorded.

    Who publishes or withdraws is heard by other processes, see `WorkflowStore.listen`.
    """

    async def publish(self, package: PublishedPackage, archive: bytes, expected_revision: int) -> bool:
        """Want a package in place of the one of its name, whose revision was `found` (0: there was none).

        Returns False, with nothing changed, if that is no longer so. Records the version, see `record`.
        """

    async def withdraw(self, tenant: str, name: str) -> bool:
        """Want a package no more; return whether it was wanted. What is recorded of its versions stays."""

    async def list_published(self) -> list[PublishedPackage]:
        """Return every package that is wanted, by tenant and name."""

    async def read_archive(self, tenant: str, name: str, digest: str) -> bytes | None:
        """Return an archive; None if another one is wanted by now, or none."""

    async def recorded_version(self, tenant: str, name: str) -> str | None:
        """Return the version that was recorded last for a name; None for a name that was never seen."""

    async def record_version(self, tenant: str, name: str, version: str) -> None:
        """Record a version: whoever calls has seen that it is newer, or that an older one is allowed."""


class TrustedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A public key that may sign a tenant's packages."""

    tenant: str
    id: str
    text: str
    """The key itself, as people exchange it."""
    at: datetime


class TrustedKeys(Protocol):
    """Who may sign packages, by tenant."""

    async def add(self, key: TrustedKey) -> None:
        """Trust a key; one that is trusted already stays as it is."""

    async def delete(self, tenant: str, id: str) -> bool:
        """Trust a key no more; return whether it was trusted."""

    async def for_tenant(self, tenant: str) -> list[TrustedKey]:
        """Return the keys that a tenant trusts, oldest first."""


LoadPhase = Literal["loading", "loaded", "unloading"]


class LoadedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has loaded of a package, or what must be taken away if it was cut off meanwhile."""

    tenant: str
    name: str
    owner: str
    """The process whose package it is."""
    phase: LoadPhase
    version: str
    digest: str
    state: bytes
    """The side effects, which only the engine understands; while versions change, the rows of both."""
    at: datetime


class PackageStates(Protocol):
    """What the nodes of a store have loaded."""

    async def upsert(self, rows: Sequence[LoadedPackage]) -> None:
        """Write what is loaded, each in place of the row of its tenant, name and owner."""

    async def delete(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Forget rows by (tenant, name, owner); one that is not there is no error."""

    async def list_all(self) -> list[LoadedPackage]:
        """Return every row, by tenant and name, oldest first."""
