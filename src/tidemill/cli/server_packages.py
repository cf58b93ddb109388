"""The registry of packages of a server, for commands."""

from pathlib import Path

from tidemill.cli.package_publishing import PackageLine, PackageRegistry
from tidemill.client import AsyncClient
from tidemill.client.values import PackageInfo
from tidemill.packages.format.archive import PackageContents


class ServerPackages(PackageRegistry):
    """Publishes with a server, through the client."""

    def __init__(self, client: AsyncClient, tenant: str | None) -> None:
        self._client = client
        self.whose = "" if tenant is None else f" for tenant '{tenant}'"

    async def publish(
        self,
        path: Path,
        contents: PackageContents,  # noqa: ARG002, the server reads the archive itself
        *,
        allow_downgrade: bool,
    ) -> PackageLine:
        return _to_line(await self._client.upload(path, allow_downgrade=allow_downgrade))

    async def list_published(self) -> list[PackageLine]:
        return [_to_line(one) for one in await self._client.packages()]

    async def withdraw(self, name: str) -> None:
        await self._client.unload(name)


def _to_line(info: PackageInfo) -> PackageLine:
    version = info.published or info.version or info.wanted or ""
    return PackageLine(info.name, version, info.since, info.digest, state=info.state, reason=info.reason)
