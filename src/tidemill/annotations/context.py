"""The context of author code: one annotation for nodes of graphs and tasks of workflows.

Authors write `ctx: tm.Context` and get a firing or an attempt; members of the other one raise.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

from tidemill.kernel.durations import Duration

ONLY_IN_NODE = "only in a node of a graph"
ONLY_IN_TASK = "only in a task of a workflow"


class Context:
    """The firing of a node, or the attempt of a task: annotate a parameter with it to get it."""

    __slots__ = ()

    log: "logging.LoggerAdapter[logging.Logger]"
    """A logger that adds its origin to each record; in a task, its records are in the attempt's log too."""

    # -- in a node

    @property
    def graph(self) -> str:
        """The graph's name; only in a node."""
        _raise_unavailable("graph", ONLY_IN_NODE)

    @property
    def firing_id(self) -> str:
        """The firing's id, which stays the same when the firing is retried; only in a node."""
        _raise_unavailable("firing_id", ONLY_IN_NODE)

    @property
    def consumed(self) -> list[tuple[str, Any]]:
        """The boundaries that led to this firing, as (source, boundary) in the order of arrival; only in a node."""
        _raise_unavailable("consumed", ONLY_IN_NODE)

    @property
    def key(self) -> Any:
        """The key of the firing; None if the reactor has no `key=`; only in a node."""
        _raise_unavailable("key", ONLY_IN_NODE)

    # -- in a task

    @property
    def run_id(self) -> str:
        """The run's id; only in a task."""
        _raise_unavailable("run_id", ONLY_IN_TASK)

    @property
    def attempt(self) -> int:
        """The number of this try, from 1; only in a task."""
        _raise_unavailable("attempt", ONLY_IN_TASK)

    @property
    def slot(self) -> datetime | None:
        """The slot of the schedule that started the run, None for other runs; only in a task."""
        _raise_unavailable("slot", ONLY_IN_TASK)

    @property
    def token(self) -> str:
        """A unique name of this attempt, to fence external effects with; only in a task."""
        _raise_unavailable("token", ONLY_IN_TASK)

    def __getitem__(self, key: str) -> Any:
        """Return a value from the run's params and the dicts that upstream tasks returned; only in a task."""
        _raise_unavailable(f"[{key!r}]", ONLY_IN_TASK)

    def __contains__(self, key: object) -> bool:
        """Return whether `ctx[key]` has a value; only in a task."""
        _raise_unavailable(f"[{key!r}]", ONLY_IN_TASK)

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002
        """Return `ctx[key]`, or `default` if there is no such value; only in a task."""
        _raise_unavailable("get", ONLY_IN_TASK)

    def defer(
        self,
        *,
        for_: Duration | None = None,  # noqa: ARG002
        until: datetime | None = None,  # noqa: ARG002
        poll: Callable[[], bool | Awaitable[bool]] | None = None,  # noqa: ARG002
        every: Duration | None = None,  # noqa: ARG002
    ) -> None:
        """End this execution and be called again later: after a duration, at a time, or when `poll` returns true.

        A deferral spends no attempt and occupies no slot. After it the function is called again from the top, and the
        same call returns immediately. Only in a task.
        """
        _raise_unavailable("defer", ONLY_IN_TASK)

    def push(self, accumulator: Any, event: Any) -> Any:  # noqa: ARG002
        """Push an event to an accumulator and return the Receipt: `await` it in an `async def`. Only in a task."""
        _raise_unavailable("push", ONLY_IN_TASK)

    def start(self, workflow: Any, given: Mapping[str, Any] | None = None, /, **params: Any) -> Any:  # noqa: ARG002
        """Start a run of a workflow and return its handle: `await` it in an `async def`. Only in a task.

        A task that is repeated, by a retry or after a crash, starts nothing twice: its first call returns the run that
        its first call has started, and so on.
        """
        _raise_unavailable("start", ONLY_IN_TASK)

    def step(self, function: Callable[..., Any], /, *args: Any, key: Any = None, **kwargs: Any) -> Any:  # noqa: ARG002
        """Call a function and commit its value, once: return it, and `await` it in an `async def`. Only in a task.

        A task that is called again, after a deferral, by a retry or on another node, gets the stored value. A step is
        named by its function, and by `key` if there is one, else by the number of the call. If the function raises, the
        step raises StepError.
        """
        _raise_unavailable("step", ONLY_IN_TASK)

    def wait_for(self, name: str, type: Any, **options: Any) -> Any:  # noqa: ARG002
        """Ask a person or a program, and return the answer: `await` it in an `async def`. Only in a task.

        The task is deferred until there is an answer of this type, or until the time is over: then `default` is the
        answer, or TimeoutError is raised. The same name again is the next answer.
        """
        _raise_unavailable("wait_for", ONLY_IN_TASK)

    @property
    def answers(self) -> list[Any]:
        """The answers that the task has had, in order; only in a task."""
        _raise_unavailable("answers", ONLY_IN_TASK)

    def secret(self, name: str) -> Any:  # noqa: ARG002
        """Return the value of a secret of the task's tenant: `await` it in an `async def`. Only in a task.

        Tidemill masks the value in what the task logs, prints and raises.
        """
        _raise_unavailable("secret", ONLY_IN_TASK)

    def variable(self, name: str) -> Any:  # noqa: ARG002
        """Return the value of a variable of the task's tenant: `await` it in an `async def`. Only in a task."""
        _raise_unavailable("variable", ONLY_IN_TASK)


def _raise_unavailable(member: str, where: str) -> NoReturn:
    name = f"ctx{member}" if member.startswith("[") else f"ctx.{member}"
    raise AttributeError(f"{name} is available {where}")
