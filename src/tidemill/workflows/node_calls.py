"""Calls of a running task to its node, such as `ctx.push`, as values that can be sent from another process."""

from collections.abc import Callable
from typing import Any, Literal, NoReturn

import msgspec

from tidemill.workflows.records import AttemptKey


class PushCall(msgspec.Struct, frozen=True, tag=True):
    """Push an event into an accumulator; the answer is a Receipt."""

    accumulator: str
    event: Any
    format: Literal["json", "msgpack"] = "json"
    """How the event is encoded, if it is bytes."""


class StartCall(msgspec.Struct, frozen=True, tag=True):
    """Start a run of a workflow; the answer is its handle."""

    workflow: str
    params: dict[str, Any]
    number: int
    """The number of the call in its task, from 1: a repeated attempt makes the same calls again."""

    def key_for(self, attempt: AttemptKey) -> str:
        """Return the key that the call has in every attempt of its task, so that it starts one run."""
        return f"task:{attempt.run}/{attempt.task_key.label}:{self.number}"


class SecretCall(msgspec.Struct, frozen=True, tag=True):
    """Read a secret of the task's tenant; the answer is its value."""

    name: str


class VariableCall(msgspec.Struct, frozen=True, tag=True):
    """Read a variable of the task's tenant; the answer is its value."""

    name: str


NodeCall = PushCall | StartCall | SecretCall | VariableCall
NO_NODE = "ctx.push, ctx.start, ctx.secret and ctx.variable need a node, and this task runs without one"
CallNode = Callable[[NodeCall], Any]
"""Makes a call. Returns the answer, or an awaitable of it to code that runs on an event loop."""


class StartedRun(msgspec.Struct, frozen=True):
    """A run that a task in another process has started: there only its id is known."""

    id: str

    def __getattr__(self, name: str) -> NoReturn:
        message = (
            f"in a task outside its node a started run has only an id, no {name!r}: wait for it with an in_process task"
        )
        raise AttributeError(message)
