"""Who waits for news of a run, and the telling."""

import asyncio


class Notices:
    """News of runs, for those who wait for them in this process."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Event] = {}

    def tell(self, run: str) -> None:
        """Wake those who wait for news of a run."""
        if (event := self._waiting.pop(run, None)) is not None:
            event.set()

    def tell_all(self) -> None:
        """Wake everybody: something has changed, and nobody knows what."""
        for run in list(self._waiting):
            self.tell(run)

    def next(self, run: str) -> asyncio.Event:
        """Return what is set at the next news of a run."""
        return self._waiting.setdefault(run, asyncio.Event())
