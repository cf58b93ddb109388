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
    the first of all, the feed may count from the start, and that is reported. Another feed that begins a connection
    with a lower number counts from the start. So does any feed that sends the first number of all within a connection.
    """

    def __init__(self, find: FindNumber, last: int | None, *, replays: bool, report_gap: Callable[[str], None]) -> None:
        self._find = find
        self.last = last
        self._replays = replays
        self._report_gap = report_gap
        self._previous: int | None = None  # of this connection

    def admits(self, message: Any) -> bool:
        """Record a message; return whether it is new. One without a number is always new."""
        number = self._number(message)
        if number is None:
            return True
        previous, self._previous = self._previous, number
        last, self.last = self.last, number
        if last is None:
            return True
        if self._counts_anew(number, last, previous):
            self._report_gap(f"the sequence begins again at {number} after {last}: events may be missing")
        elif number <= last:
            self.last = last
            if previous is None and number <= FIRST_NUMBER < last:
                self._report_gap(
                    f"the sequence begins again at {number}, and numbers up to {last} are dropped as repetitions: "
                    "if the feed counts from the start, rename the accumulator"
                )
            return False
        elif number > last + 1:
            self._report_gap(f"the sequence continues at {number} after {last}: {number - last - 1} missing")
        return True

    def _counts_anew(self, number: int, last: int, previous: int | None) -> bool:
        if previous is None:
            return number < last and not self._replays
        return number <= FIRST_NUMBER < last and number < previous

    def _number(self, message: Any) -> int | None:
        try:
            return self._find(message)
        except AUTHOR_ERRORS:  # author code: a message that it does not expect; the annotation decides about it
            return None
