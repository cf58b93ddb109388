"""Which changes of a folder are told: those that have come to rest.

A file is not saved in one moment: it is emptied and then written, or it is moved away and another takes its place. Who
looks in between finds no package there, or one that lacks half of what it declares; and to load that would cost what
runs its state. So a package stays what it was until it has not changed for a moment, and for longer if something of it
seems to be gone.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidemill.packages.sources.scanning import Look, Sighting

_EMPTY = hashlib.sha256(b"").hexdigest()


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long something has to stay as it is before it is told, in seconds of real time: that of file systems."""

    quiet: float = 0.01
    """What is new, or has other content."""

    leaving: float = 0.2
    """What is gone, or has a file that is empty now, or lacks one."""

    longest: float = 0.25
    """What never comes to rest is told all the same after this time, unless something of it is gone just then."""


class _Change(NamedTuple):
    """Something that is not what was told of it."""

    now_is: str | None
    mark: object
    since: float
    first: float


class Settling:
    """Turns what is seen of a folder into what is told of it. `now` is by a clock that never steps back.

    `mark` returns something of a path that changes whenever a file there is written: a file that is saved again and
    again may be empty whenever somebody looks.
    """

    def __init__(self, patience: Patience, mark: Callable[[Path], object]) -> None:
        self._patience = patience
        self._mark = mark
        self._told: dict[Path, Sighting] | None = None
        self._changes: dict[Path, _Change] = {}
        self._problem: _Change | None = None

    def tell(self, look: Look, now: float) -> Look:
        """Return a look as it is to be told; the first is told as it is."""
        if self._told is None:
            if look.problem is None:
                self._told = _by_path(look)
            return look
        if look.problem is not None:
            self._problem = _followed(self._problem, look.problem, None, now)
            if now - self._problem.since >= self._patience.quiet:
                return look
            return replace(look, problem=None, sightings=tuple(self._told.values()), is_changing=True)
        self._problem = None
        self._told = self._settled(self._told, _by_path(look), now)
        return replace(look, sightings=tuple(self._told.values()), is_changing=bool(self._changes))

    def _settled(
        self, before: Mapping[Path, Sighting], found: Mapping[Path, Sighting], now: float
    ) -> dict[Path, Sighting]:
        self._changes = {
            path: _followed(self._changes.get(path), _digest(found.get(path)), self._mark(path), now)
            for path in before.keys() | found.keys()
            if _digest(before.get(path)) != _digest(found.get(path))
        }
        told = {path: one for path, one in found.items() if self._may_tell(path, before.get(path), one, now)}
        arrived = {one.name for path, one in told.items() if path not in before}
        arriving = {one.name for path, one in found.items() if path not in told}
        for path, one in before.items():
            has_moved = one.name is not None and one.name in arrived
            is_moving = one.name is not None and one.name in arriving
            if path in told or has_moved:
                continue
            if path in found or is_moving or now - self._changes[path].since < self._patience.leaving:
                told[path] = one
        self._changes = {path: one for path, one in self._changes.items() if one.now_is != _digest(told.get(path))}
        return dict(sorted(told.items()))

    def _may_tell(self, path: Path, before: Sighting | None, after: Sighting, now: float) -> bool:
        change = self._changes.get(path)
        if change is None:
            return True
        if before is not None and _lacks_something(before, after):
            return now - change.since >= self._patience.leaving
        return now - change.since >= self._patience.quiet or now - change.first >= self._patience.longest


def _by_path(look: Look) -> dict[Path, Sighting]:
    return {one.path: one for one in look.sightings}


def _followed(change: _Change | None, now_is: str | None, mark: object, now: float) -> _Change:
    if change is None:
        return _Change(now_is, mark, now, now)
    return change if (change.now_is, change.mark) == (now_is, mark) else _Change(now_is, mark, now, change.first)


def _lacks_something(before: Sighting, after: Sighting) -> bool:
    """Tell whether a file that had content is empty now; or is not there, as far as it is known which ones belong."""
    gone = _EMPTY if after.name is not None else None
    return any(digest != _EMPTY and after.files.get(name, gone) == _EMPTY for name, digest in before.files.items())


def _digest(sighting: Sighting | None) -> str | None:
    return None if sighting is None else sighting.digest
