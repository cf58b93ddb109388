"""Tables of the versions of workflows: their specs, and the nodes that have them loaded."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from tidemill.kernel.limits import make_storable
from tidemill.storage.tables.database import Statement, Table, Transaction
from tidemill.workflows.records import VersionKey


class WorkflowVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it was loaded: its spec as JSON."""

    key: VersionKey
    spec: bytes
    seen_at: datetime
    """When a node last loaded it."""
    source: str = ""
    """The source of the file that declares it, as it was first loaded; empty if it has none. Lists leave it out."""
    tags: tuple[str, ...] = ()
    """The tags of the workflow, as they were last loaded."""


class LoadedVersion(NamedTuple):
    """A version whose code a node has loaded."""

    owner: str
    """The process of the node."""
    key: VersionKey
    is_current: bool
    """Whether new runs get it there; if not, it is kept for the runs that need it."""


_IS_WORKFLOW = "tenant = :tenant AND workflow = :workflow"
_PUT = Statement("""
    INSERT INTO {schema}workflow_versions AS known (tenant, workflow, version, spec, seen_at, source, tags)
    VALUES (:tenant, :workflow, :version, :spec, :seen_at, :source, :tags)
    ON CONFLICT (tenant, workflow, version) DO UPDATE SET
        seen_at = {greatest}(known.seen_at, excluded.seen_at),
        source = CASE known.source WHEN '' THEN excluded.source ELSE known.source END,
        tags = excluded.tags
""")
_RETIRE = Statement(f"UPDATE {{schema}}loaded_versions SET is_current = false WHERE owner = :owner AND {_IS_WORKFLOW}")
_ADD_LOADED = Statement("""
    INSERT INTO {schema}loaded_versions (owner, tenant, workflow, version, is_current)
    VALUES (:owner, :tenant, :workflow, :version, true)
    ON CONFLICT (owner, tenant, workflow, version) DO UPDATE SET is_current = true
""")
_DELETE_LOADED = Statement(
    f"DELETE FROM {{schema}}loaded_versions WHERE owner = :owner AND {_IS_WORKFLOW} AND version = :version"
)
_ALL_LOADED = Statement("""
    SELECT owner, tenant, workflow, version, is_current FROM {schema}loaded_versions
    ORDER BY owner, tenant, workflow, version
""")
_VERSION_OF = Statement(f"""
    SELECT spec, seen_at, source, tags FROM {{schema}}workflow_versions WHERE {_IS_WORKFLOW} AND version = :version
""")
_VERSIONS_OF = Statement("""
    SELECT workflow, version, spec, seen_at, '', tags FROM {schema}workflow_versions WHERE tenant = :tenant
    ORDER BY workflow, seen_at, version
""")


class Versions(Table):
    """Every version of a workflow that a run may be pinned to, and the nodes that have them loaded."""

    async def upsert(self, version: WorkflowVersion, owner: str | None = None) -> None:
        """Write a version; of an existing one only `seen_at` changes, and never goes back.

        With an owner, record that it has loaded this version, which is from now on the current one of its workflow
        there.
        """
        key, tags = version.key._asdict(), list(version.tags)
        row = {"spec": version.spec, "seen_at": version.seen_at, "source": make_storable(version.source), "tags": tags}

        async def write(transaction: Transaction) -> None:
            await transaction.fetch(_PUT, **key, **row)
            if owner is not None:
                await transaction.fetch(_RETIRE, **key, owner=owner)
                await transaction.fetch(_ADD_LOADED, **key, owner=owner)

        await self._database.transact(write)

    async def retire(self, owner: str, tenant: str, workflow: str) -> None:
        """Record that no version of a workflow is current for an owner; it may keep the code of some."""
        await self._put(_RETIRE, owner=owner, tenant=tenant, workflow=workflow)

    async def unload(self, owner: str, keys: Collection[VersionKey]) -> None:
        """Record that an owner has discarded the code of some versions; unknown ones are ignored."""
        await self._database.execute_many(_DELETE_LOADED, [{"owner": owner, **key._asdict()} for key in keys])

    async def list_loaded(self) -> list[LoadedVersion]:
        """Return what every owner has loaded, by owner and version. The rows of an owner are deleted with it."""
        rows = await self._database.fetch(_ALL_LOADED)
        return [LoadedVersion(owner, VersionKey(*key), bool(is_current)) for owner, *key, is_current in rows]

    async def get(self, key: VersionKey) -> WorkflowVersion | None:
        """Return a version."""
        for columns in await self._database.fetch(_VERSION_OF, **key._asdict()):
            return self._build(key, *columns)
        return None

    async def for_tenant(self, tenant: str) -> list[WorkflowVersion]:
        """Return every version of a tenant's workflows, by workflow, last loaded last."""
        rows = await self._database.fetch(_VERSIONS_OF, tenant=tenant)
        return [self._build(VersionKey(tenant, workflow, version), *rest) for workflow, version, *rest in rows]

    def _build(self, key: VersionKey, spec: bytes, seen_at: Any, source: str, tags: Any) -> WorkflowVersion:
        last_loaded, names = self._database.read_time(seen_at), self._database.read_texts(tags)
        return WorkflowVersion(key=key, spec=spec, seen_at=last_loaded, source=source, tags=tuple(names))
