"""Sequence numbers of a feed: drop what was delivered before, and notice what is missing."""

from collections.abc import Callable
from typing import Any

from tidemill.kernel.author_errors import AUTHOR_ERRORS

FIRST_NUMBER = 1  # or 0: what feeds begin to count with

FindNumber = Callable[[Any], int | None]
"""Returns the sequence number of a decoded message; None if it has none."""


def number_at(path: str) -> FindNumber:
    """Return a function that finds a number in nested objects by its path, such as "data.seq"."""
    names = path.split(".")

    def find(message: Any) -> int | None:
        for name in names:
            if not isinstance(message, dict) or name not in message:
                return None
            message = message[name]
        return message if type(message) is int else None

    return find


class SequenceTracker:
    """The sequence numbers of one connection, which continues after a number that an earlier one has delivered.

    A feed that replays is asked for the numbers after the last one, so lower ones are repetitions; if the first one is
    the first of all, the feed may count anew, and that is reported. Another feed that begins a connection with a lower
    number counts anew.
    """

    def __init__(self, find: FindNumber, last: int | None, *, replays: bool, report_gap: Callable[[str], None]) -> None:
        self._find = find
        self.last = last
        self._replays = replays
        self._report_gap = report_gap
        self._is_first = True

    def admits(self, message: Any) -> bool:
        """Record a message; return whether it is new. One without a number is always new."""
        number = self._number(message)
        if number is None:
            return True
        is_first, self._is_first = self._is_first, False
        if self.last is not None and is_first and number < self.last and not self._replays:
            self._report_gap(f"the sequence begins again at {number} after {self.last}: events may be missing")
        elif self.last is not None and number <= self.last:
            if is_first and number <= FIRST_NUMBER < self.last:
                self._report_gap(
                    f"the sequence begins again at {number}, and numbers up to {self.last} are dropped as repetitions: "
                    "if the feed counts anew, rename the accumulator"
                )
            return False
        elif self.last is not None and number > self.last + 1:
            self._report_gap(f"the sequence continues at {number} after {self.last}: {number - self.last - 1} missing")
        self.last = number
        return True

    def _number(self, message: Any) -> int | None:
        try:
            return self._find(message)
        except AUTHOR_ERRORS:  # author code: a message that it does not expect; the annotation decides about it
            return None
