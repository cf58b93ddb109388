"""In-process notifications about runs, for the callers on this node that wait for one."""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

from tidemill.workflows.records import RunRecord
from tidemill.workflows.run_draft import TaskRef


class FinishedRun(NamedTuple):
    """A run that has ended, as its last change left it."""

    record: RunRecord
    outputs: Mapping[TaskRef, bytes] | None
    """The outputs of its tasks; None unless all of them are cached."""


class RunSignal(asyncio.Event):
    """Set when a run changes."""

    finished: FinishedRun | None = None
    """The finished run, if the run has ended. It is kept as long as a waiter references this signal."""


class RunNotifier:
    """Wakes the callers on this node that wait for a run to change or to end."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[], None]] = []
        """Called when this node has changed any run as the leader."""
        self.change_signals: WeakValueDictionary[str, RunSignal] = WeakValueDictionary()
        """By run: the signal of its next change, as long as a waiter references it."""
        self.end_signals: WeakValueDictionary[str, RunSignal] = WeakValueDictionary()
        """The same for waiters that only wait until this node no longer coordinates the run."""

    def notify_changed(self, run: str) -> None:
        """Wake the callers that wait for a run to change."""
        if (signal := self.change_signals.pop(run, None)) is not None:
            signal.set()

    def notify_ended(self, run: str, finished: FinishedRun | None) -> None:
        """Wake all callers that wait for a run, and pass them its result if this node knows it."""
        if (signal := self.change_signals.pop(run, None)) is not None:
            signal.set()
        if (signal := self.end_signals.pop(run, None)) is not None:
            signal.finished = finished
            signal.set()

    def notify_all(self) -> None:
        """Wake all waiters: something changed, and it is not known which run."""
        for run in {*self.change_signals, *self.end_signals}:
            self.notify_ended(run, None)

    def change_signal(self, run: str) -> RunSignal:
        """Return the signal that the next change of a run sets."""
        return _get_or_create(self.change_signals, run)

    def end_signal(self, run: str) -> RunSignal:
        """Return the signal that is set when this node stops coordinating a run, usually because it has ended."""
        return _get_or_create(self.end_signals, run)


def _get_or_create(signals: "WeakValueDictionary[str, RunSignal]", run: str) -> RunSignal:
    if (signal := signals.get(run)) is None:
        signal = signals[run] = RunSignal()
    return signal
