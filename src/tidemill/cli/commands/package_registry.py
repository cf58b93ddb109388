"""`tidemill package` and the registry of a store: what nodes on it load, and whose signatures count there."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.commands.package import NoImport, Place, check_freshness, judging, try_out
from tidemill.cli.output import Format, Output, say, show_rows
from tidemill.cli.stores import Address, Tenant, reaching
from tidemill.cli.words import count, dated, moment
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.archive import read_package_at
from tidemill.storage.package_ports import Published, TrustedKey
from tidemill.storage.ports import Store

if TYPE_CHECKING:
    from tidemill.packages.publishing import Publisher
    from tidemill.packages.signature import PublicKey

app = typer.Typer()

EVERY_TENANT = "every tenant"


@app.command()
def upload(
    path: Place,
    store: Address = None,
    tenant: Tenant = "public",
    allow_downgrade: Annotated[
        bool, typer.Option("--allow-downgrade", help="Also a version below the one that was published last.")
    ] = False,
    no_import: NoImport = False,
) -> None:
    """Publish a folder or an archive: nodes on the store with the setting load_published load it, or swap it.

    It is tried first as by `tidemill package check`; --no-import is for machines that lack the libraries it needs.

    Example: tidemill package upload market-0.1.0.tidemill --store sqlite:///tidemill.db
    """

    async def work() -> Published:
        contents = read_package_at(path)
        if contents.signature is not None:
            check_freshness(contents)
        contents.manifest.check_requirements()
        async with reaching(store) as reached:
            if not no_import:
                await try_out(contents, path)
            return await _publisher(reached).publish(contents, tenant, allow_downgrade=allow_downgrade)

    with judging():
        package = asyncio.run(work())
    say(f"{package.name} {package.version} is published for tenant '{tenant}', {count(package.size, 'byte')}")


@app.command("list")
def list_packages(store: Address = None, output: Output = Format.TABLE, tenant: Tenant = "public") -> None:
    """List the packages that are published in a store."""

    async def read() -> list[Published]:
        async with reaching(store, is_looking=True) as reached:
            return [one for one in await reached.packages.published() if one.tenant == tenant]

    with judging():
        found = asyncio.run(read())
    if output is Format.JSON:
        columns = ["package", "version", "size", "published", "digest"]
        rows = [[one.name, one.version, one.size, one.at.isoformat(), one.digest] for one in found]
        show_rows(columns, rows, output)
    elif found:
        cells = [[one.name, one.version, f"{one.size:,}", moment(one.at), one.digest[:16]] for one in found]
        published = dated("published", (one.at for one in found))
        show_rows(["package", "version", "bytes", published, "digest"], cells, output, spare=["digest", "bytes"])
    else:
        say("no packages; publish one with `tidemill package upload`")


@app.command()
def unload(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a package.", show_default=False)],
    store: Address = None,
    tenant: Tenant = "public",
) -> None:
    """Take a package out of a store's registry: nodes unload it, as soon as no other package needs it."""

    async def work() -> None:
        async with reaching(store) as reached:
            await _publisher(reached).withdraw(tenant, name)

    with judging():
        asyncio.run(work())
    say(f"package '{name}' is no longer published for tenant '{tenant}'")


@app.command()
def trust(
    file: Annotated[Path, typer.Argument(metavar="KEYFILE", help="A file with public keys, one per line.")],
    store: Address = None,
    tenant: Tenant = "public",
) -> None:
    """Let the owners of public keys sign packages for a tenant.

    Example: tidemill package trust alice.pub --store sqlite:///tidemill.db
    """

    from tidemill.packages.signature import load_public_keys

    async def work() -> "Sequence[PublicKey]":
        found = load_public_keys(file)
        async with reaching(store) as reached:
            for one in found:
                at = SystemClock().now()
                await reached.trusted_keys.put(TrustedKey(tenant=tenant, id=one.id, text=str(one), at=at))
        return found

    with judging():
        trusted = asyncio.run(work())
    for one in trusted:
        say(f"key '{one.name}' ({one.id}) is trusted for tenant '{tenant}'")


@app.command()
def untrust(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a key, or so much of its beginning as is enough.")],
    store: Address = None,
    tenant: Tenant = "public",
) -> None:
    """Trust a key no more. What is loaded stays; what it signed is not loaded again where signatures are required.

    Example: tidemill package untrust fca075b5ce94e4ef --store sqlite:///tidemill.db
    """

    async def work() -> TrustedKey:
        async with reaching(store) as reached:
            key = _key_with(id, await reached.trusted_keys.of(tenant), tenant)
            await reached.trusted_keys.remove(tenant, key.id)
            return key

    with judging():
        key = asyncio.run(work())
    say(f"key '{_name(key)}' ({key.id}) is no longer trusted for tenant '{tenant}'")


@app.command()
def keys(store: Address = None, output: Output = Format.TABLE, tenant: Tenant = "public") -> None:
    """List the keys that may sign a tenant's packages: those of the store, and of the file that the settings name."""

    async def read() -> list[TrustedKey]:
        async with reaching(store, is_looking=True) as reached:
            return await reached.trusted_keys.of(tenant)

    with judging():
        settings = Settings.read()
        found = asyncio.run(read())
        listed = _keys_of(settings)
    if output is Format.JSON:
        rows: list[list[Any]] = [[one.id, _name(one), tenant, one.at.isoformat()] for one in found]
        rows += [[one.id, one.name, None, None] for one in listed]
        show_rows(["id", "name", "for", "since"], rows, output)
    elif found or listed:
        since = dated("since", (one.at for one in found))
        rows = [[one.id, _name(one), tenant, moment(one.at)] for one in found]
        rows += [[one.id, one.name, EVERY_TENANT, ""] for one in listed]
        show_rows(["id", "name", "for", since], rows, output, spare=[since])
    else:
        say("no keys are trusted; trust one with `tidemill package trust`")
    if output is not Format.JSON:
        say(f"signatures are {'' if settings.require_signatures else 'not '}required (TIDEMILL_REQUIRE_SIGNATURES)")


def _publisher(store: Store) -> "Publisher":
    from tidemill.packages.publishing import Publisher
    from tidemill.packages.trust import Trust

    settings = Settings.read()
    trust = Trust(store.trusted_keys, _keys_of(settings), settings.require_signatures)
    return Publisher(store.packages, trust, SystemClock())


def _keys_of(settings: Settings) -> "Sequence[PublicKey]":
    from tidemill.packages.signature import load_public_keys

    return load_public_keys(Path(settings.trusted_keys)) if settings.trusted_keys else []


def _key_with(id: str, known: Sequence[TrustedKey], tenant: str) -> TrustedKey:
    found = [one for one in known if one.id.startswith(id)] if id else []
    if len(found) == 1:
        return found[0]
    if found:
        message = f"{count(len(found), 'key')} begin with '{id}': {', '.join(one.id for one in found)}"
    else:
        message = f"tenant '{tenant}' trusts no key '{id}'{did_you_mean(id, [one.id for one in known])}"
    raise RequestError(message, code="not_trusted", status=404)


def _name(key: TrustedKey) -> str:
    return key.text.split()[-1]
