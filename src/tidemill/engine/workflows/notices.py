"""Who waits for news of a run, and the telling."""

import asyncio
from weakref import WeakValueDictionary


class Notices:
    """News of runs, for those who wait for them in this process."""

    def __init__(self) -> None:
        self._waiting: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        """By run, as long as somebody has it in hand."""

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
        if (event := self._waiting.get(run)) is None:
            event = self._waiting[run] = asyncio.Event()
        return event
