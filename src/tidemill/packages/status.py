"""How things stand with a package that is wanted or loaded: for people, wherever they look."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal

import msgspec
from msgspec.structs import replace

from tidemill.kernel.errors import Problem

State = Literal["preparing", "waiting", "loaded", "failed", "unloading", "unloaded"]


class PackageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one package.

    A version that could not be loaded leaves the one before it where it is: then the state is "failed", `version` says
    what is loaded, `wanted` what is not, and `reason` why.
    """

    tenant: str
    name: str
    title: str = ""
    """Where that comes from which is wanted: a folder, a file or a registry; "" if nobody knows."""

    version: str
    """What is loaded; "" if nothing is."""

    wanted: str | None
    """The version that is wanted; None if none is, or if it cannot be told."""

    state: State
    """"unloaded" is told once, when it is over: such a package is listed no more."""

    reason: str = ""
    """What went wrong at the last try; kept while the same version is tried again."""

    problems: tuple[Problem, ...] = ()
    """The same, with file and line, as far as it is about what the package declares."""

    waiting_for: tuple[str, ...] = ()
    """What other packages must bring first."""

    failures: int = 0
    """Tries in a row that failed."""

    since: datetime
    """When it came into this state, or when another version was wanted that is in the same state."""

    again_at: datetime | None = None
    """When a failed step is tried again, a new version at once; None if nothing has failed, or others must change."""


StatusListener = Callable[[PackageStatus], None]
"""Hears of every change of a package's status."""


def merge_statuses(first: PackageStatus, *others: PackageStatus) -> PackageStatus:
    """Return the first status, with what the others have to say besides; each of those says where it comes from."""
    reasons = [f"{one.title}: {one.reason}" for one in others if one.reason]
    return replace(first, reason="; ".join(filter(None, [first.reason, *reasons]))) if reasons else first
