"""The examples that `tidemill demo` copies: where they are, and how they get into a folder."""

from pathlib import Path
from typing import NamedTuple

import tidemill
from tidemill.kernel.errors import OperationError, RequestError


class CopiedExamples(NamedTuple):
    """What became of the examples, by the names of their files."""

    written: list[str]
    kept: list[str]
    """Those that the user has changed."""


def find_examples() -> list[Path]:
    """Return the files of the examples: a wheel has them inside the package, a clone at its root."""
    package = Path(tidemill.__file__).parent
    for folder in (package / "examples", package.parent.parent / "examples"):
        if files := sorted(folder.glob("*.py")):
            return files
    raise OperationError(
        f"{package} was installed without the examples: install Tidemill again, `pip install tidemill`"
    )


def copy_examples(folder: Path, *, keep: bool) -> CopiedExamples:
    """Write the examples to a folder, which is created; RequestError if a file there differs, unless it is to be kept.

    Nothing is written if one of them differs.
    """
    examples = {one.name: one.read_bytes() for one in find_examples()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = {name: (folder / name).read_bytes() for name in examples if (folder / name).exists()}
        changed = [name for name, content in found.items() if content != examples[name]]
        if changed and not keep:
            raise _changed_error(folder, changed)
        missing = [name for name in examples if name not in found]
        for name in missing:
            (folder / name).write_bytes(examples[name])
    except OSError as error:
        message = f"the examples cannot be written to {folder} ({error.strerror}): name another folder"
        raise OperationError(f"{message}, as in `tidemill demo DIR`") from error
    return CopiedExamples(written=missing, kept=changed)


def _changed_error(folder: Path, changed: list[str]) -> RequestError:
    names = ", ".join(str(folder / name) for name in changed)
    verb = "differs from its example" if len(changed) == 1 else "differ from their examples"
    remedy = f"keep what is there with `tidemill demo {folder} --keep`, or name another folder"
    return RequestError(f"{names} {verb}: {remedy}", code="file_exists", status=409)
