"""Pacing: replays events at the intervals of their times, faster or slower."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from tidemill.kernel.clock import Clock

_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""By their size, numbers are nanoseconds, microseconds or milliseconds since 1970; smaller ones are seconds."""


class Pace:
    """The times of events, as a clock that runs `speed` times as fast shows them. It starts with the first event."""

    def __init__(self, clock: Clock, field: str, speed: float) -> None:
        self._clock = clock
        self._field = field
        self._speed = speed
        self._start: tuple[float, float] | None = None  # the time of the first event, and when it was delivered

    def remaining(self, event: Any) -> float:
        """Return the seconds until an event is due: 0 or less if it is, or if it has no time."""
        time = event_time(event, self._field)
        if time is None:
            return 0.0
        if self._start is None:
            self._start = time, self._clock.monotonic()
        first, started = self._start
        return started + (time - first) / self._speed - self._clock.monotonic()


def event_time(event: Any, field: str) -> float | None:
    """Return the time of an event in seconds since 1970; None if it has none that can be read."""
    if isinstance(event, bytes):
        try:
            event = msgspec.json.decode(event)
        except msgspec.DecodeError:  # a dead letter shows it
            return None
    value = event.get(field) if isinstance(event, dict) else None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value / next((unit for limit, unit in _UNITS if abs(value) >= limit), 1.0)
