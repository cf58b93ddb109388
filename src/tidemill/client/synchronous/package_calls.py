# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.
"""Methods of the client for packages."""

from pathlib import Path

from tidemill.api.paging import Page
from tidemill.client.calls import ARCHIVE, delete, get, name_in_path, put
from tidemill.client.synchronous.transport import Transport
from tidemill.client.values import PackageInfo
from tidemill.packages.format.archive import read_folder_or_archive


class PackageCalls:
    """Methods for packages."""

    _transport: Transport

    def packages(self) -> list[PackageInfo]:
        """Return the packages that are published, loaded or wanted."""
        return self._transport.collect(get("/packages", Page[PackageInfo]))

    def package(self, name: str) -> PackageInfo:
        """Return a package: its state, the six steps with their times, and problems by file and line."""
        return self._transport.send(get(f"/packages/{name_in_path(name)}", PackageInfo))

    def upload(self, path: str | Path, *, allow_downgrade: bool = False) -> PackageInfo:
        """Upload the archive or the folder of a package, which every node on the store loads.

        Returns when the server has loaded it, has failed to, or after about ten seconds: `state` says which.
        """
        contents = read_folder_or_archive(Path(path))
        raw = contents.raw or contents.to_archive()
        path_ = f"/packages/{name_in_path(contents.manifest.name)}"
        call = put(path_, PackageInfo, raw, content_type=ARCHIVE, allow_downgrade=allow_downgrade)
        return self._transport.send(call)

    def unload(self, name: str) -> None:
        """Withdraw a package: every node unloads it. Refused while other packages need it."""
        self._transport.send(delete(f"/packages/{name_in_path(name)}"))
