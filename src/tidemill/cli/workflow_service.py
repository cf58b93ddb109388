"""Backfills as commands see them, on a server or on a store."""

from typing import Protocol


class WorkflowService(Protocol):
    """The backfills of one tenant."""

    async def cancel_backfill(self, id: str) -> int:
        """Start no more runs of a backfill, and cancel its active ones; return how many these were."""
