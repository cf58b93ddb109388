"""Package keys, and the status of a package as the API, the UI and `tidemill dev` show it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import Problem
from tidemill.packages.states import State, StepTime
from tidemill.telemetry.metrics import Metric

PACKAGE_METRICS = (
    Metric("packages_loaded", "gauge", "loaded packages, from every source"),
    Metric("packages_waiting", "gauge", "packages that wait for others to be loaded"),
    Metric(
        "packages_failed", "gauge", "packages whose desired version could not be loaded, or that could not be removed"
    ),
    Metric("package_loads_total", "counter", "loads of package versions, reloads included"),
    Metric("package_removals_total", "counter", "packages removed because they were no longer desired"),
    Metric("package_failures_total", "counter", "failed tries to load or remove a package"),
    Metric("package_source_errors_total", "counter", "failed reads of the desired packages of a source"),
)


class PackageKey(NamedTuple):
    """The tenant and the name of a package."""

    tenant: str
    name: str


class InstalledPackage(NamedTuple):
    """The loaded version of a package, from any origin."""

    version: str
    digest: str


class PackageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one package.

    If a new version cannot be loaded, the previous one stays: the state is "failed", `version` is the loaded version,
    `wanted` the one that failed, and `reason` says why.
    """

    tenant: str
    name: str
    title: str = ""
    """The folder, file or registry that the wanted version comes from; "" if the program loaded it."""

    version: str
    """The loaded version; "" if none is loaded."""

    wanted: str | None
    """The desired version; None if none is desired, or if its manifest cannot be read."""

    state: State
    """"unloaded" is reported once, at the end: an unloaded package is not listed."""

    reason: str = ""
    """The error of the last attempt; kept while the same version is retried."""

    problems: tuple[Problem, ...] = ()
    """The problems of the package's definitions, with file and line."""

    waiting_for: tuple[str, ...] = ()
    """What other packages must provide first."""

    failures: int = 0
    """Failed attempts in a row."""

    since: datetime
    """When the package entered this state, or when another version was desired that is in the same state."""

    again_at: datetime | None = None
    """When the next attempt is due; None if nothing failed. A new version does not wait for it."""


StatusListener = Callable[[PackageStatus], None]
"""Receives every change of a package's status."""


class StatusReport(NamedTuple):
    """What one source reports about a package."""

    origin: str
    status: PackageStatus


def merge_reports(loaded: PackageStatus | None, loaded_from: str, reports: Sequence[StatusReport]) -> PackageStatus:
    """Merge what each source reports about a package with what is loaded.

    The source that loaded the package decides about its state. The other sources only add the reason why they could
    not load it.
    """
    if loaded is None:
        own, version = reports[0].status, ""
    else:
        own = next((one.status for one in reports if one.origin == loaded_from), loaded)
        version = loaded.version
    others = [one.status for one in reports if one.status is not own]
    reasons = [own.reason, *(f"{one.title}: {one.reason}" for one in others if one.reason)]
    return replace(own, version=version, reason="; ".join(filter(None, reasons)))


class StepTimes:
    """Records the deploy steps of the last load of each package."""

    def __init__(self, titles: tuple[str, ...], clock: Clock) -> None:
        self._titles = titles
        self._clock = clock
        self._times: dict[PackageKey, dict[str, StepTime]] = {}

    def begin(self, key: PackageKey) -> None:
        """Begin to record a load; the times of the one before are gone."""
        self._times[key] = {title: StepTime(step=title) for title in self._titles}

    @contextmanager
    def step(self, key: PackageKey, title: str) -> Iterator[None]:
        """Record a step."""
        times, began = self._times[key], self._clock.monotonic()
        running = times[title] = StepTime(step=title, started_at=self._clock.now())
        try:
            yield
        except BaseException:
            times[title] = replace(running, duration=self._clock.monotonic() - began, failed=True)
            raise
        times[title] = replace(running, duration=self._clock.monotonic() - began)

    def forget(self, key: PackageKey) -> None:
        """Forget a package that was unloaded."""
        self._times.pop(key, None)

    def of(self, key: PackageKey) -> list[StepTime]:
        """Return the steps of a package's last load, in order; none if it was not loaded here."""
        return list(self._times.get(key, {}).values())
