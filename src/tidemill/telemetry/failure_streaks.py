"""Consecutive failures: a repeated failure is logged once, then at intervals, and when it ends."""

from collections.abc import Hashable

FAILURES_PER_REMINDER = 100
"""The number of consecutive failures of one kind after which it is logged again."""


class FailureStreaks:
    """Counts consecutive failures by key."""

    def __init__(self) -> None:
        self._streaks: dict[Hashable, tuple[str, int]] = {}

    def record_failure(self, key: Hashable, kind: str) -> int | None:
        """Count a failure; return the length of its streak if it should be logged, else None."""
        previous, count = self._streaks.get(key, (kind, 0))
        count = count + 1 if previous == kind else 1
        self._streaks[key] = kind, count
        return count if count == 1 or count % FAILURES_PER_REMINDER == 0 else None

    def reset(self, key: Hashable) -> int:
        """End the streak of a key; return its length, 0 if there was none."""
        _, count = self._streaks.pop(key, ("", 0))
        return count
