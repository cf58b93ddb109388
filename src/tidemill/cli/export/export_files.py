"""Reads the files of an export target, and writes them into a folder of the user.

The files are complete but for words such as `@VERSION@`: their tools can check them as they are in the repository.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tidemill.kernel.errors import OperationError, RequestError

FILES = Path(__file__).parent / "files"

Change = Literal["created", "replaced", "unchanged"]


class ExportFile(NamedTuple):
    """A file of a target."""

    path: Path
    """Relative to the folder that it is written to."""
    text: str

    def change_in(self, folder: Path) -> Change:
        """Return what writing it into a folder does."""
        existing = folder / self.path
        if not existing.exists():
            return "created"
        return "unchanged" if existing.read_bytes() == self.text.encode() else "replaced"


class WrittenFile(NamedTuple):
    """A file that the user has now, and how it came about."""

    path: Path
    change: Change


def read_files(target: str, words: Mapping[str, str]) -> list[ExportFile]:
    """Return the files of a target, with `@NAME@` replaced by the word of that name."""
    root = FILES / target
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return [ExportFile(path.relative_to(root), _fill(path.read_text(encoding="utf-8"), words)) for path in paths]


def _fill(text: str, words: Mapping[str, str]) -> str:
    for name, word in words.items():
        text = text.replace(f"@{name}@", word)
    return text


def write_files(files: Sequence[ExportFile], folder: Path, *, force: bool) -> list[WrittenFile]:
    """Write files into a folder; RequestError before the first if some exist, differ, and are not to be replaced."""
    try:
        changes = [WrittenFile(folder / one.path, one.change_in(folder)) for one in files]
        differing = [str(one.path) for one in changes if one.change == "replaced"]
        if differing and not force:
            message = (
                f"{', '.join(differing)} would be overwritten, so nothing was written: "
                "add --force to replace what differs, or choose another folder with --to"
            )
            raise RequestError(message, code="file_exists", status=409)
        for one in files:
            (folder / one.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / one.path).write_bytes(one.text.encode())
    except OSError as error:
        raise OperationError(
            f"cannot write to {error.filename}: {error.strerror}; choose a folder with --to"
        ) from error
    return changes
