"""Tables of the versions of workflows: their specs, and the nodes that have them loaded."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from tidemill.kernel.about import About
from tidemill.kernel.limits import make_storable
from tidemill.storage.tables.database import Statement, Table, Transaction
from tidemill.storage.tables.declared import of_tenant
from tidemill.workflows.records import VersionKey


class CodeArchive(NamedTuple):
    """The published archive that has the code of a version."""

    package: str = ""
    version: str = ""
    """The version of the package."""
    digest: str = ""
    """Empty if a folder or a program loaded the code."""


NO_ARCHIVE = CodeArchive()


class WorkflowAbout(msgspec.Struct, frozen=True, omit_defaults=True):
    """Owners and descriptions of a workflow and of its tasks."""

    workflow: About = About()
    tasks: dict[str, About] = {}
    """Those that have an owner or a description."""


_ABOUT_DECODER = msgspec.json.Decoder(WorkflowAbout)


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
    archive: CodeArchive = NO_ARCHIVE
    """The published archive that it was last loaded from."""
    about: WorkflowAbout = WorkflowAbout()
    """As it was last loaded."""


class LoadedVersion(NamedTuple):
    """A version whose code a node has loaded."""

    owner: str
    """The process of the node."""
    key: VersionKey
    is_current: bool
    """Whether new runs get it there; if not, it is kept for the runs that need it."""


_IS_WORKFLOW = "tenant = :tenant AND workflow = :workflow"
_PUT = Statement("""
    INSERT INTO {schema}workflow_versions AS known
        (tenant, workflow, version, spec, seen_at, source, tags, about, package, package_version, archive)
    VALUES
        (:tenant, :workflow, :version, :spec, :seen_at, :source, :tags, :about, :package, :package_version, :archive)
    ON CONFLICT (tenant, workflow, version) DO UPDATE SET
        seen_at = {greatest}(known.seen_at, excluded.seen_at),
        source = CASE known.source WHEN '' THEN excluded.source ELSE known.source END,
        tags = excluded.tags, about = excluded.about,
        package = CASE excluded.archive WHEN '' THEN known.package ELSE excluded.package END,
        package_version = CASE excluded.archive WHEN '' THEN known.package_version ELSE excluded.package_version END,
        archive = CASE excluded.archive WHEN '' THEN known.archive ELSE excluded.archive END
""")
_RETIRE = Statement(f"UPDATE {{schema}}loaded_versions SET is_current = false WHERE owner = :owner AND {_IS_WORKFLOW}")
_ADD_LOADED = Statement("""
    INSERT INTO {schema}loaded_versions (owner, tenant, workflow, version, is_current)
    VALUES (:owner, :tenant, :workflow, :version, true)
    ON CONFLICT (owner, tenant, workflow, version) DO UPDATE SET is_current = true
""")
_ADD_OLDER = Statement("""
    INSERT INTO {schema}loaded_versions (owner, tenant, workflow, version, is_current)
    VALUES (:owner, :tenant, :workflow, :version, false)
    ON CONFLICT (owner, tenant, workflow, version) DO NOTHING
""")
_OF_RUN = "known.tenant = run.tenant AND known.workflow = run.workflow AND known.version = run.version"
_NEEDED = Statement(f"""
    SELECT DISTINCT known.tenant, known.workflow, known.version, known.package, known.package_version, known.archive
    FROM {{schema}}runs AS run JOIN {{schema}}workflow_versions AS known ON {_OF_RUN}
    WHERE run.state IN {{active_runs}} AND known.archive <> ''
""")
_UNFINISHED_OF = Statement(f"""
    SELECT known.archive, count(*)
    FROM {{schema}}runs AS run JOIN {{schema}}workflow_versions AS known ON {_OF_RUN}
    WHERE run.state IN {{active_runs}} AND run.tenant = :tenant AND known.package = :package AND known.archive <> ''
    GROUP BY known.archive
""")
_DELETE_LOADED = Statement(
    f"DELETE FROM {{schema}}loaded_versions WHERE owner = :owner AND {_IS_WORKFLOW} AND version = :version"
)
_ALL_LOADED = Statement("""
    SELECT owner, tenant, workflow, version, is_current FROM {schema}loaded_versions
    ORDER BY owner, tenant, workflow, version
""")
_VERSION_OF = Statement(f"""
    SELECT spec, seen_at, source, tags, about, package, package_version, archive FROM {{schema}}workflow_versions
    WHERE {_IS_WORKFLOW} AND version = :version
""")
_VERSIONS_OF = Statement("""
    SELECT workflow, version, spec, seen_at, '', tags, about, package, package_version, archive
    FROM {schema}workflow_versions WHERE tenant = :tenant
    ORDER BY workflow, seen_at, version
""")


class Versions(Table):
    """Every version of a workflow that a run may be pinned to, and the nodes that have them loaded."""

    tables = of_tenant("workflow_versions", "loaded_versions")

    async def upsert(self, version: WorkflowVersion, owner: str | None = None) -> None:
        """Write a version; of an existing one only `seen_at` changes, and never goes back.

        With an owner, record that it has loaded this version, which is from now on the current one of its workflow
        there.
        """
        key, tags = version.key._asdict(), list(version.tags)
        row = {"spec": version.spec, "seen_at": version.seen_at, "source": make_storable(version.source), "tags": tags}
        package, package_version, digest = version.archive
        row |= {"package": package, "package_version": package_version, "archive": digest}
        row["about"] = make_storable(msgspec.json.encode(version.about).decode())

        async def write(transaction: Transaction) -> None:
            await transaction.fetch(_PUT, **key, **row)
            if owner is not None:
                await transaction.fetch(_RETIRE, **key, owner=owner)
                await transaction.fetch(_ADD_LOADED, **key, owner=owner)

        await self._database.transact(write)

    async def add_older(self, owner: str, key: VersionKey) -> None:
        """Record that an owner has loaded a version for the runs that need it; new runs do not get it there."""
        await self._put(_ADD_OLDER, owner=owner, **key._asdict())

    async def list_needed(self) -> dict[VersionKey, CodeArchive]:
        """Return the versions of unfinished runs that published archives have the code of, for every tenant."""
        rows = await self._database.fetch(_NEEDED)
        return {VersionKey(*columns[:3]): CodeArchive(*columns[3:]) for columns in rows}

    async def count_unfinished(self, tenant: str, package: str) -> dict[str, int]:
        """Return the number of unfinished runs by the digest of the archive of a package that has their code."""
        rows = await self._database.fetch(_UNFINISHED_OF, tenant=tenant, package=package)
        return dict(rows)

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

    def _build(
        self, key: VersionKey, spec: bytes, seen_at: Any, source: str, tags: Any, about: str, *archive: str
    ) -> WorkflowVersion:
        last_loaded, names = self._database.read_time(seen_at), self._database.read_texts(tags)
        return WorkflowVersion(
            key=key,
            spec=spec,
            seen_at=last_loaded,
            source=source,
            tags=tuple(names),
            archive=CodeArchive(*archive),
            about=_ABOUT_DECODER.decode(about) if about else WorkflowAbout(),
        )
