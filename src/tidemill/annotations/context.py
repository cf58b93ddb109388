"""What author code may know of where it runs: one annotation for nodes of graphs and tasks of workflows.

Authors write `ctx: tm.Context`. What they get knows a firing or an attempt; the half that does not apply says so.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, NoReturn

from tidemill.kernel.durations import Duration

ONLY_IN_NODE = "only in a node of a graph"
ONLY_IN_TASK = "only in a task of a workflow"


class Context:
    """The firing around a node, or the attempt around a task: annotate a parameter with it to get it."""

    __slots__ = ()

    log: "logging.LoggerAdapter[logging.Logger]"
    """A logger that adds where it was said; in a task, what it is told goes to the attempt's log too."""

    # -- in a node

    @property
    def graph(self) -> str:
        """The graph's name; only in a node."""
        _raise_unavailable("graph", ONLY_IN_NODE)

    @property
    def firing_id(self) -> str:
        """The firing's id: the same when the firing is tried again; only in a node."""
        _raise_unavailable("firing_id", ONLY_IN_NODE)

    @property
    def consumed(self) -> list[tuple[str, Any]]:
        """What led to this firing, as (source, boundary) in the order of arrival; only in a node."""
        _raise_unavailable("consumed", ONLY_IN_NODE)

    # -- in a task

    @property
    def run_id(self) -> str:
        """The run's id; only in a task."""
        _raise_unavailable("run_id", ONLY_IN_TASK)

    @property
    def attempt(self) -> int:
        """Which try this is, from 1; only in a task."""
        _raise_unavailable("attempt", ONLY_IN_TASK)

    @property
    def slot(self) -> datetime | None:
        """The slot of the schedule that started the run, None if none did; only in a task."""
        _raise_unavailable("slot", ONLY_IN_TASK)

    @property
    def token(self) -> str:
        """A name for this attempt that no other has, to fence effects outside with; only in a task."""
        _raise_unavailable("token", ONLY_IN_TASK)

    def __getitem__(self, key: str) -> Any:
        """Return a value from the run's params and the dicts that tasks before returned; only in a task."""
        _raise_unavailable(f"[{key!r}]", ONLY_IN_TASK)

    def __contains__(self, key: object) -> bool:
        """Return whether `ctx[key]` has a value; only in a task."""
        _raise_unavailable(f"[{key!r}]", ONLY_IN_TASK)

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002
        """Return `ctx[key]`, or something else where there is no such value; only in a task."""
        _raise_unavailable("get", ONLY_IN_TASK)

    def defer(
        self,
        *,
        for_: Duration | None = None,  # noqa: ARG002
        until: datetime | None = None,  # noqa: ARG002
        poll: Callable[[], bool | Awaitable[bool]] | None = None,  # noqa: ARG002
        every: Duration | None = None,  # noqa: ARG002
    ) -> None:
        """End this execution and be called again later: after a while, at a time, or when `poll` says yes.

        It spends no attempt and holds no place. When woken the function is called again from the top, and the same
        call returns at once. Only in a task.
        """
        _raise_unavailable("defer", ONLY_IN_TASK)

    async def push(self, accumulator: str, event: Any) -> Any:  # noqa: ARG002
        """Push an event to an accumulator and return the Receipt; only in a task."""
        _raise_unavailable("push", ONLY_IN_TASK)


def _raise_unavailable(what: str, where: str) -> NoReturn:
    name = f"ctx{what}" if what.startswith("[") else f"ctx.{what}"
    raise AttributeError(f"{name} is there {where}")
