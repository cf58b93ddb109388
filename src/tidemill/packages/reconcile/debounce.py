"""Debounces the scans of a folder: a change is reported only when the files have settled.

A file is not saved in one step: it is emptied and then written, or moved away and replaced. A scan in between finds no
package, or one without half of its definitions, and loading that would cost running reactors their state. So a package
is reported as it was until it has not changed for a moment, and for longer if a part of it seems to be missing.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidemill.packages.reconcile.scanner import FolderScan, FolderScanner, FoundPackage

_EMPTY_FILE_DIGEST = hashlib.sha256(b"").hexdigest()


class DebounceTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long a package must stay unchanged before it is reported, in seconds of real time."""

    quiet: float = 0.01
    """For a new package, or one with new content."""

    removal: float = 0.2
    """For a package that is gone, or that has lost a file or the content of a file."""

    max_delay: float = 0.25
    """A package that never settles is reported after this time, unless it has lost content at that moment."""


class _PendingChange(NamedTuple):
    """A change that was not reported yet."""

    digest: str | None
    write_mark: object
    since: float
    first_seen: float


class Debouncer:
    """Debounces scans: a package is reported only after it has stopped changing.

    The scanner's write marks show that a file was written even if its content is the same: a file that is saved again
    and again may be empty at every scan. Times are on the monotonic clock.
    """

    def __init__(self, times: DebounceTimes, scanner: FolderScanner) -> None:
        self._times = times
        self._scanner = scanner
        self._reported: dict[Path, FoundPackage] | None = None
        self._changes: dict[Path, _PendingChange] = {}
        self._problem: _PendingChange | None = None

    def debounce(self, scan: FolderScan, now: float) -> FolderScan:
        """Return a scan as it is to be reported; the first one is reported unchanged."""
        if self._reported is None:
            if scan.problem is None:
                self._reported = _by_path(scan)
            return scan
        if scan.problem is not None:
            self._problem = _track_change(self._problem, scan.problem, None, now)
            if now - self._problem.since >= self._times.quiet:
                return scan
            return replace(scan, problem=None, packages=tuple(self._reported.values()), is_changing=True)
        self._problem = None
        self._reported = self._select_settled(self._reported, _by_path(scan), now)
        return replace(scan, packages=tuple(self._reported.values()), is_changing=bool(self._changes))

    def _select_settled(
        self, before: Mapping[Path, FoundPackage], found: Mapping[Path, FoundPackage], now: float
    ) -> dict[Path, FoundPackage]:
        self._changes = {
            path: _track_change(
                self._changes.get(path), _digest_of(found.get(path)), self._scanner.write_mark(path), now
            )
            for path in before.keys() | found.keys()
            if _digest_of(before.get(path)) != _digest_of(found.get(path))
        }
        settled = {path: one for path, one in found.items() if self._is_settled(path, before.get(path), one, now)}
        arrived = {one.name for path, one in settled.items() if path not in before}
        arriving = {one.name for path, one in found.items() if path not in settled}
        for path, one in before.items():
            has_moved = one.name is not None and one.name in arrived
            is_moving = one.name is not None and one.name in arriving
            if path in settled or has_moved:
                continue
            if path in found or is_moving or now - self._changes[path].since < self._times.removal:
                settled[path] = one
        self._changes = {
            path: one for path, one in self._changes.items() if one.digest != _digest_of(settled.get(path))
        }
        return dict(sorted(settled.items()))

    def _is_settled(self, path: Path, before: FoundPackage | None, after: FoundPackage, now: float) -> bool:
        change = self._changes.get(path)
        if change is None:
            return True
        if before is not None and _has_lost_content(before, after):
            return now - change.since >= self._times.removal
        return now - change.since >= self._times.quiet or now - change.first_seen >= self._times.max_delay


def _by_path(scan: FolderScan) -> dict[Path, FoundPackage]:
    return {one.path: one for one in scan.packages}


def _track_change(change: _PendingChange | None, digest: str | None, mark: object, now: float) -> _PendingChange:
    if change is None:
        return _PendingChange(digest, mark, now, now)
    is_same = (change.digest, change.write_mark) == (digest, mark)
    return change if is_same else _PendingChange(digest, mark, now, change.first_seen)


def _has_lost_content(before: FoundPackage, after: FoundPackage) -> bool:
    """Return whether a file that had content is empty now, or missing while the manifest can be read."""
    gone = _EMPTY_FILE_DIGEST if after.name is not None else None
    return any(
        digest != _EMPTY_FILE_DIGEST and after.files.get(name, gone) == _EMPTY_FILE_DIGEST
        for name, digest in before.files.items()
    )


def _digest_of(found: FoundPackage | None) -> str | None:
    return None if found is None else found.digest
