"""`tidemill package`: make, check, build, sign and verify packages. Nothing of one is imported in this process.

What is checked is imported in a process of its own, and whatever a package says is shown without control characters.

What is done with the registry of a store stands in `package_registry`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from tidemill.cli.exit_codes import EXIT_ERROR, EXIT_FAILED, check_report, exit_on_error
from tidemill.cli.formatting import format_count
from tidemill.cli.output import Format, Output, print_error, print_text, show_json, show_rows
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import DefinitionError, Location, OperationError, Problem, RequestError, TidemillError
from tidemill.packages.format import archive
from tidemill.packages.format.archive import (
    ARCHIVE_SUFFIX,
    PackageContents,
    read_folder,
    read_folder_or_archive,
    write_file_atomically,
)
from tidemill.packages.format.template import write_skeleton
from tidemill.packages.format.zip_format import SIGNATURE_FILE
from tidemill.packages.sanitizing import sanitize, sanitize_problem

app = typer.Typer(help="Make, check, build, sign, verify and publish packages.", no_args_is_help=True)

# `signature` and `probe` are imported where they are used: that takes longer than most commands run.

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="An archive, or the folder of a package.")]
NoImportOption = Annotated[bool, typer.Option("--no-import", help="Do not run its code, not even in a process.")]

_NON_PACKAGE_ERROR_CODES = {
    "no_address",
    "no_file",
    "file_exists",
    "invalid_key",
    "invalid_date",
    "invalid_tenant",
    "version_taken",
    "downgrade",
    "unknown_package",
    "not_trusted",
}


@contextmanager
def exit_on_bad_package(output: Format = Format.TABLE) -> Iterator[None]:
    """End a command with 1 if the package is bad, and with 2 if nothing can be said about it."""
    try:
        yield
    except DefinitionError as error:
        if error.subject == "settings":  # which say nothing about the package
            print_error(sanitize(str(error)))
            raise typer.Exit(EXIT_ERROR) from error
        _print_problems([sanitize_problem(one) for one in error.problems], output)
        raise typer.Exit(EXIT_FAILED) from error
    except TidemillError as error:
        if not isinstance(error, RequestError) or error.code in _NON_PACKAGE_ERROR_CODES:
            print_error(sanitize(str(error)))
            raise typer.Exit(EXIT_ERROR) from error
        _print_problems([Problem(message=sanitize(str(error)))], output)
        raise typer.Exit(EXIT_FAILED) from error


def _print_problems(problems: Sequence[Problem], output: Format) -> None:
    if output is Format.JSON:
        show_json(check_report(problems))
        return
    for one in problems:
        print_error(str(one))


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the package, and of its module.")],
    folder: Annotated[Path | None, typer.Option("--folder", help="Where to put it; NAME, if not given.")] = None,
) -> None:
    """Write a small package that works: package.toml, a module with a graph and a workflow, and a test.

    Example: tidemill package new market
    """
    with exit_on_error():
        for path in write_skeleton(name, folder or Path(name)):
            print_text(str(path))


@app.command()
def check(path: PathArgument, no_import: NoImportOption = False, output: Output = Format.TABLE) -> None:
    """Look for what is wrong with a folder or an archive. Exit code 1 if something is.

    Its modules are imported in a process of their own, with limits, and what they declare is checked.

    Example: tidemill package check market
    """
    with exit_on_bad_package(output):
        contents = read_folder_or_archive(path)
        contents.manifest.check_requirements()
        if contents.signature is not None:
            check_signed_files(contents)
        if not no_import:
            asyncio.run(probe_package(contents, path))
    if output is Format.JSON:
        about = {"files": len(contents.files), "bytes": contents.size, "signed": contents.signature is not None}
        show_json(check_report() | {"name": contents.manifest.name, "version": str(contents.manifest.version)} | about)
    else:
        print_text(f"{_title(contents)} is sound: {_size_text(contents)}")


@app.command()
def build(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a package.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The archive to write.")] = None,
) -> None:
    """Make an archive of a folder: NAME-VERSION.tidemill, if no other is given. The same files give the same bytes.

    Example: tidemill package build market -o market.tidemill
    """
    with exit_on_bad_package():
        contents = read_folder(folder)
        if contents.signature is not None:
            check_signed_files(contents)
        target = output or Path(f"{contents.manifest.name}-{contents.manifest.version}{ARCHIVE_SUFFIX}")
        contents = archive.build(folder, target)
    print_text(f"{target}: {_title(contents)}, {_size_text(contents)}")


@app.command()
def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call the key.")],
    folder: Annotated[Path, typer.Option("--folder", help="Where to put the two files.")] = Path(),
) -> None:
    """Make a key pair: NAME.pem to sign with, which stays secret, and NAME.pub for those who verify.

    Example: tidemill package key alice
    """
    from tidemill.packages.format import signature

    with exit_on_bad_package():
        made = signature.generate_key(name)
        private, public = folder / f"{name}.pem", folder / f"{name}.pub"
        if public.exists():
            raise RequestError(f"{public} is there already", code="file_exists", status=409)
        made.save(private)
        _write_file(public, f"{made.public}\n".encode())
    print_text(f"{private} is the private key: keep it secret")
    print_text(f"{public} is the public key, with the id {made.public.id}")


@app.command()
def sign(
    path: PathArgument,
    key: Annotated[Path, typer.Option("--key", help="The file of a private key.")],
    not_after: Annotated[
        str | None, typer.Option("--not-after", help="The day or the moment until which it holds; UTC unless it says.")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The only tenant that it is for.")] = None,
) -> None:
    """Sign a folder or an archive, in place of a signature that it may have.

    Example: tidemill package sign market-0.1.0.tidemill --key alice.pem --not-after 2027-12-31
    """
    from tidemill.packages.format import signature

    with exit_on_bad_package():
        contents = read_folder_or_archive(path)
        private = signature.load_key(key)
        signed = signature.sign(contents, private, not_after=_parse_expiry(not_after), tenant=tenant)
        if path.is_dir():
            _write_file(path / SIGNATURE_FILE, signed.signature or b"")
        else:
            archive.write_archive(signed, path)
    print_text(f"{path}: {_title(contents)} is signed with key '{private.public.name}' ({private.public.id})")


@app.command()
def verify(
    path: PathArgument,
    key: Annotated[list[str], typer.Option("--key", help="A file with public keys, one per line. May be given again.")],
    tenant: Annotated[str | None, typer.Option("--tenant", help="For whom it must be signed, if for anybody.")] = None,
) -> None:
    """Say whether a folder or an archive is what the owner of a key signed. Exit code 1 if it is not.

    Example: tidemill package verify market-0.1.0.tidemill --key alice.pub
    """
    from tidemill.packages.format import signature

    with exit_on_bad_package():
        trusted = [one for file in key for one in signature.load_public_keys(Path(file))]
        found = signature.verify(read_folder_or_archive(path), trusted, now=SystemClock().now(), tenant=tenant)
    scope = f", for tenant '{found.tenant}' only" if found.tenant else ""
    until = f", until {found.not_after:%Y-%m-%d %H:%M:%S} UTC" if found.not_after else ""
    print_text(
        f"{path}: {found.package} {found.version} is what key '{found.key.name}' ({found.key.id}) signed{scope}{until}"
    )


@app.command()
def show(path: PathArgument, output: Output = Format.TABLE) -> None:
    """Show what a folder or an archive holds, and what its manifest and its signature say; verifies nothing.

    Example: tidemill package show market-0.1.0.tidemill -o json
    """
    from tidemill.packages.format import signature

    with exit_on_bad_package():
        contents = read_folder_or_archive(path)
        signed = None if contents.signature is None else signature.read_signature(contents)
        hashes = signature.file_digests(contents)
    files = [(name, len(content), hashes[name]) for name, content in contents.files.items()]
    about = _manifest_fields(contents)
    about["signature"] = msgspec.to_builtins(signed) if signed else None
    if output is Format.JSON:
        about["files"] = [dict(zip(("file", "size", "sha256"), row, strict=True)) for row in files]
        show_json(about)
        return
    about["signature"] = f"with key {signed.key[:80]!r}, not verified" if signed else "not signed"
    for name, value in about.items():
        if value:
            print_text(f"{name}: {', '.join(value) if isinstance(value, list | dict) else value}")
    show_rows(["file", "size", "sha256"], [[name, size, digest[:16]] for name, size, digest in files], output)


def _manifest_fields(contents: PackageContents) -> dict[str, Any]:
    manifest = contents.manifest
    return {
        "name": manifest.name,
        "version": str(manifest.version),
        "modules": list(manifest.modules),
        "requires-python": str(manifest.requires_python or ""),
        "requires-tidemill": str(manifest.requires_tidemill or ""),
        "capabilities": list(manifest.capabilities),
        "reactors": msgspec.to_builtins(manifest.reactors),
        "tasks": msgspec.to_builtins(manifest.tasks),
    }


def check_signed_files(contents: PackageContents) -> None:
    """Refuse a signature that is about other files than there are: it would be refused wherever it is verified."""
    from tidemill.packages.format import signature

    signed = signature.read_signature(contents).files
    found = signature.file_digests(contents)
    if other := sorted(name for name in signed.keys() | found.keys() if signed.get(name) != found.get(name)):
        message = f"{contents.title}: {', '.join(map(repr, other[:5]))} changed since it was signed: sign it again"
        raise RequestError(message, code="invalid_signature", status=403, changed=other)


async def probe_package(contents: PackageContents, path: Path) -> None:
    """Import what belongs to a package, and nothing that happens to lie beside it, in a process of its own."""
    from tidemill.packages.loading.probe import ProbeError, run_probe
    from tidemill.packages.loading.probe_environment import ProbeEnvironment, local_origin

    with TemporaryDirectory(prefix="tidemill-package-") as scratch:
        packed, staged = Path(scratch, f"packed{ARCHIVE_SUFFIX}"), Path(scratch, "staged")
        archive.write_archive(contents, packed)
        archive.unpack(packed, staged)
        try:
            surroundings = ProbeEnvironment.isolated(local_origin(str(path)))
            await run_probe(staged, contents.manifest, environment=surroundings, clock=SystemClock())
        except ProbeError as error:
            raise _with_real_paths(error, path) from None


def _with_real_paths(error: DefinitionError, path: Path) -> DefinitionError:
    """Return an error with the files where an editor finds them; those of an archive are named as they are there."""
    if not path.is_dir():
        return error
    places = [one.location and Location(str(path / one.location.file), one.location.line) for one in error.problems]
    moved = (replace(one, location=place) for one, place in zip(error.problems, places, strict=True))
    return DefinitionError(moved, error.subject)


def _title(contents: PackageContents) -> str:
    return f"{contents.manifest.name} {contents.manifest.version}"


def _size_text(contents: PackageContents) -> str:
    signed = "not signed" if contents.signature is None else "signed"
    return f"{format_count(len(contents.files), 'file')}, {format_count(contents.size, 'byte')}, {signed}"


def _parse_expiry(text: str | None) -> datetime | None:
    """Return a moment as it was written; of a day alone, its end."""
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
        raise RequestError(f"--not-after: {text} is over, so nobody would accept the signature", code="invalid_date")
    return at


def _write_file(path: Path, content: bytes) -> None:
    try:
        write_file_atomically(path, content)
    except OSError as error:
        raise OperationError(f"{path} could not be written: {error}") from error
