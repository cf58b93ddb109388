"""`tidemill package` and the registry of a store: what nodes on it load, and whose signatures count there."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.commands.package import (
    NoImportOption,
    PathArgument,
    check_signed_files,
    exit_on_bad_package,
    probe_package,
)
from tidemill.cli.formatting import format_count, format_time, time_column_title
from tidemill.cli.output import Format, Output, print_text, show_rows
from tidemill.cli.stores import StoreOption, TenantOption, open_store
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.format.archive import read_folder_or_archive
from tidemill.storage.package_ports import PublishedPackage, TrustedKey
from tidemill.storage.store import Store

if TYPE_CHECKING:
    from tidemill.packages.format.signature import PublicKey
    from tidemill.packages.publishing import Publisher

app = typer.Typer()

ALL_TENANTS_LABEL = "every tenant"


@app.command()
def upload(
    path: PathArgument,
    store: StoreOption = None,
    tenant: TenantOption = "public",
    allow_downgrade: Annotated[
        bool, typer.Option("--allow-downgrade", help="Also a version below the one that was published last.")
    ] = False,
    no_import: NoImportOption = False,
) -> None:
    """Publish a folder or an archive: nodes on the store with the setting load_published load it, or swap it.

    It is tried first as by `tidemill package check`; --no-import is for machines that lack the libraries it needs.

    Example: tidemill package upload market-0.1.0.tidemill --store sqlite:///tidemill.db
    """

    async def work() -> PublishedPackage:
        contents = read_folder_or_archive(path)
        if contents.signature is not None:
            check_signed_files(contents)
        contents.manifest.check_requirements()
        async with open_store(store) as reached:
            if not no_import:
                await probe_package(contents, path)
            return await _make_publisher(reached).publish(contents, tenant, allow_downgrade=allow_downgrade)

    with exit_on_bad_package():
        package = asyncio.run(work())
    print_text(
        f"{package.name} {package.version} is published for tenant '{tenant}', {format_count(package.size, 'byte')}"
    )


@app.command("list")
def list_packages(store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = "public") -> None:
    """List the packages that are published in a store."""

    async def read() -> list[PublishedPackage]:
        async with open_store(store, read_only=True) as reached:
            return [one for one in await reached.packages.list_published() if one.tenant == tenant]

    with exit_on_bad_package():
        found = asyncio.run(read())
    if output is Format.JSON:
        columns = ["package", "version", "size", "published", "digest"]
        rows = [[one.name, one.version, one.size, one.at.isoformat(), one.digest] for one in found]
        show_rows(columns, rows, output)
    elif found:
        cells = [[one.name, one.version, f"{one.size:,}", format_time(one.at), one.digest[:16]] for one in found]
        published = time_column_title("published", (one.at for one in found))
        show_rows(["package", "version", "bytes", published, "digest"], cells, output, droppable=["digest", "bytes"])
    else:
        print_text("no packages; publish one with `tidemill package upload`")


@app.command()
def unload(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a package.", show_default=False)],
    store: StoreOption = None,
    tenant: TenantOption = "public",
) -> None:
    """Take a package out of a store's registry: nodes unload it, as soon as no other package needs it."""

    async def work() -> None:
        async with open_store(store) as reached:
            await _make_publisher(reached).withdraw(tenant, name)

    with exit_on_bad_package():
        asyncio.run(work())
    print_text(f"package '{name}' is no longer published for tenant '{tenant}'")


@app.command()
def trust(
    file: Annotated[Path, typer.Argument(metavar="KEYFILE", help="A file with public keys, one per line.")],
    store: StoreOption = None,
    tenant: TenantOption = "public",
) -> None:
    """Let the owners of public keys sign packages for a tenant.

    Example: tidemill package trust alice.pub --store sqlite:///tidemill.db
    """

    from tidemill.packages.format.signature import load_public_keys

    async def work() -> "Sequence[PublicKey]":
        found = load_public_keys(file)
        async with open_store(store) as reached:
            for one in found:
                at = SystemClock().now()
                await reached.trusted_keys.add(TrustedKey(tenant=tenant, id=one.id, text=str(one), at=at))
        return found

    with exit_on_bad_package():
        trusted = asyncio.run(work())
    for one in trusted:
        print_text(f"key '{one.name}' ({one.id}) is trusted for tenant '{tenant}'")


@app.command()
def untrust(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a key, or so much of its beginning as is enough.")],
    store: StoreOption = None,
    tenant: TenantOption = "public",
) -> None:
    """Trust a key no more. What is loaded stays; what it signed is not loaded again where signatures are required.

    Example: tidemill package untrust fca075b5ce94e4ef --store sqlite:///tidemill.db
    """

    async def work() -> TrustedKey:
        async with open_store(store) as reached:
            key = _find_key(id, await reached.trusted_keys.for_tenant(tenant), tenant)
            await reached.trusted_keys.delete(tenant, key.id)
            return key

    with exit_on_bad_package():
        key = asyncio.run(work())
    print_text(f"key '{_key_name(key)}' ({key.id}) is no longer trusted for tenant '{tenant}'")


@app.command()
def keys(store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = "public") -> None:
    """List the keys that may sign a tenant's packages: those of the store, and of the file that the settings name."""

    async def read() -> list[TrustedKey]:
        async with open_store(store, read_only=True) as reached:
            return await reached.trusted_keys.for_tenant(tenant)

    with exit_on_bad_package():
        settings = Settings.read()
        found = asyncio.run(read())
        listed = _configured_keys(settings)
    if output is Format.JSON:
        rows: list[list[Any]] = [[one.id, _key_name(one), tenant, one.at.isoformat()] for one in found]
        rows += [[one.id, one.name, None, None] for one in listed]
        show_rows(["id", "name", "for", "since"], rows, output)
    elif found or listed:
        since = time_column_title("since", (one.at for one in found))
        rows = [[one.id, _key_name(one), tenant, format_time(one.at)] for one in found]
        rows += [[one.id, one.name, ALL_TENANTS_LABEL, ""] for one in listed]
        show_rows(["id", "name", "for", since], rows, output, droppable=[since])
    else:
        print_text("no keys are trusted; trust one with `tidemill package trust`")
    if output is not Format.JSON:
        print_text(
            f"signatures are {'' if settings.require_signatures else 'not '}required (TIDEMILL_REQUIRE_SIGNATURES)"
        )


def _make_publisher(store: Store) -> "Publisher":
    from tidemill.packages.format.signature import TrustPolicy
    from tidemill.packages.publishing import Publisher

    settings = Settings.read()
    trust = TrustPolicy(store.trusted_keys, _configured_keys(settings), settings.require_signatures)
    return Publisher(store.packages, trust, SystemClock())


def _configured_keys(settings: Settings) -> "Sequence[PublicKey]":
    from tidemill.packages.format.signature import load_public_keys

    return load_public_keys(Path(settings.trusted_keys)) if settings.trusted_keys else []


def _find_key(id: str, known: Sequence[TrustedKey], tenant: str) -> TrustedKey:
    found = [one for one in known if one.id.startswith(id)] if id else []
    if len(found) == 1:
        return found[0]
    if found:
        message = f"{format_count(len(found), 'key')} begin with '{id}': {', '.join(one.id for one in found)}"
    else:
        message = f"tenant '{tenant}' trusts no key '{id}'{did_you_mean(id, [one.id for one in known])}"
    raise RequestError(message, code="not_trusted", status=404)


def _key_name(key: TrustedKey) -> str:
    return key.text.split()[-1]
