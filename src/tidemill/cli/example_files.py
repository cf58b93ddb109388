"""The examples that `tidemill demo` copies: where they are, and how they get into a folder."""

from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidemill.cli.stores import STORE_FOLDER
from tidemill.kernel import version
from tidemill.kernel.errors import OperationError, RequestError

DIGESTS_FILE = f"{STORE_FOLDER}/examples.json"
"""The file, in the folder of the examples, with the digest of each example as it was written."""


class CopiedExamples(NamedTuple):
    """What became of the examples, by the names of their files."""

    written: list[str]
    kept: list[str]
    """Those that the user has changed."""


def find_examples() -> list[Path]:
    """Return the files of the examples: a wheel has them inside the package, a clone at its root."""
    package = Path(version.__file__).parents[1]
    for folder in (package / "examples", package.parent.parent / "examples"):
        if files := sorted(folder.glob("*.py")):
            return files
    raise OperationError(
        f"{package} was installed without the examples: install Tidemill again, `pip install tidemill`"
    )


def copy_examples(folder: Path, *, keep: bool) -> CopiedExamples:
    """Write the examples to a folder, which is created; those of an older version are replaced.

    A file that the user has changed is a RequestError, and nothing is written, unless it is to be kept.
    """
    examples = {one.name: one.read_bytes() for one in find_examples()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = {name: (folder / name).read_bytes() for name in examples if (folder / name).exists()}
        known = _read_digests(folder)
        outdated = [name for name, content in found.items() if content != examples[name]]
        changed = [name for name in outdated if known.get(name) != _digest(found[name])]
        if changed and not keep:
            raise _changed_error(folder, changed)
        written = [name for name in examples if name not in changed and found.get(name) != examples[name]]
        for name in written:
            (folder / name).write_bytes(examples[name])
        _write_digests(folder, known | {name: _digest(examples[name]) for name in examples if name not in changed})
    except OSError as error:
        message = f"the examples cannot be written to {folder} ({error.strerror}): name another folder"
        raise OperationError(f"{message}, as in `tidemill demo DIR`") from error
    return CopiedExamples(written=written, kept=changed)


def _read_digests(folder: Path) -> dict[str, str]:
    """Return the digests of the examples as they were written, by name; none if that is not known."""
    try:
        return msgspec.json.decode((folder / DIGESTS_FILE).read_bytes(), type=dict[str, str])
    except (FileNotFoundError, msgspec.DecodeError):  # without them, every other content is taken for a change
        return {}


def _write_digests(folder: Path, digests: dict[str, str]) -> None:
    (folder / DIGESTS_FILE).parent.mkdir(exist_ok=True)
    (folder / DIGESTS_FILE).write_bytes(msgspec.json.encode(digests, order="sorted"))


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _changed_error(folder: Path, changed: list[str]) -> RequestError:
    names = ", ".join(str(folder / name) for name in changed)
    verb = "differs from its example" if len(changed) == 1 else "differ from their examples"
    remedy = f"keep what is there with `tidemill demo {folder} --keep`, or name another folder"
    return RequestError(f"{names} {verb}: {remedy}", code="file_exists", status=409)
