"""Packages for the contract suite, with everything filled in that a test does not care about."""

from typing import Any

from tests.contract.samples import NOON
from tidemill.storage.store import Store
from tidemill.storage.tables.packages import LoadedPackage, PublishedPackage, TrustedKey


def package(name: str = "market", version: str = "1.0.0", **values: Any) -> PublishedPackage:
    """Return a package to publish; its digest is derived from its version by default."""
    given = {"tenant": "public", "digest": f"digest of {version}", "size": 7, "at": NOON}
    return PublishedPackage(name=name, version=version, **(given | values))


def trusted(id: str = "k1", **values: Any) -> TrustedKey:
    """Return a key that may sign."""
    return TrustedKey(id=id, **({"tenant": "public", "text": "ed25519:AAAA", "at": NOON} | values))


def loaded(name: str = "market", **values: Any) -> LoadedPackage:
    """Return a row of a loaded package."""
    given = {
        "tenant": "public",
        "owner": "node-1",
        "phase": "loaded",
        "version": "1.0.0",
        "digest": "digest of 1.0.0",
        "state": b"\x00state\xff",
        "at": NOON,
    }
    return LoadedPackage(name=name, **(given | values))


async def names(store: Store) -> list[str]:
    """Return the names of all published packages."""
    return [one.name for one in await store.packages.list_published()]
