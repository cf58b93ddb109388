"""Publishes packages in the registry of a store, from which the nodes on that store load them."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import NotFoundError, OperationError, RequestError, TidemillError
from tidemill.kernel.limits import validate_tenant
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.format.archive import PackageContents, archive_digest, parse_archive
from tidemill.packages.format.public_key import PublicKey, load_public_keys
from tidemill.packages.format.signature import TrustPolicy
from tidemill.packages.format.versions import check_not_downgrade
from tidemill.storage.tables.packages import DEFAULT_HISTORY, Packages, PublishedPackage, TrustedKeys

PUBLISH_ATTEMPT_LIMIT = 20  # if other processes publish under the same name


def configured_keys(settings: Settings) -> Sequence[PublicKey]:
    """Return the keys of the file that the settings name."""
    return load_public_keys(Path(settings.trusted_keys)) if settings.trusted_keys else []


def make_trust(keys: TrustedKeys, settings: Settings) -> TrustPolicy:
    """Return the policy that decides which packages are let in."""
    return TrustPolicy(keys, configured_keys(settings), settings.require_signatures)


class Publisher:
    """Adds packages to a registry and withdraws them."""

    def __init__(self, packages: Packages, trust: TrustPolicy, clock: Clock, history: int = DEFAULT_HISTORY) -> None:
        """Create a publisher to a registry that keeps `history` versions of each package."""
        self._packages = packages
        self._trust = trust
        self._clock = clock
        self._history = history

    async def publish(
        self, contents: PackageContents, tenant: str, *, allow_downgrade: bool = False
    ) -> PublishedPackage:
        """Publish a package in place of its published version; raise RequestError if it is rejected.

        Publishing the same package again changes nothing. Other files under the published version are rejected, and so
        is a version below the recorded one, unless `allow_downgrade` is set.
        """
        validate_tenant(tenant)
        manifest = contents.manifest
        manifest.check_requirements()
        await self._trust.check(contents, tenant, self._clock.now())
        raw: bytes = contents.raw or await call_in_thread(contents.to_archive)
        digest: str = await call_in_thread(archive_digest, raw)
        offered = PublishedPackage(
            tenant=tenant,
            name=manifest.name,
            version=str(manifest.version),
            digest=digest,
            size=len(raw),
            at=self._clock.now(),
        )
        for _ in range(PUBLISH_ATTEMPT_LIMIT):
            found = await self._find_published(tenant, manifest.name)
            if found is not None and found.digest == digest:
                return found
            if found is not None and found.version == offered.version:
                await self._check_same_files(found, contents)
            if not allow_downgrade:
                recorded = await self._packages.recorded_version(tenant, offered.name)
                check_not_downgrade(recorded, offered.name, offered.version, "--allow-downgrade")
            revision = 0 if found is None else found.revision
            if await self._packages.publish(offered, raw, revision, history=self._history):
                return await self._as_stored(offered)
        raise OperationError(f"package '{manifest.name}' is being published by other processes all the time: retry")

    async def withdraw(self, tenant: str, name: str) -> None:
        """Withdraw a package, so that nodes unload it; its recorded version stays."""
        if not await self._packages.withdraw(tenant, name):
            known = [one.name for one in await self._packages.list_published() if one.tenant == tenant]
            message = f"no package '{name}' is published for tenant '{tenant}'{did_you_mean(name, known)}"
            raise NotFoundError("package", name, message, known)

    async def _find_published(self, tenant: str, name: str) -> PublishedPackage | None:
        found = [one for one in await self._packages.list_published() if (one.tenant, one.name) == (tenant, name)]
        return found[0] if found else None

    async def _as_stored(self, offered: PublishedPackage) -> PublishedPackage:
        """Return the published package with its revision, unless it was replaced meanwhile."""
        found = await self._find_published(offered.tenant, offered.name)
        return found if found is not None and replace(found, revision=0, at=offered.at) == offered else offered

    async def _check_same_files(self, found: PublishedPackage, contents: PackageContents) -> None:
        """Reject other files under a published version; the same files may have a new signature."""
        raw = await self._packages.read_archive(found.tenant, found.name, found.digest)
        if raw is None or await call_in_thread(_archive_has_files, raw, contents.title, contents):
            return  # without an archive it was replaced meanwhile, and publishing fails
        message = f"package '{found.name}' {found.version} is published already, with other files"
        raise RequestError(
            f"{message}; give the new one a new version", code="version_taken", status=409, version=found.version
        )


def _archive_has_files(raw: bytes, title: str, contents: PackageContents) -> bool:
    """Return whether an archive holds these files; a damaged archive does not."""
    try:
        return parse_archive(raw, title).files == contents.files
    except TidemillError:
        return False
