"""The upload of a package, whose body is an archive. `api/packages.py` declares everything else about packages."""

from typing import Annotated

from litestar import Response
from litestar.params import FromPath, QueryParameter

from tidemill.api.packages import PackageCheck, PackageInfo
from tidemill.packages.format.archive import DEFAULT_LIMITS
from tidemill.packages.uploads import PackageUploads
from tidemill.server.requests import ApiRequest
from tidemill.server.routing import RawBody

UPLOAD_LIMIT = DEFAULT_LIMITS.archive_size
UPLOAD_BODIES = (RawBody("application/octet-stream", "The bytes of a `.tidemill` archive."),)

AllowDowngrade = Annotated[bool, QueryParameter(description="Accept a version lower than the last published one.")]


async def put_package(
    request: ApiRequest, name: FromPath[str], allow_downgrade: AllowDowngrade = False
) -> Response[PackageInfo]:
    """Upload a package, which every node on the store loads.

    Its code runs with the rights of the server. So this needs an admin of the instance, unless the server requires
    signatures or has the setting `tenant_uploads`: then an admin of the tenant suffices.

    The archive is checked first, up to an import in a separate process. The answer shows the package once this node
    has loaded it, or has failed to, or after ten seconds. Status 201 if it is new, 200 if it was published already.
    """
    uploads = _uploads(request)
    is_new = await uploads.upload(request.caller.tenant, name, await request.body(), allow_downgrade=allow_downgrade)
    package = PackageInfo.seen(await uploads.find(request.caller.tenant, name))
    return Response(package, status_code=201 if is_new else 200, headers={"Location": request.url.path})


async def check_package(request: ApiRequest, name: FromPath[str]) -> PackageCheck:
    """Check a package without publishing it, and what it reads of the stored state of its reactors.

    The archive is imported in a separate process, as by an upload, with the same rights. It tries to read up to 10,000
    values there.
    """
    return PackageCheck.of_check(
        await _uploads(request).check_archive(request.caller.tenant, name, await request.body())
    )


def _uploads(request: ApiRequest) -> PackageUploads:
    node = request.node
    return PackageUploads(node.package_service, node.event_feed.clock, node.settings)
