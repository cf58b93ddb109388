"""The registry of packages of a store, for commands that open the store themselves."""

from collections.abc import Sequence
from pathlib import Path

from tidemill.cli.package_publishing import PackageLine, PackageRegistry
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.settings import Settings
from tidemill.packages.format.archive import PackageContents
from tidemill.packages.format.public_key import PublicKey, load_public_keys
from tidemill.packages.format.signature import TrustPolicy
from tidemill.packages.publishing import Publisher
from tidemill.storage.package_ports import PublishedPackage
from tidemill.storage.store import Store


class StorePackages(PackageRegistry):
    """Publishes in a store; nodes with the setting load_published load from there."""

    def __init__(self, store: Store, tenant: str) -> None:
        settings = Settings.read()
        trust = TrustPolicy(store.trusted_keys, configured_keys(settings), settings.require_signatures)
        self._publisher = Publisher(store.packages, trust, SystemClock())
        self._store = store
        self._tenant = tenant
        self.whose = f" for tenant '{tenant}'"

    async def publish(
        self,
        path: Path,  # noqa: ARG002, the contents are read already
        contents: PackageContents,
        *,
        allow_downgrade: bool,
    ) -> PackageLine:
        return _to_line(await self._publisher.publish(contents, self._tenant, allow_downgrade=allow_downgrade))

    async def list_published(self) -> list[PackageLine]:
        packages = await self._store.packages.list_published()
        return [_to_line(one) for one in packages if one.tenant == self._tenant]

    async def withdraw(self, name: str) -> None:
        await self._publisher.withdraw(self._tenant, name)


def configured_keys(settings: Settings) -> Sequence[PublicKey]:
    """Return the keys of the file that the settings name."""
    return load_public_keys(Path(settings.trusted_keys)) if settings.trusted_keys else []


def _to_line(package: PublishedPackage) -> PackageLine:
    return PackageLine(package.name, package.version, package.at, package.digest, package.size)
