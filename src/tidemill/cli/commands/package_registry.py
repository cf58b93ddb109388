"""`tidemill package` for registries: uploads to a server or a store, and trusted keys of a store.

`api/packages.py` declares the commands that list packages and withdraw them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.commands.package import (
    NoImportOption,
    PathArgument,
    app,
    check_signed_files,
    exit_on_bad_package,
    probe_package,
)
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_FAILED
from tidemill.cli.formatting import format_count, format_time, time_column_title
from tidemill.cli.opening import open_store_services
from tidemill.cli.output import Format, Output, print_text, show_rows
from tidemill.cli.stores import StoreOption, StoreTenantOption, TenantOption, open_store
from tidemill.cli.targets import ServerTarget, find_target
from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean

if TYPE_CHECKING:
    from tidemill.api.packages import PackageInfo
    from tidemill.packages.format.archive import PackageContents
    from tidemill.packages.format.public_key import PublicKey
    from tidemill.storage.tables.packages import TrustedKey

registry = typer.Typer()
app.add_typer(registry)

ALL_TENANTS_LABEL = "every tenant"


@registry.command()
def upload(
    path: PathArgument,
    store: StoreOption = None,
    tenant: TenantOption = None,
    allow_downgrade: Annotated[
        bool, typer.Option("--allow-downgrade", help="Accept a version lower than the last published one.")
    ] = False,
    no_import: NoImportOption = False,
) -> None:
    """Publish a package folder or archive: servers, and nodes with the setting load_published, load or hot-swap it.

    It is checked first, as by `tidemill package check`; use --no-import on machines without its dependencies.

    Example: tidemill package upload market-0.1.0.tidemill --store sqlite:///tidemill.db
    """

    from tidemill.packages.format.archive import read_folder_or_archive

    async def work() -> "PackageInfo":
        contents = read_folder_or_archive(path)
        if contents.signature is not None:
            check_signed_files(contents)
        contents.manifest.check_requirements()
        async with _open_upload(store, tenant, path, allow_downgrade=allow_downgrade) as publish:
            if not no_import:
                await probe_package(contents, path)
            return await publish(contents)

    with exit_on_bad_package():
        package = run_async(work())
    outcome = f"{package.state}: {package.reason}" if package.reason else package.state
    if package.waiting_for:
        outcome = f"waiting for {', '.join(package.waiting_for)}"
    if package.state == "published":  # a store loads nothing
        outcome = format_count(package.size or 0, "byte")
    print_text(f"{package.name} {package.published} is published, {outcome}")
    if package.state == "failed":
        raise typer.Exit(EXIT_FAILED)


@asynccontextmanager
async def _open_upload(
    store: str | None, tenant: str | None, path: Path, *, allow_downgrade: bool
) -> "AsyncIterator[Callable[[PackageContents], Awaitable[PackageInfo]]]":
    """Open a server or a store, and return what publishes the package that was read from a path there."""
    from tidemill.api.packages import PackageInfo

    target = find_target(store)
    if isinstance(target, ServerTarget):
        async with target.client(tenant) as client:
            yield lambda _: client.upload(path, allow_downgrade=allow_downgrade)
        return
    async with open_store_services(target, tenant) as (services, caller):

        async def publish(contents: "PackageContents") -> PackageInfo:
            registry = services.package_registry
            published = await registry.publish(caller.tenant, contents, allow_downgrade=allow_downgrade)
            await services.access.audit.record(caller, "package.upload", published.name)
            return PackageInfo.seen(published)

        yield publish


@registry.command()
def trust(
    file: Annotated[Path, typer.Argument(metavar="KEYFILE", help="A file of public keys, one per line.")],
    store: StoreOption = None,
    tenant: StoreTenantOption = "public",
) -> None:
    """Trust public keys: packages signed with them may be loaded for the tenant.

    Example: tidemill package trust alice.pub --store sqlite:///tidemill.db
    """
    from tidemill.kernel.clock import SystemClock
    from tidemill.packages.format.public_key import load_public_keys
    from tidemill.storage.tables.packages import TrustedKey

    async def work() -> "Sequence[PublicKey]":
        public_keys = load_public_keys(file)
        async with open_store(store) as opened:
            for one in public_keys:
                at = SystemClock().now()
                await opened.trusted_keys.add(TrustedKey(tenant=tenant, id=one.id, text=str(one), at=at))
        return public_keys

    with exit_on_bad_package():
        trusted = run_async(work())
    for one in trusted:
        print_text(f"key '{one.name}' ({one.id}) is trusted for tenant '{tenant}'")


@registry.command()
def untrust(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a key, or an unambiguous beginning of it.")],
    store: StoreOption = None,
    tenant: StoreTenantOption = "public",
) -> None:
    """Stop trusting a key. Loaded packages stay; those it signed are not loaded again where signatures are required.

    Example: tidemill package untrust fca075b5ce94e4ef --store sqlite:///tidemill.db
    """

    async def work() -> "TrustedKey":
        async with open_store(store) as opened:
            key = _find_key(id, await opened.trusted_keys.for_tenant(tenant), tenant)
            await opened.trusted_keys.delete(tenant, key.id)
            return key

    with exit_on_bad_package():
        key = run_async(work())
    print_text(f"key '{_key_name(key)}' ({key.id}) is no longer trusted for tenant '{tenant}'")


@registry.command()
def keys(store: StoreOption = None, output: Output = Format.TABLE, tenant: StoreTenantOption = "public") -> None:
    """List the keys that may sign a tenant's packages: from the store, and from the file that the settings name."""
    from tidemill.packages.publishing import configured_keys

    async def read() -> "list[TrustedKey]":
        async with open_store(store, read_only=True) as opened:
            return await opened.trusted_keys.for_tenant(tenant)

    with exit_on_bad_package():
        settings = Settings.read()
        stored = run_async(read())
        configured = configured_keys(settings)
    if output is Format.JSON:
        rows: list[list[Any]] = [[one.id, _key_name(one), tenant, one.at.isoformat()] for one in stored]
        rows += [[one.id, one.name, None, None] for one in configured]
        show_rows(["id", "name", "for", "since"], rows, output)
    elif stored or configured:
        since = time_column_title("since", (one.at for one in stored))
        rows = [[one.id, _key_name(one), tenant, format_time(one.at)] for one in stored]
        rows += [[one.id, one.name, ALL_TENANTS_LABEL, ""] for one in configured]
        show_rows(["id", "name", "for", since], rows, output, droppable=[since])
    else:
        print_text("no keys are trusted; trust one with `tidemill package trust`")
    if output is not Format.JSON:
        print_text(
            f"signatures are {'' if settings.require_signatures else 'not '}required (TIDEMILL_REQUIRE_SIGNATURES)"
        )


def _find_key(id: str, known: "Sequence[TrustedKey]", tenant: str) -> "TrustedKey":
    matches = [one for one in known if one.id.startswith(id)] if id else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        message = f"{format_count(len(matches), 'key')} begin with '{id}': {', '.join(one.id for one in matches)}"
    else:
        message = f"tenant '{tenant}' trusts no key '{id}'{did_you_mean(id, [one.id for one in known])}"
    raise RequestError(message, code="not_trusted", status=404)


def _key_name(key: "TrustedKey") -> str:
    return key.text.split()[-1]
