"""Import errors: why the node that answers cannot load packages."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from tidemill.access.principal import Permission, Principal
from tidemill.api.operation import GET, CommandForm, operation
from tidemill.api.packages import ImportProblem
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services

if TYPE_CHECKING:
    from tidemill.packages.status import PackageStatus


class PackageProblem(ImportProblem, frozen=True, kw_only=True):
    """A package that cannot be loaded, and one reason."""

    package: str
    version: str | None
    at: datetime


@operation(
    GET("/import-errors"),
    Permission.READ,
    command=CommandForm(
        "package errors",
        columns=("package", "version", "message", "file", "line"),
        empty="no package has failed to load",
    ),
)
async def list_import_errors(services: Services, caller: Principal, page: PageRequest) -> Page[PackageProblem]:
    """List the problems of the packages that this node cannot load, by file and line."""
    failed = [one for one in services.packages.status() if one.tenant == caller.tenant and one.state == "failed"]
    problems = [problem for one in failed for problem in _import_errors(one)]
    return page_of(problems, page, key=_error_key, view=lambda one: one)


def _import_errors(status: "PackageStatus") -> Iterator[PackageProblem]:
    found = [ImportProblem.shown(one, status.title) for one in status.problems]
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
