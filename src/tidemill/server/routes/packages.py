"""Packages: their state on this node, uploads that every node loads, and import errors."""

import linecache
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from litestar import Response
from litestar.params import FromPath, QueryParameter

from tidemill.api.paging import DEFAULT_LIMIT, Page, PageRequest, page_of
from tidemill.kernel.errors import Location, Problem
from tidemill.packages.format.archive import DEFAULT_LIMITS
from tidemill.packages.status import State, StepTime
from tidemill.packages.uploads import PackageOverview, PackageUploads
from tidemill.server.context import ServerContext
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import Cursor, Limit
from tidemill.server.requests import ApiRequest
from tidemill.server.routing import RawBody

UPLOAD_LIMIT = DEFAULT_LIMITS.archive_size
UPLOAD_BODIES = (RawBody("application/octet-stream", "The bytes of a `.tidemill` archive."),)

AllowDowngrade = Annotated[bool, QueryParameter(description="Accept a version lower than the last published one.")]


class ImportProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a package's definitions."""

    message: str
    file: str | None
    line: int | None
    source_line: str | None
    """The text of that line, if the file can be read."""

    @classmethod
    def of(cls, problem: Problem, source: str) -> "ImportProblem":
        """Return the view of a problem of a package from a folder, a file or a registry."""
        if (at := problem.location) is None:
            return cls(message=problem.message, file=None, line=None, source_line=None)
        return cls(message=problem.message, file=at.file, line=at.line, source_line=_read_line(at, Path(source)))


def _read_line(at: Location, source: Path) -> str | None:
    """Return a line of a file as it is now: a save that repairs it makes the problem go away."""
    if not source.is_absolute():
        return None
    file = str((source if source.is_dir() else source.parent) / at.file)
    linecache.checkcache(file)
    return linecache.getline(file, at.line).strip() or None


class PackageView(msgspec.Struct, frozen=True, kw_only=True):
    """A package, as this node sees it."""

    name: str
    state: State | Literal["published"] = "published"
    """`published` if this node has not loaded it, and does not try to."""
    version: str | None = None
    """The loaded version."""
    wanted: str | None
    """The version that is to be loaded."""
    published: str | None
    """The version in the registry of the store; null if a folder or a program loaded the package."""
    digest: str | None
    """The SHA-256 of the published archive."""
    source: str = ""
    """The folder, file or registry that the wanted version comes from."""
    since: datetime
    steps: list[StepTime]
    """The six steps of the last load, with their times."""
    reason: str = ""
    """Why the last attempt failed."""
    problems: list[ImportProblem] = []
    """The problems of its definitions, by file and line."""
    waiting_for: list[str] = []
    """What other packages must provide first."""
    failures: int = 0
    """Failed attempts in a row."""
    again_at: datetime | None = None
    """When the next attempt is due."""


class PackageProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A package that cannot be loaded, and one reason."""

    package: str
    version: str | None
    at: datetime
    message: str
    file: str | None
    line: int | None
    source_line: str | None
    """The text of that line, if the file can be read."""


def _view(overview: PackageOverview) -> PackageView:
    published = overview.published
    version, digest = (None, None) if published is None else (published.version, published.digest)
    if (status := overview.status) is None:
        assert published is not None, "a package is published or loaded"
        return PackageView(
            name=overview.name,
            published=version,
            digest=digest,
            wanted=version,
            since=published.at,
            steps=overview.steps,
        )
    return PackageView(
        name=overview.name,
        state=status.state,
        version=status.version or None,
        wanted=status.wanted,
        published=version,
        digest=digest,
        source=status.title,
        since=status.since,
        steps=overview.steps,
        reason=status.reason,
        problems=[ImportProblem.of(one, status.title) for one in status.problems],
        waiting_for=list(status.waiting_for),
        failures=status.failures,
        again_at=status.again_at,
    )


def _uploads(context: ServerContext) -> PackageUploads:
    return PackageUploads(context.node.package_service, context.node.event_feed.clock)


async def list_packages(
    context: InjectedContext, caller: InjectedCaller, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[PackageView]:
    """List the packages that are published, loaded or wanted."""
    packages = await _uploads(context).list_all(caller.tenant)
    return page_of(packages, PageRequest(limit, cursor), key=lambda one: one.name, view=_view)


async def get_package(context: InjectedContext, caller: InjectedCaller, name: FromPath[str]) -> PackageView:
    """Return a package: its state, the six steps with their times, and problems by file and line."""
    return _view(await _uploads(context).find(caller.tenant, name))


async def put_package(
    context: InjectedContext,
    caller: InjectedCaller,
    request: ApiRequest,
    name: FromPath[str],
    allow_downgrade: AllowDowngrade = False,
) -> Response[PackageView]:
    """Upload a package, which every node on the store loads.

    Its code runs with the rights of the server. So this needs an admin of the instance, unless the server requires
    signatures or has the setting `tenant_uploads`: then an admin of the tenant suffices.

    The archive is checked first, up to an import in a process of its own. The answer shows the package once this node
    has loaded it, or has failed to, or after ten seconds. Status 201 if it is new, 200 if it was published already.
    """
    uploads = _uploads(context)
    is_new = await uploads.publish(caller.tenant, name, await request.body(), allow_downgrade=allow_downgrade)
    view = _view(await uploads.find(caller.tenant, name))
    return Response(view, status_code=201 if is_new else 200, headers={"Location": request.url.path})


async def delete_package(context: InjectedContext, caller: InjectedCaller, name: FromPath[str]) -> None:
    """Withdraw a package, so that every node unloads it; refused while other packages need it."""
    await _uploads(context).remove(caller.tenant, name)


async def list_import_errors(
    context: InjectedContext, caller: InjectedCaller, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[PackageProblem]:
    """List the problems of the packages that this node cannot load, by file and line."""
    packages = await _uploads(context).list_all(caller.tenant)
    problems = [problem for one in packages for problem in _import_errors(one)]
    return page_of(problems, PageRequest(limit, cursor), key=_error_key, view=lambda one: one)


def _import_errors(overview: PackageOverview) -> Iterator[PackageProblem]:
    status = overview.status
    if status is None or status.state != "failed":
        return
    found = [ImportProblem.of(one, status.title) for one in status.problems]
    for one in found or [ImportProblem(message=status.reason, file=None, line=None, source_line=None)]:
        yield PackageProblem(
            package=status.name,
            version=status.wanted,
            at=status.since,
            message=one.message,
            file=one.file,
            line=one.line,
            source_line=one.source_line,
        )


def _error_key(error: PackageProblem) -> str:
    return f"{error.package} {error.file or ''} {error.line or 0:09} {error.message}"
