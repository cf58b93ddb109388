"""`tidemill package`: create, check, build, sign and verify packages. No package is imported in this process.

A check imports the package in a separate process, and all text from a package is printed without control characters.

The commands for the registry of a store are in `package_registry`.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_ERROR, EXIT_FAILED, exit_on_error, print_check
from tidemill.cli.formatting import format_count
from tidemill.cli.output import Format, Output, print_error, print_text, show_json, show_rows
from tidemill.cli.stores import StoreOption, TenantOption
from tidemill.kernel.errors import DefinitionError, OperationError, Problem, RequestError, TidemillError

if TYPE_CHECKING:
    from tidemill.api.packages import PackageCheck
    from tidemill.graphs.snapshot import KeptValue
    from tidemill.packages.format.archive import PackageContents
    from tidemill.packages.loading.metadata import PackageMetadata

app = typer.Typer(help="Create, check, build, sign, verify and publish packages.", no_args_is_help=True)

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="A package archive or folder.")]
NoImportOption = Annotated[
    bool, typer.Option("--no-import", help="Do not import the package, not even in a separate process.")
]

_NON_PACKAGE_ERROR_CODES = {  # these errors say nothing about the package
    "no_address",
    "no_file",
    "file_exists",
    "invalid_key",
    "invalid_date",
    "invalid_tenant",
    "version_taken",
    "downgrade",
    "package_not_found",
    "tenant_not_found",
    "not_trusted",
}


@contextmanager
def exit_on_bad_package(output: Format = Format.TABLE) -> Iterator[None]:
    """End a command with EXIT_FAILED if the package has problems, and with EXIT_ERROR if it could not be judged."""
    from tidemill.packages.sanitizing import sanitize, sanitize_problem

    try:
        yield
    except DefinitionError as error:
        if error.subject == "settings":  # they say nothing about the package
            print_error(sanitize(str(error)))
            raise typer.Exit(EXIT_ERROR) from error
        print_check(output, problems=[sanitize_problem(one) for one in error.problems], to_stderr=True)
        raise typer.Exit(EXIT_FAILED) from error
    except TidemillError as error:
        if not isinstance(error, RequestError) or error.code in _NON_PACKAGE_ERROR_CODES:
            print_error(sanitize(str(error)))
            raise typer.Exit(EXIT_ERROR) from error
        print_check(output, problems=[Problem(message=sanitize(str(error)))], to_stderr=True)
        raise typer.Exit(EXIT_FAILED) from error


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the package, and of its module.")],
    folder: Annotated[Path | None, typer.Option("--folder", help="The folder to write to. Default: NAME.")] = None,
) -> None:
    """Create a small working package: package.toml, a module with a graph and a workflow, and a test.

    Example: tidemill package new market
    """
    from tidemill.packages.format.template import write_skeleton

    folder = folder or Path(name)
    with exit_on_error():
        for path in write_skeleton(name, folder):
            print_text(str(path))
        print_text(f"run it, and reload it on save:  tidemill dev {shlex.quote(str(folder))}")


@app.command()
def check(
    path: PathArgument,
    no_import: NoImportOption = False,
    state: Annotated[
        bool, typer.Option("--state", help="Check as well that it reads the state that a server or a store keeps.")
    ] = False,
    store: StoreOption = None,
    tenant: TenantOption = None,
    output: Output = Format.TABLE,
) -> None:
    """Check a package folder or archive. Exit code 1 if it has problems.

    Its modules are imported in a separate process, with limits, and their definitions are checked.

    Example: tidemill package check market
    """
    from tidemill.packages.format.archive import read_folder_or_archive

    with exit_on_bad_package(output):
        contents = read_folder_or_archive(path)
        contents.manifest.check_requirements()
        if contents.signature is not None:
            check_signed_files(contents)
        tried = run_async(_check_state(contents, path, store, tenant)) if state else None
        if tried is not None and tried.unread:
            raise DefinitionError((Problem(message=one) for one in tried.unread), contents.title)
        if not no_import and tried is None:
            run_async(probe_package(contents, path))
    facts: dict[str, Any] = {} if tried is None else {"values": tried.values, "complete": tried.complete}
    print_check(
        output,
        f"{_title(contents)}: no problems found ({_size_text(contents)}){_state_text(tried)}",
        name=contents.manifest.name,
        version=str(contents.manifest.version),
        files=len(contents.files),
        bytes=contents.size,
        signed=contents.signature is not None,
        **facts,
    )


@app.command()
def build(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A package folder.")],
    file: Annotated[Path | None, typer.Option("-o", "--output", help="The archive to write.")] = None,
) -> None:
    """Build an archive from a package folder, NAME-VERSION.tidemill by default. Equal files give equal bytes.

    Example: tidemill package build market -o market.tidemill
    """
    from tidemill.packages.format import archive

    with exit_on_bad_package():
        contents = archive.read_folder(folder)
        if contents.signature is not None:
            check_signed_files(contents)
        target = file or Path(f"{contents.manifest.name}-{contents.manifest.version}{archive.ARCHIVE_SUFFIX}")
        contents = archive.build(folder, target)
    print_text(f"{target}: {_title(contents)}, {_size_text(contents)}")


@app.command()
def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the key.")],
    folder: Annotated[Path, typer.Option("--folder", help="The folder for the two files.")] = Path(),
) -> None:
    """Create a key pair: NAME.pem, the secret key to sign with, and NAME.pub, the public key to verify with.

    Example: tidemill package key alice
    """
    from tidemill.packages.format.private_key import generate_key

    with exit_on_bad_package():
        generated = generate_key(name)
        private, public = folder / f"{name}.pem", folder / f"{name}.pub"
        if public.exists():
            raise RequestError(f"{public} already exists", code="file_exists", status=409)
        generated.save(private)
        _write_file(public, f"{generated.public}\n".encode())
    print_text(f"{private} is the private key: keep it secret")
    print_text(f"{public} is the public key, with the id {generated.public.id}")


@app.command()
def sign(
    path: PathArgument,
    key: Annotated[Path, typer.Option("--key", help="A private key file.")],
    not_after: Annotated[
        str | None,
        typer.Option("--not-after", help="The last day or moment of validity; in UTC unless it has an offset."),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The only tenant that may load the package.")] = None,
) -> None:
    """Sign a package folder or archive. Replaces an existing signature.

    Example: tidemill package sign market-0.1.0.tidemill --key alice.pem --not-after 2027-12-31
    """
    from tidemill.packages.format import archive, signature
    from tidemill.packages.format.private_key import load_key
    from tidemill.packages.format.zip_format import SIGNATURE_FILE

    with exit_on_bad_package():
        contents = archive.read_folder_or_archive(path)
        private = load_key(key)
        signed = signature.sign(contents, private, not_after=_parse_expiry(not_after), tenant=tenant)
        if path.is_dir():
            _write_file(path / SIGNATURE_FILE, signed.signature or b"")
        else:
            archive.write_archive(signed, path)
    print_text(f"{path}: {_title(contents)} is signed with key '{private.public.name}' ({private.public.id})")


@app.command()
def verify(
    path: PathArgument,
    key: Annotated[list[str], typer.Option("--key", help="A file of public keys, one per line. May be repeated.")],
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="The tenant that a tenant-bound signature must name.")
    ] = None,
) -> None:
    """Verify that a package folder or archive is signed with one of the keys. Exit code 1 if it is not.

    Example: tidemill package verify market-0.1.0.tidemill --key alice.pub
    """
    from tidemill.kernel.clock import SystemClock
    from tidemill.packages.format import signature
    from tidemill.packages.format.archive import read_folder_or_archive
    from tidemill.packages.format.public_key import load_public_keys

    with exit_on_bad_package():
        trusted = [one for file in key for one in load_public_keys(Path(file))]
        verified = signature.verify(read_folder_or_archive(path), trusted, now=SystemClock().now(), tenant=tenant)
    signed = verified.statement
    scope = f", for tenant '{signed.tenant}' only" if signed.tenant else ""
    until = f", until {verified.not_after:%Y-%m-%d %H:%M:%S} UTC" if verified.not_after else ""
    key_text = f"key '{verified.key.name}' ({verified.key.id})"
    print_text(f"{path}: {signed.package} {signed.version} is signed with {key_text}{scope}{until}")


@app.command()
def show(path: PathArgument, output: Output = Format.TABLE) -> None:
    """Show the files, the manifest and the signature of a package folder or archive, without verifying it.

    Example: tidemill package show market-0.1.0.tidemill -o json
    """
    from tidemill.packages.format import signature
    from tidemill.packages.format.archive import read_folder_or_archive

    with exit_on_bad_package():
        contents = read_folder_or_archive(path)
        signed = None if contents.signature is None else signature.read_signature(contents)
        hashes = signature.file_digests(contents)
    files = [(name, len(content), hashes[name]) for name, content in contents.files.items()]
    fields = _manifest_fields(contents)
    fields["signature"] = msgspec.to_builtins(signed) if signed else None
    if output is Format.JSON:
        fields["files"] = [dict(zip(("file", "size", "sha256"), row, strict=True)) for row in files]
        show_json(fields)
        return
    fields["signature"] = f"with key {signed.key[:80]!r}, not verified" if signed else "not signed"
    for name, value in fields.items():
        if value:
            print_text(f"{name}: {', '.join(value) if isinstance(value, list | dict) else value}")
    show_rows(["file", "size", "sha256"], [[name, size, digest[:16]] for name, size, digest in files], output)


def _manifest_fields(contents: "PackageContents") -> dict[str, Any]:
    manifest = contents.manifest
    return {
        "name": manifest.name,
        "version": str(manifest.version),
        "modules": list(manifest.modules),
        "requires-python": str(manifest.requires_python or ""),
        "requires-tidemill": str(manifest.requires_tidemill or ""),
        "capabilities": list(manifest.capabilities or ()),
        "reactors": msgspec.to_builtins(manifest.reactors),
        "tasks": msgspec.to_builtins(manifest.tasks),
    }


def check_signed_files(contents: "PackageContents") -> None:
    """Reject a signature whose digests differ from the files: every verification would reject it."""
    from tidemill.packages.format import signature

    signed = signature.read_signature(contents).files
    actual = signature.file_digests(contents)
    if changed := sorted(name for name in signed.keys() | actual.keys() if signed.get(name) != actual.get(name)):
        message = f"{contents.title}: {', '.join(map(repr, changed[:5]))} changed since it was signed: sign it again"
        raise RequestError(message, code="invalid_signature", status=403, changed=changed)


async def probe_package(
    contents: "PackageContents", path: Path, kept: "tuple[KeptValue, ...]" = ()
) -> "PackageMetadata":
    """Import a copy of a package in a separate process, without other files of its folder; it reads `kept` values."""
    from tidemill.kernel.clock import SystemClock
    from tidemill.kernel.settings import Settings
    from tidemill.packages.format import archive
    from tidemill.packages.loading.probe import ProbeError, probe_limits, run_probe
    from tidemill.packages.loading.probe_environment import ProbeEnvironment, local_origin

    with TemporaryDirectory(prefix="tidemill-package-") as scratch:
        packed, staged = Path(scratch, f"packed{archive.ARCHIVE_SUFFIX}"), Path(scratch, "staged")
        archive.write_archive(contents, packed)
        archive.unpack(packed, staged)
        try:
            environment = ProbeEnvironment.isolated(local_origin(str(path)))
            limits = probe_limits(Settings.read())
            clock = SystemClock()
            return await run_probe(
                staged, contents.manifest, environment=environment, limits=limits, clock=clock, kept=kept
            )
        except ProbeError as error:
            raise _with_real_paths(error, path) from None


async def _check_state(
    contents: "PackageContents", path: Path, store: str | None, tenant: str | None
) -> "PackageCheck":
    """Return what a package reads of the state of its reactors that a server or a store keeps."""
    from tidemill.api.packages import PackageCheck
    from tidemill.cli.opening import open_store_services
    from tidemill.cli.targets import ServerTarget, find_target

    target = find_target(store)
    if isinstance(target, ServerTarget):
        async with target.client(tenant) as client:
            return await client.check_package(path)
    async with open_store_services(target, tenant, read_only=True) as (services, caller):
        probe = partial(probe_package, contents, path)
        return PackageCheck.of_check(await services.package_registry.check_state(caller.tenant, probe))


def _state_text(tried: "PackageCheck | None") -> str:
    if tried is None:
        return ""
    which = "all" if tried.complete else "the first"
    return f"; it reads {which} {format_count(tried.values, 'kept value')}"


def _with_real_paths(error: DefinitionError, path: Path) -> DefinitionError:
    """Return an error with the paths of its files; the files of an archive have none."""
    from tidemill.cli.definitions import with_real_path

    if not path.is_dir():
        return error
    return DefinitionError((with_real_path(one, path) for one in error.problems), error.subject)


def _title(contents: "PackageContents") -> str:
    return f"{contents.manifest.name} {contents.manifest.version}"


def _size_text(contents: "PackageContents") -> str:
    signed = "not signed" if contents.signature is None else "signed"
    return f"{format_count(len(contents.files), 'file')}, {format_count(contents.size, 'byte')}, {signed}"


def _parse_expiry(text: str | None) -> datetime | None:
    """Parse a moment; a date means its end."""
    from tidemill.kernel.clock import SystemClock

    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"--not-after: {text!r} is not a time such as 2027-12-31 or 2027-12-31T12:00:00+01:00"
        raise RequestError(message, code="invalid_date") from error
    if len(text) <= len("2027-12-31"):
        at = at.replace(hour=23, minute=59, second=59)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if at <= SystemClock().now():
        raise RequestError(
            f"--not-after: {text} is in the past: every verification would reject the signature", code="invalid_date"
        )
    return at


def _write_file(path: Path, content: bytes) -> None:
    from tidemill.packages.format.archive import write_file_atomically

    try:
        write_file_atomically(path, content)
    except OSError as error:
        raise OperationError(f"{path} could not be written: {error}") from error
