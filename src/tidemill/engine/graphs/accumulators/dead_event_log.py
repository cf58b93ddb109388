"""The log of dead events: the first of a series, and then how many there are, not a line for each."""

import logging

from tidemill.annotations.signatures import AuthorFunction
from tidemill.kernel.clock import Clock
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

SERIES_GAP = 60.0
"""Seconds without a dead event of the same kind that end a series."""
LINE_FACTOR = 10
"""How many times as many events the next line of a series needs."""
LINE_INTERVAL = 3600.0
"""Seconds after which a series that goes on has a line in any case."""


class _Series:
    """Dead events with the same class of error, from the same line."""

    def __init__(self) -> None:
        self.count = self.logged = 0
        self.next_line = 1
        self.last = self.logged_at = 0.0


class DeadEventLog:
    """Logs dead events of one accumulator: the first, tenth, hundredth, and so on, of a series, and one each hour."""

    def __init__(self, accumulator: str, clock: Clock) -> None:
        self._accumulator = accumulator
        self._clock = clock
        self._series: dict[tuple[str, str], _Series] = {}

    def record(self, error: BaseException, text: str, function: AuthorFunction | None) -> None:
        """Count a dead event, and log it if its series needs a line."""
        now, place = self._clock.monotonic(), locate_error(error, function)
        kind = (type(error).__name__, place)
        series = self._series.setdefault(kind, _Series())
        if now - series.last > SERIES_GAP:
            series = self._series[kind] = _Series()
        series.count += 1
        series.last = now
        if series.count < series.next_line and now < series.logged_at + LINE_INTERVAL:
            return
        facts = {"accumulator": self._accumulator, "error": text, "place": place, "events": series.count}
        logger.warning(events.EVENT_DEAD_LETTERED, extra=facts | {"new_events": series.count - series.logged})
        series.logged, series.logged_at = series.count, now
        if series.count >= series.next_line:
            series.next_line *= LINE_FACTOR


def locate_error(error: BaseException, function: AuthorFunction | None) -> str:
    """Return the last line of the function's own file that an error passed through, as "file:line"; "" if none.

    Cheap: it reads no source.
    """
    line, trace = 0, error.__traceback__
    while function is not None and trace is not None:
        if trace.tb_frame.f_code.co_filename == function.location.file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{function.location.file}:{line}" if function is not None and line else ""
