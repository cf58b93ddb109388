"""What is to be done with a package: decided from what is wanted and what there is, never from what has happened."""

from enum import StrEnum, auto
from math import inf

import msgspec

from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.packages.probe import ProbeError

_OF_OTHERS = frozenset(["graph_in_use", "name_taken", "not_shared", "reactor_in_use", "trigger_in_use"])
"""Refusals that another package can lift."""

_OUTSIDE = frozenset(["no_file", "unknown_key"])
"""Refusals that end without another package or a new version: a file that is just being saved, a key trusted later."""


class Decision(StrEnum):
    """What is to be done next."""

    FORGET = auto()
    """Nothing is wanted, and nothing is loaded."""

    REST = auto()
    """What is loaded is what is wanted."""

    PREPARE = auto()
    """Another version is wanted than the one that is loaded or lies ready."""

    INSTALL = auto()
    """What lies ready can be put in place."""

    REMOVE = auto()
    """What is loaded is no longer wanted."""

    WAIT = auto()
    """What lies ready needs something that others bring."""

    BACK_OFF = auto()
    """The last try failed, and it is not time for the next."""

    YIELD = auto()
    """A package of this name is loaded that is not from this source: whoever loaded it keeps it."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why the last try failed, and what must happen before the next."""

    digest: str | None
    """The version that was to be loaded; None if one was to be removed."""

    reason: str
    problems: tuple[Problem, ...] = ()
    failures: int = 1
    """Tries in a row that failed so."""

    again_at: float = inf
    """By the monotonic clock."""

    heeds_others: bool = False
    """Whether it is worth another try when another package was loaded or removed."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a package at one moment. Versions are told by their digests."""

    wanted: str | None = None
    loaded: str | None = None
    """What this source has brought, as long as that is what is loaded."""

    is_held: bool = False
    """Whether something is loaded that this source has not brought."""

    ready: str | None = None
    """What was prepared and not yet installed."""

    missing: tuple[str, ...] = ()
    """What must be there before that can be installed."""

    trouble: Trouble | None = None


def decide(view: View, now: float) -> Decision:
    """Return what is next for a package; `now` is by the monotonic clock."""
    if view.wanted is None and view.loaded is None:
        return Decision.FORGET
    if view.is_held:
        return Decision.YIELD
    if view.loaded == view.wanted:
        return Decision.REST
    if view.trouble is not None and view.trouble.digest == view.wanted and now < view.trouble.again_at:
        return Decision.BACK_OFF
    if view.wanted is None:
        return Decision.REMOVE
    if view.ready != view.wanted:
        return Decision.PREPARE
    return Decision.WAIT if view.missing else Decision.INSTALL


class Pace(StrEnum):
    """How soon is tried again what has failed, and how rare that becomes."""

    STEADY = auto()
    """Soon, and often: it is cheap, and may go well at any moment."""

    FADING = auto()
    """Soon, and then rarely: the machine may be to blame, or else the package, and a try may take all its time."""

    SLOW = auto()
    """Rarely: the package is to blame, as far as can be told."""


class Hope(msgspec.Struct, frozen=True, kw_only=True):
    """What may make a try succeed after one that failed, apart from a new version."""

    pace: Pace
    others: bool


def hope_after(error: Exception, tried: Decision) -> Hope:
    """Return what may help after this error of what was tried.

    What is refused while it is prepared is wrong in itself, unless the machine kept it from being tried. What is
    refused later is wrong beside its neighbours, who may change. Everything else is the machine's or the store's.
    """
    if not isinstance(error, DefinitionError | RequestError):
        return Hope(pace=Pace.STEADY, others=False)
    code = error.code if isinstance(error, RequestError) else None
    if tried is Decision.PREPARE:
        if code in _OF_OTHERS | _OUTSIDE:
            return Hope(pace=Pace.STEADY, others=code in _OF_OTHERS)
        may_pass = isinstance(error, ProbeError) and error.may_pass
        return Hope(pace=Pace.FADING if may_pass else Pace.SLOW, others=False)
    return Hope(pace=Pace.STEADY if code is not None or tried is Decision.REMOVE else Pace.SLOW, others=True)
