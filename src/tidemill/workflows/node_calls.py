"""Calls of a running task to its node, such as `ctx.push`, as values that can be sent from another process.

In an `async def` task a call returns a `PendingCall`. One that the task never awaits fails the task.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from inspect import isawaitable
from types import FrameType
from typing import Any, Literal, NoReturn

import msgspec

from tidemill.workflows.records import AttemptKey
from tidemill.workflows.step_records import StepName, StepRecord


class PushCall(msgspec.Struct, frozen=True, tag=True):
    """Push an event into an accumulator; the answer is a Receipt."""

    accumulator: str
    event: Any
    format: Literal["json", "msgpack"] = "json"
    """How the event is encoded, if it is bytes."""

    def __str__(self) -> str:
        return f"ctx.push({self.accumulator!r}, ...)"


class StartCall(msgspec.Struct, frozen=True, tag=True):
    """Start a run of a workflow; the answer is its handle."""

    workflow: str
    params: dict[str, Any]
    number: int
    """The number of the call in its task, from 1: a repeated attempt makes the same calls again."""

    def key_for(self, attempt: AttemptKey) -> str:
        """Return the key that the call has in every attempt of its task, so that it starts one run."""
        return f"task:{attempt.run}/{attempt.task_key.label}:{self.number}"

    def __str__(self) -> str:
        return f"ctx.start({self.workflow!r}, ...)" if self.params else f"ctx.start({self.workflow!r})"


class SecretCall(msgspec.Struct, frozen=True, tag=True):
    """Read a secret of the task's tenant; the answer is its value."""

    name: str

    def __str__(self) -> str:
        return f"ctx.secret({self.name!r})"


class VariableCall(msgspec.Struct, frozen=True, tag=True):
    """Read a variable of the task's tenant; the answer is its value."""

    name: str

    def __str__(self) -> str:
        return f"ctx.variable({self.name!r})"


class StepsCall(msgspec.Struct, frozen=True, tag=True):
    """Read what the task has recorded; the answer is a list of records."""


class StepValueCall(msgspec.Struct, frozen=True, tag=True):
    """Read a value that is too large for a list; the answer is its stored form."""

    name: StepName


class RecordCall(msgspec.Struct, frozen=True, tag=True):
    """Commit a record; the answer is None, or the stored form of the value that the step has already."""

    record: StepRecord
    seconds: float
    """How long the step took."""


OwnCall = StepsCall | StepValueCall | RecordCall
"""Calls about what the task itself has recorded."""
NodeCall = PushCall | StartCall | SecretCall | VariableCall | OwnCall
NO_NODE = "ctx.push, ctx.start, ctx.step, ctx.secret and ctx.variable need a node, and this task runs without one"
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


class NotAwaitedError(TypeError):
    """A task has not awaited a call of its context."""


class PendingCall(Coroutine[Any, Any, Any]):
    """A call of an `async def` task until it is awaited. To use it as if it were the answer raises."""

    __slots__ = ("_answer", "_call", "_code", "_line", "_others", "_steps")

    def __init__(
        self, call: object, answer: Awaitable[Any], frame: FrameType, others: "dict[PendingCall, None]"
    ) -> None:
        """Take what messages show of the call, its answer, and the frame of the author."""
        self._call = call
        self._answer = answer
        self._code, self._line = frame.f_code, frame.f_lineno
        self._steps: Generator[Any, Any, Any] | None = None
        self._others = others
        others[self] = None

    def __await__(self) -> Generator[Any, Any, Any]:
        self._others.pop(self, None)
        return self._answer.__await__()

    def send(self, value: Any) -> Any:
        """Begin or continue: a loop runs it as a task."""
        return self._started().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where it waits."""
        return self._started().throw(*error)

    def close(self) -> None:
        """End it; one that has not started never will."""
        self._others.pop(self, None)
        if (close := getattr(self._answer, "close", None)) is not None:
            close()

    def _started(self) -> Generator[Any, Any, Any]:
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps

    def error(self) -> NotAwaitedError:
        """Return the error of a task that has not awaited it."""
        return NotAwaitedError(
            f"{self._code.co_filename}:{self._line}: {self._call} was not awaited: write `await {self._call}`"
        )

    def __repr__(self) -> str:
        return f"<{self._call}, not awaited>"

    def __str__(self) -> str:
        raise self.error()

    def __format__(self, spec: str) -> str:
        raise self.error()

    def __bool__(self) -> bool:
        raise self.error()

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(str(self.error()))


def pending(call: object, answer: Any, frame: FrameType, others: dict[PendingCall, None]) -> Any:
    """Return the answer of a call, which code on an event loop has to await; `frame` is that of the author."""
    return PendingCall(call, answer, frame, others) if isawaitable(answer) else answer
