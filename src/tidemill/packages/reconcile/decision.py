"""What is to be done with a package: decided from what is wanted and what there is, never from what has happened."""

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum, auto
from math import inf
from typing import NamedTuple, Protocol

import msgspec

from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.packages.format.archive import PackageContents
from tidemill.packages.loading.probe import ProbeError

_CODES_OTHERS_CAN_LIFT = frozenset(["graph_in_use", "name_taken", "not_shared", "reactor_in_use", "trigger_in_use"])
"""Refusals that another package can lift."""

_CODES_LIFTED_EXTERNALLY = frozenset(["no_file", "unknown_key"])
"""Refusals that end without another package or a new version: a file that is just being saved, a key trusted later."""


class Action(StrEnum):
    """What is to be done next."""

    FORGET = auto()
    """Nothing is wanted, and nothing is loaded."""

    NONE = auto()
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

    LEAVE_TO_OWNER = auto()
    """A package of this name is loaded that is not from this source: whoever loaded it keeps it."""


class LastFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why the last try failed, and what must happen before the next."""

    digest: str | None
    """The version that was to be loaded; None if one was to be removed."""

    reason: str
    problems: tuple[Problem, ...] = ()
    failures: int = 1
    """Tries in a row that failed so."""

    retry_at: float = inf
    """By the monotonic clock."""

    retries_on_others: bool = False
    """Whether it is worth another try when another package was loaded or removed."""


class ObservedState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a package at one moment. Versions are told by their digests."""

    desired: str | None = None
    loaded: str | None = None
    """What this source has brought, as long as that is what is loaded."""

    is_loaded_elsewhere: bool = False
    """Whether something is loaded that this source has not brought."""

    prepared: str | None = None
    """What was prepared and not yet installed."""

    missing: tuple[str, ...] = ()
    """What must be there before that can be installed."""

    last_failure: LastFailure | None = None


def decide(observed: ObservedState, now: float) -> Action:
    """Return what is next for a package; `now` is by the monotonic clock."""
    if observed.desired is None and observed.loaded is None:
        return Action.FORGET
    if observed.is_loaded_elsewhere:
        return Action.LEAVE_TO_OWNER
    if observed.loaded == observed.desired:
        return Action.NONE
    if (
        observed.last_failure is not None
        and observed.last_failure.digest == observed.desired
        and now < observed.last_failure.retry_at
    ):
        return Action.BACK_OFF
    if observed.desired is None:
        return Action.REMOVE
    if observed.prepared != observed.desired:
        return Action.PREPARE
    return Action.WAIT if observed.missing else Action.INSTALL


class RetryPace(StrEnum):
    """How soon is tried again what has failed, and how rare that becomes."""

    STEADY = auto()
    """Soon, and often: it is cheap, and may go well at any moment."""

    SLOWING = auto()
    """Soon, and then rarely: the machine may be to blame, or else the package, and a try may take all its time."""

    SLOW = auto()
    """Rarely: the package is to blame, as far as can be told."""


class RetryAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What may make a try succeed after one that failed, apart from a new version."""

    pace: RetryPace
    retries_on_others: bool


def retry_advice(error: Exception, tried: Action) -> RetryAdvice:
    """Return what may help after this error of what was tried.

    What is refused while it is prepared is wrong in itself, unless the machine kept it from being tried. What is
    refused later is wrong beside its neighbours, who may change. Everything else is the machine's or the store's.
    """
    if not isinstance(error, DefinitionError | RequestError):
        return RetryAdvice(pace=RetryPace.STEADY, retries_on_others=False)
    code = error.code if isinstance(error, RequestError) else None
    if tried is Action.PREPARE:
        if code in _CODES_OTHERS_CAN_LIFT | _CODES_LIFTED_EXTERNALLY:
            return RetryAdvice(pace=RetryPace.STEADY, retries_on_others=code in _CODES_OTHERS_CAN_LIFT)
        may_pass = isinstance(error, ProbeError) and error.is_transient
        return RetryAdvice(pace=RetryPace.SLOWING if may_pass else RetryPace.SLOW, retries_on_others=False)
    return RetryAdvice(
        pace=RetryPace.STEADY if code is not None or tried is Action.REMOVE else RetryPace.SLOW, retries_on_others=True
    )


class PackageKey(NamedTuple):
    """Which package."""

    tenant: str
    name: str


class DesiredPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package that is to be loaded, as far as it is known without reading it."""

    key: PackageKey
    digest: str
    """Changes when anything of it does."""

    title: str
    """Where it comes from, for people."""

    version: str | None
    """None if it cannot be told, because its manifest cannot be read."""

    read: Callable[[], Awaitable[PackageContents]]
    """Returns all of it; raises a TidemillError if it cannot be read."""


class PackageSource(Protocol):
    """Where it is said which packages are wanted."""

    async def desired_packages(self) -> Mapping[PackageKey, DesiredPackage]:
        """Return everything that is wanted now; raises a TidemillError if that cannot be told."""

    async def wait_for_change(self) -> None:
        """Return when something may have changed since the last call; too often harms nobody."""
