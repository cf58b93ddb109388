"""Packages: what is published in the store, and what the node that answers has made of it."""

import linecache
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import NameOf, Positional
from tidemill.api.operation import DELETE, GET, POST, CommandForm, Message, operation
from tidemill.api.paging import Page, PageRequest, page_after, page_of
from tidemill.api.services import Services
from tidemill.kernel.errors import Location, Problem
from tidemill.packages.states import State, StepTime

if TYPE_CHECKING:
    from tidemill.packages.kept_state import StateCheck
    from tidemill.packages.published import KeptVersion, PackageOverview


Name = Annotated[str, Meta(description="The name of a package."), NameOf("package")]


class ImportProblem(Message, frozen=True, kw_only=True):
    """A problem of a package's definitions."""

    message: str
    file: str | None
    line: int | None
    source_line: str | None
    """The text of that line, if the file can be read."""

    @classmethod
    def shown(cls, problem: Problem, source: str) -> "ImportProblem":
        """Return a problem of a package from a folder, a file or a registry."""
        if (place := problem.location) is None:
            return cls(message=problem.message, file=None, line=None, source_line=None)
        text = _read_line(place, Path(source))
        return cls(message=problem.message, file=place.file, line=place.line, source_line=text)


def _read_line(at: Location, source: Path) -> str | None:
    """Return a line of a file as it is now: a save that repairs it makes the problem go away."""
    if not source.is_absolute():
        return None
    file = str((source if source.is_dir() else source.parent) / at.file)
    linecache.checkcache(file)
    return linecache.getline(file, at.line).strip() or None


class PackageInfo(Message, frozen=True, kw_only=True):
    """A package, as the node that answers sees it."""

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
    size: int | None = None
    """Bytes of the published archive."""
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

    @classmethod
    def seen(cls, overview: "PackageOverview") -> "PackageInfo":
        """Return a package from what is known of it."""
        status, archive = overview.status, overview.published
        package = cls(
            name=overview.name,
            wanted=None if archive is None else archive.version,
            published=None if archive is None else archive.version,
            digest=None if archive is None else archive.digest,
            size=None if archive is None else archive.size,
            since=overview.since,
            steps=overview.steps,
        )
        if status is None:
            return package
        return replace(
            package,
            state=status.state,
            version=status.version or None,
            wanted=status.wanted,
            source=status.title,
            reason=status.reason,
            problems=[ImportProblem.shown(one, status.title) for one in status.problems],
            waiting_for=list(status.waiting_for),
            failures=status.failures,
            again_at=status.again_at,
        )


@operation(
    GET("/packages"),
    Permission.READ,
    command=CommandForm(
        "package list",
        columns=("name", "published", "state", "waiting_for", "since", "size", "digest"),
        rare=("waiting_for",),
        empty="no packages; publish one with `tidemill package upload`",
    ),
)
async def list_packages(services: Services, caller: Principal, page: PageRequest) -> Page[PackageInfo]:
    """List the packages that are published, loaded or wanted."""
    packages = await services.package_registry.list_all(caller.tenant)
    return page_of(packages, page, key=lambda one: one.name, view=PackageInfo.seen)


@operation(GET("/packages/{name}"), Permission.READ, command=CommandForm("package status"))
async def get_package(services: Services, caller: Principal, name: Name) -> PackageInfo:
    """Return a package: its state, the six steps with their times, and problems by file and line."""
    return PackageInfo.seen(await services.package_registry.find(caller.tenant, name))


class PackageVersion(Message, frozen=True, kw_only=True):
    """A version of a package whose archive the registry has."""

    version: str
    published: bool
    """Whether this is the version that nodes load."""
    at: datetime
    """When it was published last."""
    unfinished_runs: int
    """The runs that need its code to end."""
    size: int
    """Bytes of the archive."""
    digest: str
    """The SHA-256 of the archive."""

    @classmethod
    def of_kept(cls, kept: "KeptVersion") -> "PackageVersion":
        """Return the message about a version."""
        package = kept.package
        return cls(
            version=package.version,
            published=kept.is_published,
            at=package.at,
            unfinished_runs=kept.unfinished_runs,
            size=package.size,
            digest=package.digest,
        )


@operation(
    GET("/packages/{name}/versions"),
    Permission.READ,
    command=CommandForm(
        "package history",
        columns=("version", "published", "at", "unfinished_runs", "size", "digest"),
        empty="package '{name}' was never published",
    ),
)
async def list_package_history(
    services: Services, caller: Principal, page: PageRequest, name: Name
) -> Page[PackageVersion]:
    """List the versions of a package that the registry keeps, the one published last first."""
    kept = await services.package_registry.history(caller.tenant, name)
    return page_after([PackageVersion.of_kept(one) for one in kept], page, key=lambda one: one.digest)


class PackageCheck(Message, frozen=True, kw_only=True):
    """What a package that is not published yet reads of the kept state of its reactors."""

    unread: list[str]
    """What it does not read, by accumulator: their values would be lost."""
    values: int
    """How many stored values it was given."""
    complete: bool
    """Whether these are all."""

    @classmethod
    def of_check(cls, check: "StateCheck") -> "PackageCheck":
        """Return the message about a check."""
        return cls(unread=list(check.unread), values=check.values, complete=check.is_complete)


@operation(
    POST("/packages/{name}/rollback"),
    Permission.UPLOAD,
    audit="package.rollback",
    command=CommandForm(
        "package rollback",
        done="package '{name}' {published} is published, {state}",
        more="Example: tidemill package rollback market 1.2.0",
    ),
)
async def rollback_package(
    services: Services,
    caller: Principal,
    name: Name,
    version: Annotated[
        str | None, Meta(description="The version to publish; by default, the next lower one."), Positional()
    ] = None,
) -> PackageInfo:
    """Publish a version that the registry has kept, in place of a newer one; nodes load it as after an upload."""
    return PackageInfo.seen(await services.package_registry.rollback(caller.tenant, name, version))


@operation(
    DELETE("/packages/{name}"),
    Permission.ADMIN,
    audit="package.unload",
    command=CommandForm("package unload", done="package '{name}' is no longer published"),
)
async def unload(services: Services, caller: Principal, name: Name) -> None:
    """Withdraw a package, so that every node unloads it; refused while other packages need it."""
    await services.package_registry.remove(caller.tenant, name)
