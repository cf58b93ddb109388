"""The files of a folder in the order of their names: which are still to be read, and which come too late."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tidemill.sources.interface import Moved, SourceContext


class FolderPosition(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint: a file, and how many of its rows were delivered; None if it is complete."""

    name: str
    row: int | None
    changed_at: int = 0
    """The newest change of a file that was known, in nanoseconds; 0 if it is not known. A rename is a change, too."""


class FileOrder:
    """The files that are still to be read, in order."""

    def __init__(self, files: dict[str, int], before: FolderPosition | None, context: SourceContext) -> None:
        self._current: str | None = None
        self._row: int | None = None
        self._context = context
        self._known = set(files)
        self._changed_at = max(files.values(), default=0)
        self._has_late_files = False
        if before is not None:
            self._continue_after(before, files)
        self._remaining = self._after_current(files)
        if before is not None and before.row is not None and before.name in files:
            self._remaining = iter([before.name, *self._remaining])

    def _continue_after(self, before: FolderPosition, files: dict[str, int]) -> None:
        self._current, self._row = before.name, before.row
        if before.row is not None and before.name not in files:
            self._context.report_gap(f"the file '{before.name}' is gone: its rows after row {before.row} are missing")
        for name, changed_at in files.items():
            if name < before.name and 0 < before.changed_at < changed_at:
                self._report_late(name, "appeared or was changed")

    @property
    def first_row(self) -> int:
        """How many rows of the current file were delivered before this start."""
        return self._row or 0

    def _after_current(self, files: dict[str, int]) -> Iterator[str]:
        return iter([name for name in files if self._current is None or name > self._current])

    def _report_late(self, name: str, event: str = "appeared") -> None:
        self._has_late_files = True
        message = f"the file '{name}' {event} after '{self._current}' was read, and is not read: rename it"
        self._context.report_gap(message)

    def next_name(self) -> str | None:
        """Return the next file to read; None if there is none for now. `first_row` is how many rows to skip."""
        name = next(self._remaining, None)
        if name is not None:
            self._row = self._row if name == self._current else None
            self._current = name
        return name

    def update(self, files: dict[str, int]) -> None:
        """Add new files; those that sort before the newest one that was read come too late."""
        for name in sorted(set(files) - self._known):
            if self._current is not None and name < self._current:
                self._report_late(name)
        self._known = set(files)
        self._changed_at = max(self._changed_at, *files.values(), 0)
        self._remaining = self._after_current(files)

    def checkpoint(self, row: int | None) -> Any:
        """Return the checkpoint after a row of the current file."""
        self._row = row
        return [self._current, row, self._changed_at]

    def take_move(self) -> Moved | None:
        """Return the position after late files were reported, so that they are reported once."""
        has_late_files, self._has_late_files = self._has_late_files, False
        return Moved(self.checkpoint(self._row)) if has_late_files else None
