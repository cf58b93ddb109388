"""Tables of the packages: published packages, trusted keys, and the packages that each node has loaded."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from tidemill.storage.tables.database import RowCodec, Statement, Table, Transaction
from tidemill.storage.tables.declared import of_tenant


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
    """Grows with each publication under this name, even after a withdrawal; 0 for a package that is not stored yet."""


DEFAULT_HISTORY = 10
"""Versions of a package that are kept, the published one included."""
_PACKAGE = RowCodec(PublishedPackage)
_LOCK = Statement("SELECT {lock:packages}")  # one lock for all, so that publishers of several never deadlock
_REVISION = Statement("SELECT revision FROM {schema}packages WHERE tenant = :tenant AND name = :name")
# `step` is 1 if the package is published at the same time, and 0 if it is only recorded.
_RECORD = Statement("""
    INSERT INTO {schema}package_versions AS known (tenant, name, version, revision)
    VALUES (:tenant, :name, :version, :step)
    ON CONFLICT (tenant, name) DO UPDATE SET
        version = excluded.version, revision = known.revision + excluded.revision
    RETURNING revision
""")
_PUT = Statement(
    """
    INSERT INTO {schema}packages ({columns}, archive) VALUES ({parameters}, :archive)
    ON CONFLICT (tenant, name) DO UPDATE SET {updates}, archive = excluded.archive
    RETURNING {notify:packages}
    """,
    _PACKAGE,
)
_IS_PACKAGE = "tenant = :tenant AND name = :name"
_KEEP = Statement(
    f"""
    INSERT INTO {{schema}}package_archives ({{columns}}, archive)
    SELECT {{columns}}, archive FROM {{schema}}packages WHERE {_IS_PACKAGE}
    """,
    _PACKAGE,
)
_FORGET = Statement(f"DELETE FROM {{schema}}package_archives WHERE {_IS_PACKAGE} AND digest = :digest")
# Kept beyond the limit: what an unfinished run needs, and what a node still has loaded, for it may start such a run.
_PRUNE = Statement(f"""
    DELETE FROM {{schema}}package_archives AS kept
    WHERE {_IS_PACKAGE} AND revision NOT IN (
        SELECT revision FROM {{schema}}package_archives WHERE {_IS_PACKAGE} ORDER BY revision DESC LIMIT :limit
    ) AND NOT EXISTS (
        SELECT 1 FROM {{schema}}workflow_versions AS known
        WHERE known.tenant = kept.tenant AND known.package = kept.name AND known.archive = kept.digest
        AND (EXISTS (
            SELECT 1 FROM {{schema}}runs AS run
            WHERE run.state IN {{active_runs}} AND run.tenant = known.tenant AND run.workflow = known.workflow
            AND run.version = known.version
        ) OR EXISTS (
            SELECT 1 FROM {{schema}}loaded_versions AS loaded
            WHERE loaded.tenant = known.tenant AND loaded.workflow = known.workflow
            AND loaded.version = known.version
        ))
    )
""")
_HISTORY = Statement(
    f"""
    SELECT {{columns}} FROM {{schema}}packages WHERE {_IS_PACKAGE}
    UNION ALL SELECT {{columns}} FROM {{schema}}package_archives WHERE {_IS_PACKAGE}
    ORDER BY revision DESC
    """,
    _PACKAGE,
)
_WITHDRAW = Statement(
    "DELETE FROM {schema}packages WHERE tenant = :tenant AND name = :name RETURNING {notify:packages}"
)
_ALL_PACKAGES = Statement("SELECT {columns} FROM {schema}packages ORDER BY tenant, name", _PACKAGE)
_ARCHIVE = Statement(f"""
    SELECT archive FROM {{schema}}packages WHERE {_IS_PACKAGE} AND digest = :digest
    UNION ALL SELECT archive FROM {{schema}}package_archives WHERE {_IS_PACKAGE} AND digest = :digest
""")
_RECORDED = Statement("SELECT version FROM {schema}package_versions WHERE tenant = :tenant AND name = :name")


class Packages(Table):
    """The registry of packages: the published version of each, those published before, and the recorded version.

    Other processes are notified of publications and withdrawals, see `WorkflowStore.listen`.
    """

    tables = of_tenant("packages", "package_versions", "package_archives")

    async def publish(
        self, package: PublishedPackage, archive: bytes, expected_revision: int, *, history: int = DEFAULT_HISTORY
    ) -> bool:
        """Publish a package if the stored revision is still `expected_revision` (0: none), and record its version.

        Returns False, with nothing changed, if it is not. The version before is kept, with older ones up to `history`
        versions in all; of those beyond, the ones that unfinished runs need, or that a node has loaded.
        """
        key = {"tenant": package.tenant, "name": package.name}

        async def write(transaction: Transaction) -> bool:
            await transaction.fetch(_LOCK)
            stored = await transaction.fetch(_REVISION, **key)
            if expected_revision != (stored[0][0] if stored else 0):
                return False
            await transaction.fetch(_KEEP, **key)
            await transaction.fetch(_FORGET, **key, digest=package.digest)
            await transaction.fetch(_PRUNE, **key, limit=history - 1)
            [(revision,)] = await transaction.fetch(_RECORD, **key, version=package.version, step=1)
            await transaction.fetch(_PUT, **_PACKAGE.values(package) | {"revision": revision, "archive": archive})
            return True

        return await self._database.transact(write)

    async def withdraw(self, tenant: str, name: str) -> bool:
        """Withdraw a package; return whether it was published. Its recorded version and its archives stay."""

        async def write(transaction: Transaction) -> bool:
            await transaction.fetch(_LOCK)
            await transaction.fetch(_KEEP, tenant=tenant, name=name)
            return bool(await transaction.fetch(_WITHDRAW, tenant=tenant, name=name))

        return await self._database.transact(write)

    async def list_published(self) -> list[PublishedPackage]:
        """Return every published package, by tenant and name."""
        return await self._list(_PACKAGE, _ALL_PACKAGES)

    async def read_archive(self, tenant: str, name: str, digest: str) -> bytes | None:
        """Return an archive that is published, or was before and is kept; None if there is none of this digest."""
        rows = await self._database.fetch(_ARCHIVE, tenant=tenant, name=name, digest=digest)
        return bytes(rows[0][0]) if rows else None

    async def list_history(self, tenant: str, name: str) -> list[PublishedPackage]:
        """Return the versions of a package that are kept, the one published last first."""
        return await self._list(_PACKAGE, _HISTORY, tenant=tenant, name=name)

    async def recorded_version(self, tenant: str, name: str) -> str | None:
        """Return the last recorded version of a name; None for an unknown name."""
        rows = await self._database.fetch(_RECORDED, tenant=tenant, name=name)
        return str(rows[0][0]) if rows else None

    async def record_version(self, tenant: str, name: str, version: str) -> None:
        """Record a version. The caller has checked that it is newer, or that a downgrade is allowed."""

        async def write(transaction: Transaction) -> None:
            await transaction.fetch(_LOCK)
            await transaction.fetch(_RECORD, tenant=tenant, name=name, version=version, step=0)

        await self._database.transact(write)


class TrustedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A public key that may sign a tenant's packages."""

    tenant: str
    id: str
    text: str
    """The key itself, as people exchange it."""
    at: datetime


_KEY = RowCodec(TrustedKey)
_TRUST = Statement("INSERT INTO {schema}trusted_keys ({columns}) VALUES ({parameters}) ON CONFLICT DO NOTHING", _KEY)
_DISTRUST = Statement("DELETE FROM {schema}trusted_keys WHERE tenant = :tenant AND id = :id RETURNING id")
_KEYS_OF = Statement("SELECT {columns} FROM {schema}trusted_keys WHERE tenant = :tenant ORDER BY at, id", _KEY)


class TrustedKeys(Table):
    """Keys that may sign packages, by tenant."""

    tables = of_tenant("trusted_keys")

    async def add(self, key: TrustedKey) -> None:
        """Trust a key; an existing one stays as it is."""
        await self._put(_TRUST, **_KEY.values(key))

    async def delete(self, tenant: str, id: str) -> bool:
        """Stop trusting a key; return whether it was trusted."""
        return bool(await self._change(_DISTRUST, tenant=tenant, id=id))

    async def for_tenant(self, tenant: str) -> list[TrustedKey]:
        """Return the keys that a tenant trusts, oldest first."""
        return await self._list(_KEY, _KEYS_OF, tenant=tenant)


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


_LOADED = RowCodec(LoadedPackage)
_PUT_LOADED = Statement(
    """
    INSERT INTO {schema}package_states ({columns}) VALUES ({parameters})
    ON CONFLICT (tenant, name, owner) DO UPDATE SET {updates}
    """,
    _LOADED,
)
_DELETE_LOADED = Statement(
    "DELETE FROM {schema}package_states WHERE tenant = :tenant AND name = :name AND owner = :owner"
)
_ALL_LOADED = Statement("SELECT {columns} FROM {schema}package_states ORDER BY tenant, name, at, owner", _LOADED)


class PackageStates(Table):
    """Packages that the nodes of a store have loaded."""

    tables = of_tenant("package_states")

    async def upsert(self, rows: Sequence[LoadedPackage]) -> None:
        """Write rows, each in place of the one of its tenant, name and owner."""
        await self._database.execute_many(_PUT_LOADED, [_LOADED.values(one) for one in rows])

    async def delete(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Delete rows by (tenant, name, owner); unknown ones are ignored."""
        keys = [{"tenant": tenant, "name": name, "owner": owner} for tenant, name, owner in rows]
        await self._database.execute_many(_DELETE_LOADED, keys)

    async def list_all(self) -> list[LoadedPackage]:
        """Return every row, by tenant and name, oldest first."""
        return await self._list(_LOADED, _ALL_LOADED)
