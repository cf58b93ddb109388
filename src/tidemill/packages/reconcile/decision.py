"""Decides what to do with a package from its desired and its actual state, never from what has happened."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum, auto
from math import inf
from typing import Protocol

import msgspec

from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.packages.format.archive import PackageContents
from tidemill.packages.loading.metadata import ProbeError
from tidemill.packages.status import PackageKey

_CODES_OTHERS_CAN_LIFT = frozenset(["graph_in_use", "name_taken", "not_shared", "reactor_in_use", "trigger_in_use"])
"""Rejections that a change of another package can lift."""

_CODES_LIFTED_EXTERNALLY = frozenset(["no_file", "unknown_key"])
"""Rejections that end without another package or a new version: a file is being saved, a key is trusted later."""


class Action(StrEnum):
    """The next action for a package."""

    FORGET = auto()
    """The package is neither desired nor loaded."""

    NONE = auto()
    """The desired version is loaded."""

    PREPARE = auto()
    """The desired version is neither loaded nor prepared."""

    INSTALL = auto()
    """The prepared version can be installed."""

    REMOVE = auto()
    """The loaded package is no longer desired."""

    WAIT = auto()
    """Other packages have to provide something first, or to take something over."""

    BACK_OFF = auto()
    """The last attempt failed, and the next one is not due yet."""

    LEAVE_TO_OWNER = auto()
    """A package of this name was loaded from elsewhere, and stays."""


class LastFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The error of the last attempt, and when to retry."""

    digest: str | None
    """The version that was to be loaded; None if the package was to be removed."""

    reason: str
    problems: tuple[Problem, ...] = ()
    failures: int = 1
    """Failed attempts in a row."""

    retry_at: float = inf
    """On the monotonic clock."""

    retries_on_others: bool = False
    """Whether to retry when another package was loaded or removed."""


class ObservedState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a package at one moment. Versions are identified by their digests."""

    desired: str | None = None
    loaded: str | None = None
    """The version that this source loaded, while it is the loaded one."""

    is_loaded_elsewhere: bool = False
    """Whether a package of this name was loaded from elsewhere."""

    prepared: str | None = None
    """The version that is prepared and not yet installed."""

    missing: tuple[str, ...] = ()
    """What other packages must do before the prepared version can be installed, or the loaded one removed."""

    last_failure: LastFailure | None = None


def decide(observed: ObservedState, now: float) -> Action:
    """Return the next action for a package; `now` is on the monotonic clock."""
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
        return Action.WAIT if observed.missing else Action.REMOVE
    if observed.prepared != observed.desired:
        return Action.PREPARE
    return Action.WAIT if observed.missing else Action.INSTALL


class RetryPace(StrEnum):
    """How soon, and how often, a failed attempt is retried."""

    STEADY = auto()
    """Soon and often: an attempt is cheap, and may succeed at any moment."""

    SLOWING = auto()
    """Soon, then rarely: the machine may be the cause, or the package, and an attempt may use all its time."""

    SLOW = auto()
    """Rarely: the package is the cause, as far as is known."""


class RetryAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What may make an attempt succeed after a failure, apart from a new version."""

    pace: RetryPace
    retries_on_others: bool


def retry_advice(error: Exception, tried: Action) -> RetryAdvice:
    """Return how to retry an action that failed with this error.

    A package that is rejected during preparation is wrong in itself, unless the machine prevented the attempt. One
    that is rejected later conflicts with other packages, which may change. All other errors are those of the machine
    or the store.
    """
    if not isinstance(error, DefinitionError | RequestError):
        return RetryAdvice(pace=RetryPace.STEADY, retries_on_others=False)
    code = error.code if isinstance(error, RequestError) else None
    if tried is Action.PREPARE:
        if code in _CODES_OTHERS_CAN_LIFT | _CODES_LIFTED_EXTERNALLY:
            return RetryAdvice(pace=RetryPace.STEADY, retries_on_others=code in _CODES_OTHERS_CAN_LIFT)
        is_transient = isinstance(error, ProbeError) and error.is_transient
        return RetryAdvice(pace=RetryPace.SLOWING if is_transient else RetryPace.SLOW, retries_on_others=False)
    return RetryAdvice(
        pace=RetryPace.STEADY if code is not None or tried is Action.REMOVE else RetryPace.SLOW, retries_on_others=True
    )


class DesiredPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package that is to be loaded, as far as it is known without reading it."""

    key: PackageKey
    digest: str
    """Changes when any part of the package does."""

    title: str
    """Where the package comes from, for people."""

    version: str | None
    """None if the manifest cannot be read."""

    read: Callable[[], Awaitable[PackageContents]]
    """Returns the contents; raises a TidemillError if they cannot be read."""


class PackageSource(Protocol):
    """Says which packages are desired."""

    def remember_packages(self, keys: Iterable[PackageKey]) -> None:
        """Learn which packages of this source an earlier process had loaded."""

    async def desired_packages(self) -> Mapping[PackageKey, DesiredPackage]:
        """Return all packages that are desired now; raise a TidemillError if that cannot be determined."""

    async def wait_for_change(self) -> None:
        """Return when something may have changed since the last call; a needless return does no harm."""
