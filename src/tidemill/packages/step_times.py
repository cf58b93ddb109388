"""The times of the deploy steps: when each step of a package's last load began, and how long it took."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import msgspec

from tidemill.kernel.clock import Clock
from tidemill.packages.status import PackageKey


class StepTime(msgspec.Struct, kw_only=True):
    """One deploy step of a package's last load."""

    step: str
    started_at: datetime | None = None
    """None if the load did not come that far."""
    duration: float | None = None
    """Seconds; None while the step runs."""
    failed: bool = False


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
        time, began = self._times[key][title], self._clock.monotonic()
        time.started_at = self._clock.now()
        time.failed = True
        try:
            yield
            time.failed = False
        finally:
            time.duration = self._clock.monotonic() - began

    def forget(self, key: PackageKey) -> None:
        """Forget a package that was unloaded."""
        self._times.pop(key, None)

    def of(self, key: PackageKey) -> list[StepTime]:
        """Return the steps of a package's last load, in order; none if it was not loaded here."""
        return list(self._times.get(key, {}).values())
