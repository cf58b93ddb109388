"""Who waits for news of a run, and the telling."""

import asyncio
from weakref import WeakValueDictionary

from tidemill.engine.workflows.board import Outcome


class News(asyncio.Event):
    """Set when there is news of a run."""

    outcome: Outcome | None = None
    """How it ended, if that is the news. It lasts as long as somebody who has waited for it holds this."""


class Notices:
    """News of runs, for those who wait for them in this process."""

    def __init__(self) -> None:
        self._waiting: WeakValueDictionary[str, News] = WeakValueDictionary()
        """By run, as long as somebody has it in hand."""
        self._staying: WeakValueDictionary[str, News] = WeakValueDictionary()
        """The same of those who wait for nothing but that the run is planned here no more."""

    def tell(self, run: str) -> None:
        """Wake those who wait for news of a run."""
        if (news := self._waiting.pop(run, None)) is not None:
            news.set()

    def tell_end(self, run: str, outcome: Outcome | None) -> None:
        """Wake also those who wait for the end of a run, and hand them its outcome if that is known here."""
        self.tell(run)
        if (news := self._staying.pop(run, None)) is not None:
            news.outcome = outcome
            news.set()

    def tell_all(self) -> None:
        """Wake everybody: something has changed, and nobody knows what."""
        for run in {*self._waiting, *self._staying}:
            self.tell_end(run, None)

    def next(self, run: str) -> News:
        """Return what is set at the next news of a run."""
        return _put(self._waiting, run)

    def end(self, run: str) -> News:
        """Return what is set when a run that is planned here is so no more, as a rule because it has ended."""
        return _put(self._staying, run)


def _put(waiting: "WeakValueDictionary[str, News]", run: str) -> News:
    if (news := waiting.get(run)) is None:
        news = waiting[run] = News()
    return news
