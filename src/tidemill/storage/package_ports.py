"""Ports of the packages: published packages, trusted keys, and the packages that each node has loaded."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol

import msgspec


class PublishedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package that every node of the store is to load; its archive is read separately."""

    tenant: str
    name: str
    version: str
    digest: str
    """Of the archive."""
    size: int
    at: datetime
    revision: int = 0
    """Grows with each publication under this name, also after a withdrawal; 0 for a package that is not stored yet."""


class Packages(Protocol):
    """The registry of published packages, one version of each, and the versions recorded for each name.

    Other processes are notified of publications and withdrawals, see `WorkflowStore.listen`.
    """

    async def publish(self, package: PublishedPackage, archive: bytes, expected_revision: int) -> bool:
        """Publish a package if the stored revision is still `expected_revision` (0: none), and record its version.

        Returns False, with nothing changed, if it is not.
        """

    async def withdraw(self, tenant: str, name: str) -> bool:
        """Withdraw a package; return whether it was published. Its recorded version stays."""

    async def list_published(self) -> list[PublishedPackage]:
        """Return every published package, by tenant and name."""

    async def read_archive(self, tenant: str, name: str, digest: str) -> bytes | None:
        """Return an archive; None if another one, or none, is published by now."""

    async def recorded_version(self, tenant: str, name: str) -> str | None:
        """Return the last recorded version of a name; None for an unknown name."""

    async def record_version(self, tenant: str, name: str, version: str) -> None:
        """Record a version. The caller has checked that it is newer, or that a downgrade is allowed."""


class TrustedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A public key that may sign a tenant's packages."""

    tenant: str
    id: str
    text: str
    """The key itself, as people exchange it."""
    at: datetime


class TrustedKeys(Protocol):
    """Keys that may sign packages, by tenant."""

    async def add(self, key: TrustedKey) -> None:
        """Trust a key; an existing one stays as it is."""

    async def delete(self, tenant: str, id: str) -> bool:
        """Stop trusting a key; return whether it was trusted."""

    async def for_tenant(self, tenant: str) -> list[TrustedKey]:
        """Return the keys that a tenant trusts, oldest first."""


LoadPhase = Literal["loading", "loaded", "unloading"]


class LoadedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package that a node has loaded, is loading or is unloading: what to remove if the node was interrupted."""

    tenant: str
    name: str
    owner: str
    """The process that has loaded it."""
    phase: LoadPhase
    version: str
    digest: str
    state: bytes
    """The side effects, encoded by the engine; those of both versions while they change."""
    at: datetime


class PackageStates(Protocol):
    """Packages that the nodes of a store have loaded."""

    async def upsert(self, rows: Sequence[LoadedPackage]) -> None:
        """Write rows, each in place of the one of its tenant, name and owner."""

    async def delete(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Delete rows by (tenant, name, owner); unknown ones are ignored."""

    async def list_all(self) -> list[LoadedPackage]:
        """Return every row, by tenant and name, oldest first."""
