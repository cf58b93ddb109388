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

from tidemill.cli.exits import COULD_NOT, FAILED, judgement, refusing
from tidemill.cli.output import Format, Output, complain, say, show_json, show_rows
from tidemill.cli.words import count
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import DefinitionError, Location, OperationError, Problem, RequestError, TidemillError
from tidemill.packages import archive
from tidemill.packages.archive import SUFFIX, Contents, read_folder, read_package_at, replace_file
from tidemill.packages.entries import SIGNATURE
from tidemill.packages.skeleton import write_skeleton
from tidemill.packages.words import harmless, harmless_problem

app = typer.Typer(help="Make, check, build, sign, verify and publish packages.", no_args_is_help=True)

# `signature` and `probe` are imported where they are used: that takes longer than most commands run.

Place = Annotated[Path, typer.Argument(metavar="PATH", help="An archive, or the folder of a package.")]
NoImport = Annotated[bool, typer.Option("--no-import", help="Do not run its code, not even in a process.")]

_NOT_ABOUT_THE_PACKAGE = {
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
def judging(output: Format = Format.TABLE) -> Iterator[None]:
    """End a command with 1 if the package is bad, and with 2 if nothing can be said about it."""
    try:
        yield
    except DefinitionError as error:
        if error.subject == "settings":  # which say nothing about the package
            complain(harmless(str(error)))
            raise typer.Exit(COULD_NOT) from error
        _tell_problems([harmless_problem(one) for one in error.problems], output)
        raise typer.Exit(FAILED) from error
    except TidemillError as error:
        if not isinstance(error, RequestError) or error.code in _NOT_ABOUT_THE_PACKAGE:
            complain(harmless(str(error)))
            raise typer.Exit(COULD_NOT) from error
        _tell_problems([Problem(message=harmless(str(error)))], output)
        raise typer.Exit(FAILED) from error


def _tell_problems(problems: Sequence[Problem], output: Format) -> None:
    if output is Format.JSON:
        show_json(judgement(problems))
        return
    for one in problems:
        complain(str(one))


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the package, and of its module.")],
    folder: Annotated[Path | None, typer.Option("--folder", help="Where to put it; NAME, if not given.")] = None,
) -> None:
    """Write a small package that works: package.toml, a module with a graph and a workflow, and a test.

    Example: tidemill package new market
    """
    with refusing():
        for path in write_skeleton(name, folder or Path(name)):
            say(str(path))


@app.command()
def check(path: Place, no_import: NoImport = False, output: Output = Format.TABLE) -> None:
    """Look for what is wrong with a folder or an archive. Exit code 1 if something is.

    Its modules are imported in a process of their own, with limits, and what they declare is checked.

    Example: tidemill package check market
    """
    with judging(output):
        contents = read_package_at(path)
        contents.manifest.check_requirements()
        if contents.signature is not None:
            check_freshness(contents)
        if not no_import:
            asyncio.run(try_out(contents, path))
    if output is Format.JSON:
        about = {"files": len(contents.files), "bytes": contents.size, "signed": contents.signature is not None}
        show_json(judgement() | {"name": contents.manifest.name, "version": str(contents.manifest.version)} | about)
    else:
        say(f"{_title(contents)} is sound: {_holdings(contents)}")


@app.command()
def build(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a package.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The archive to write.")] = None,
) -> None:
    """Make an archive of a folder: NAME-VERSION.tidemill, if no other is given. The same files give the same bytes.

    Example: tidemill package build market -o market.tidemill
    """
    with judging():
        contents = read_folder(folder)
        if contents.signature is not None:
            check_freshness(contents)
        target = output or Path(f"{contents.manifest.name}-{contents.manifest.version}{SUFFIX}")
        contents = archive.build(folder, target)
    say(f"{target}: {_title(contents)}, {_holdings(contents)}")


@app.command()
def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call the key.")],
    folder: Annotated[Path, typer.Option("--folder", help="Where to put the two files.")] = Path(),
) -> None:
    """Make a key pair: NAME.pem to sign with, which stays secret, and NAME.pub for those who verify.

    Example: tidemill package key alice
    """
    from tidemill.packages import signature

    with judging():
        made = signature.generate_key(name)
        private, public = folder / f"{name}.pem", folder / f"{name}.pub"
        if public.exists():
            raise RequestError(f"{public} is there already", code="file_exists", status=409)
        made.save(private)
        _write(public, f"{made.public}\n".encode())
    say(f"{private} is the private key: keep it secret")
    say(f"{public} is the public key, with the id {made.public.id}")


@app.command()
def sign(
    path: Place,
    key: Annotated[Path, typer.Option("--key", help="The file of a private key.")],
    not_after: Annotated[
        str | None, typer.Option("--not-after", help="The day or the moment until which it holds; UTC unless it says.")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The only tenant that it is for.")] = None,
) -> None:
    """Sign a folder or an archive, in place of a signature that it may have.

    Example: tidemill package sign market-0.1.0.tidemill --key alice.pem --not-after 2027-12-31
    """
    from tidemill.packages import signature

    with judging():
        contents = read_package_at(path)
        private = signature.load_key(key)
        signed = signature.sign(contents, private, not_after=_moment(not_after), tenant=tenant)
        if path.is_dir():
            _write(path / SIGNATURE, signed.signature or b"")
        else:
            archive.write_archive(signed, path)
    say(f"{path}: {_title(contents)} is signed with key '{private.public.name}' ({private.public.id})")


@app.command()
def verify(
    path: Place,
    key: Annotated[list[str], typer.Option("--key", help="A file with public keys, one per line. May be given again.")],
    tenant: Annotated[str | None, typer.Option("--tenant", help="For whom it must be signed, if for anybody.")] = None,
) -> None:
    """Say whether a folder or an archive is what the owner of a key signed. Exit code 1 if it is not.

    Example: tidemill package verify market-0.1.0.tidemill --key alice.pub
    """
    from tidemill.packages import signature

    with judging():
        trusted = [one for file in key for one in signature.load_public_keys(Path(file))]
        found = signature.verify(read_package_at(path), trusted, now=SystemClock().now(), tenant=tenant)
    scope = f", for tenant '{found.tenant}' only" if found.tenant else ""
    until = f", until {found.not_after:%Y-%m-%d %H:%M:%S} UTC" if found.not_after else ""
    say(f"{path}: {found.package} {found.version} is what key '{found.key.name}' ({found.key.id}) signed{scope}{until}")


@app.command()
def show(path: Place, output: Output = Format.TABLE) -> None:
    """Show what a folder or an archive holds, and what its manifest and its signature say; verifies nothing.

    Example: tidemill package show market-0.1.0.tidemill -o json
    """
    from tidemill.packages import signature

    with judging():
        contents = read_package_at(path)
        signed = None if contents.signature is None else signature.read_signature(contents)
        hashes = signature.digests(contents)
    files = [(name, len(content), hashes[name]) for name, content in contents.files.items()]
    about = _about(contents)
    about["signature"] = msgspec.to_builtins(signed) if signed else None
    if output is Format.JSON:
        about["files"] = [dict(zip(("file", "size", "sha256"), row, strict=True)) for row in files]
        show_json(about)
        return
    about["signature"] = f"with key {signed.key[:80]!r}, not verified" if signed else "not signed"
    for name, value in about.items():
        if value:
            say(f"{name}: {', '.join(value) if isinstance(value, list | dict) else value}")
    show_rows(["file", "size", "sha256"], [[name, size, digest[:16]] for name, size, digest in files], output)


def _about(contents: Contents) -> dict[str, Any]:
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


def check_freshness(contents: Contents) -> None:
    """Refuse a signature that is about other files than there are: it would be refused wherever it is verified."""
    from tidemill.packages import signature

    signed = signature.read_signature(contents).files
    found = signature.digests(contents)
    if other := sorted(name for name in signed.keys() | found.keys() if signed.get(name) != found.get(name)):
        message = f"{contents.title}: {', '.join(map(repr, other[:5]))} changed since it was signed: sign it again"
        raise RequestError(message, code="invalid_signature", status=403, changed=other)


async def try_out(contents: Contents, path: Path) -> None:
    """Import what belongs to a package, and nothing that happens to lie beside it, in a process of its own."""
    from tidemill.packages.probe import ProbeError, probe
    from tidemill.packages.surroundings import Surroundings, origin_of

    with TemporaryDirectory(prefix="tidemill-package-") as scratch:
        packed, staged = Path(scratch, f"packed{SUFFIX}"), Path(scratch, "staged")
        archive.write_archive(contents, packed)
        archive.unpack(packed, staged)
        try:
            surroundings = Surroundings.bare(origin_of(str(path)))
            await probe(staged, contents.manifest, surroundings=surroundings, clock=SystemClock())
        except ProbeError as error:
            raise _seen_from_here(error, path) from None


def _seen_from_here(error: DefinitionError, path: Path) -> DefinitionError:
    """Return an error with the files where an editor finds them; those of an archive are named as they are there."""
    if not path.is_dir():
        return error
    places = [one.location and Location(str(path / one.location.file), one.location.line) for one in error.problems]
    moved = (replace(one, location=place) for one, place in zip(error.problems, places, strict=True))
    return DefinitionError(moved, error.subject)


def _title(contents: Contents) -> str:
    return f"{contents.manifest.name} {contents.manifest.version}"


def _holdings(contents: Contents) -> str:
    signed = "not signed" if contents.signature is None else "signed"
    return f"{count(len(contents.files), 'file')}, {count(contents.size, 'byte')}, {signed}"


def _moment(text: str | None) -> datetime | None:
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


def _write(path: Path, content: bytes) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        raise OperationError(f"{path} could not be written: {error}") from error
