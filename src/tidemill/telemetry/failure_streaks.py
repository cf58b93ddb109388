"""Failures in a row: what fails every second is told once, then now and then, and when it is over."""

from collections.abc import Hashable

FAILURES_PER_REMINDER = 100
"""After how many failures of one kind in a row it is told again."""


class FailureStreaks:
    """Counts failures in a row, each under a key."""

    def __init__(self) -> None:
        self._streaks: dict[Hashable, tuple[str, int]] = {}

    def record_failure(self, key: Hashable, kind: str) -> int | None:
        """Count a failure; return which of its kind in a row it is if that is to be told, else None."""
        before, count = self._streaks.get(key, (kind, 0))
        count = count + 1 if before == kind else 1
        self._streaks[key] = kind, count
        return count if count == 1 or count % FAILURES_PER_REMINDER == 0 else None

    def reset(self, key: Hashable) -> int:
        """Forget the failures of a key; return how many they were, 0 if it was fine."""
        _, count = self._streaks.pop(key, ("", 0))
        return count
