"""The upload of a package, whose body is an archive."""

from pathlib import Path

from tidemill.api.packages import PackageInfo
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.client.calls import ARCHIVE, name_in_path, put
from tidemill.packages.format.archive import read_folder_or_archive


class AsyncPackageCalls:
    """The method that is not written from an operation."""

    _transport: AsyncTransport

    async def upload(self, path: str | Path, *, allow_downgrade: bool = False) -> PackageInfo:
        """Upload the archive or the folder of a package, which every node on the store loads.

        Returns when the server has loaded it, has failed to, or after about ten seconds: `state` says which.
        """
        contents = read_folder_or_archive(Path(path))
        raw = contents.raw or contents.to_archive()
        path_ = f"/packages/{name_in_path(contents.manifest.name)}"
        call = put(path_, PackageInfo, raw, content_type=ARCHIVE, allow_downgrade=allow_downgrade)
        return await self._transport.send(call)
