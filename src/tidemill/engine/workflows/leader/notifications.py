"""Who waits for news of a run, and the telling."""

import asyncio
from weakref import WeakValueDictionary

from tidemill.engine.workflows.leader.active_runs import FinishedRun


class RunSignal(asyncio.Event):
    """Set when there is news of a run."""

    finished: FinishedRun | None = None
    """How it ended, if that is the news. It lasts as long as somebody who has waited for it holds this."""


class RunNotifier:
    """News of runs, for those who wait for them in this process."""

    def __init__(self) -> None:
        self._change_signals: WeakValueDictionary[str, RunSignal] = WeakValueDictionary()
        """By run, as long as somebody has it in hand."""
        self._end_signals: WeakValueDictionary[str, RunSignal] = WeakValueDictionary()
        """The same of those who wait for nothing but that the run is planned here no more."""

    def notify_changed(self, run: str) -> None:
        """Wake those who wait for news of a run."""
        if (news := self._change_signals.pop(run, None)) is not None:
            news.set()

    def notify_ended(self, run: str, finished: FinishedRun | None) -> None:
        """Wake also those who wait for the end of a run, and hand them its outcome if that is known here."""
        self.notify_changed(run)
        if (news := self._end_signals.pop(run, None)) is not None:
            news.finished = finished
            news.set()

    def notify_all(self) -> None:
        """Wake everybody: something has changed, and nobody knows what."""
        for run in {*self._change_signals, *self._end_signals}:
            self.notify_ended(run, None)

    def change_signal(self, run: str) -> RunSignal:
        """Return what is set at the next news of a run."""
        return _get_or_create(self._change_signals, run)

    def end_signal(self, run: str) -> RunSignal:
        """Return what is set when a run that is planned here is so no more, as a rule because it has ended."""
        return _get_or_create(self._end_signals, run)


def _get_or_create(signals: "WeakValueDictionary[str, RunSignal]", run: str) -> RunSignal:
    if (news := signals.get(run)) is None:
        news = signals[run] = RunSignal()
    return news
