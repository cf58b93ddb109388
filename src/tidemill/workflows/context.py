"""The context of a task: its attempt, its values, deferral, and calls to its node."""

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any

from tidemill.annotations.context import Context
from tidemill.kernel.durations import Duration, parse_duration, parse_positive_duration
from tidemill.kernel.errors import OperationError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.attempt_results import PollFunction
from tidemill.workflows.node_calls import (
    NO_NODE,
    CallNode,
    NodeCall,
    PendingCall,
    PushCall,
    SecretCall,
    StartCall,
    VariableCall,
    pending,
)
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.steps import StepArguments, StepNames, TaskSteps
from tidemill.workflows.task_waits import TaskWaits
from tidemill.workflows.waits import Answer, WaitRequest

DEFAULT_POLL_INTERVAL = 30.0
"""Seconds between two polls, unless the author sets `every`."""


class Deferral(BaseException):
    """Ends an execution that deferred itself. Not an Exception, so that an author's `except Exception` lets it pass."""

    def __init__(
        self,
        *,
        delay: float | None = None,
        until: datetime | None = None,
        poll: PollFunction | None = None,
        pending_answer: Awaitable[bool] | None = None,
        waits: tuple[WaitRequest, ...] = (),
        ended_waits: int = 0,
    ) -> None:
        super().__init__("deferred")
        self.waits = waits
        """What the task asks: it is woken when one of these ends."""
        self.ended_waits = ended_waits
        """The number of ended waits that the task knows."""
        self.delay = delay
        """Seconds until it is woken, or polled next."""
        self.until = until
        self.poll = poll
        self.pending_answer = pending_answer
        """A result of `poll` that the runner of the task has to await, because `defer` cannot."""


class TaskContext(Context):
    """The context that a running task sees."""

    __slots__ = (
        "_call_node",
        "_deferrals_to_skip",
        "_key",
        "_merge",
        "_merged",
        "_pending_calls",
        "_starts",
        "_step_names",
        "_steps",
        "_wait_for",
        "_waits",
        "attempt",
        "log",
        "slot",
    )

    def __init__(
        self,
        key: AttemptKey,
        *,
        number: int,
        slot: datetime | None,
        deferrals: int,
        log: "logging.LoggerAdapter[logging.Logger]",
        merge: Callable[[], Mapping[str, Any]],
        call_node: CallNode | None = None,
        pending_calls: dict[PendingCall, None] | None = None,
        wait_for: Callable[[Awaitable[bool]], bool] | None = None,
        steps: TaskSteps | None = None,
    ) -> None:
        """Take what the runner of the task knows; `wait_for` is given where the task runs without an event loop."""
        self._key = key
        self._deferrals_to_skip = deferrals
        self._merge = merge
        self._merged: Mapping[str, Any] | None = None
        self._call_node = call_node
        self._pending_calls = {} if pending_calls is None else pending_calls
        self._starts = 0  # calls of `start` so far
        self._wait_for = wait_for
        self._steps = steps
        self._step_names = StepNames()
        self._waits = None if steps is None else TaskWaits(steps, _defer_until_answered)
        self.attempt = number  # type: ignore[misc]  # our slots hide the properties of the base class
        self.slot = slot  # type: ignore[misc]
        self.log = log

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._key.run

    @property
    def token(self) -> str:
        """A unique name of this attempt, "run/task[element]#attempt"; the number only grows."""
        return str(self._key)

    def __getitem__(self, key: str) -> Any:
        """Return a value from the run's params, or from the dicts that upstream tasks returned; the last one wins."""
        try:
            return self._values[key]
        except KeyError:
            known = [name for name in self._values if isinstance(name, str)]
            hint = did_you_mean(key, known) if isinstance(key, str) else ""
            message = f"{key!r} is neither a param of the run nor a key that a task before it returned{hint}"
            raise KeyError(message) from None

    def __contains__(self, key: object) -> bool:
        """Return whether `ctx[key]` has a value."""
        return key in self._values

    def get(self, key: str, default: Any = None) -> Any:
        """Return `ctx[key]`, or the default if there is no such value."""
        return self._values.get(key, default)

    @property
    def _values(self) -> Mapping[str, Any]:
        """The values behind `ctx[key]`; merged on first use."""
        if self._merged is None:
            self._merged = self._merge()
        return self._merged

    def defer(
        self,
        *,
        for_: Duration | None = None,
        until: datetime | None = None,
        poll: PollFunction | None = None,
        every: Duration | None = None,
    ) -> None:
        """End this execution, to be called again later; return at once if this deferral is already over."""
        deferral = _read_deferral(for_, until, poll, every)
        if self._deferrals_to_skip > 0:
            self._deferrals_to_skip -= 1
            return
        if poll is not None and self._is_poll_done(poll, deferral):
            return
        raise deferral

    def _is_poll_done(self, poll: PollFunction, deferral: Deferral) -> bool:
        answer = poll()
        if not isawaitable(answer):
            return bool(answer)
        if self._wait_for is not None:
            return bool(self._wait_for(answer))
        deferral.pending_answer = answer  # an async poll cannot be awaited here: the runner of the task awaits it
        return False

    def push(self, accumulator: Any, event: Any) -> Any:
        """Push an event to an accumulator, given as declared or by its name; return the Receipt, or an awaitable."""
        return self._call(PushCall(_name_of(accumulator), event))

    def start(self, workflow: Any, given: Mapping[str, Any] | None = None, /, **params: Any) -> Any:
        """Start a run of a workflow, given as declared or by its name; return its handle, or an awaitable of it."""
        self._starts += 1
        return self._call(StartCall(_name_of(workflow), {**(given or {}), **params}, self._starts))

    def step(self, function: Callable[..., Any], /, *args: Any, key: Any = None, **kwargs: Any) -> Any:
        """Call a function, unless the task has done it before, and return its stored value, or an awaitable of it."""
        name = self._step_names.name(function, key)
        if self._steps is None:
            raise OperationError(NO_NODE)
        answer = self._steps.perform(self._steps.run(name, function, StepArguments(args, kwargs)))
        return pending(f"ctx.step({name.name}, ...)", answer, sys._getframe(1), self._pending_calls)

    def wait_for(self, name: str, type: Any, **options: Any) -> Any:
        """Ask, and return the answer, or an awaitable of it; the task is deferred until there is one."""
        if self._steps is None or self._waits is None:
            raise OperationError(NO_NODE)
        work = self._waits.register(name, type, **options)
        shown = f"ctx.wait_for({name!r}, ...)"
        return pending(shown, self._steps.perform(work), sys._getframe(1), self._pending_calls)

    def ask(self, name: str, type: Any, say: Callable[[], Any], **options: Any) -> Any:
        """Ask what a function says, as a declared wait does; return the answer, or an awaitable of it."""
        if self._steps is None or self._waits is None:
            raise OperationError(NO_NODE)
        work = self._waits.ask(name, type, say, **options)
        return pending(f"ctx.wait_for({name!r}, ...)", self._steps.perform(work), sys._getframe(1), self._pending_calls)

    @property
    def answers(self) -> list[Answer]:
        """The answers that this task has had, in order."""
        return [] if self._waits is None else list(self._waits.answers)

    def secret(self, name: str) -> Any:
        """Return the value of a secret, or an awaitable of it."""
        return self._call(SecretCall(_name_of(name)))

    def variable(self, name: str) -> Any:
        """Return the value of a variable, or an awaitable of it."""
        return self._call(VariableCall(_name_of(name)))

    def _call(self, call: NodeCall) -> Any:
        if self._call_node is None:
            raise OperationError(NO_NODE)
        return pending(call, self._call_node(call), sys._getframe(2), self._pending_calls)


def _defer_until_answered(waits: TaskWaits) -> Deferral:
    return Deferral(waits=waits.pending(), ended_waits=waits.ended_count)


def _name_of(definition: Any) -> str:
    """Return the name of an accumulator or a workflow."""
    name = definition if isinstance(definition, str) else getattr(definition, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"it takes a definition or its name, not {definition!r}")
    return name


def _read_deferral(
    for_: Duration | None, until: datetime | None, poll: PollFunction | None, every: Duration | None
) -> Deferral:
    """Validate the arguments of `defer` and return the deferral."""
    if sum(value is not None for value in (for_, until, poll)) != 1:
        raise TypeError("ctx.defer takes exactly one of for_=, until= and poll=")
    if every is not None and poll is None:
        raise TypeError("every= sets how often poll= is called, and there is no poll=")
    if for_ is not None:
        return Deferral(delay=parse_duration(for_))
    if poll is not None:
        if not callable(poll):
            raise TypeError(f"poll= takes a function without parameters, not {poll!r}")
        return Deferral(delay=DEFAULT_POLL_INTERVAL if every is None else parse_positive_duration(every), poll=poll)
    if not isinstance(until, datetime) or until.utcoffset() is None:
        raise TypeError(f"until= takes an aware datetime, such as datetime(2026, 1, 1, tzinfo=UTC), not {until!r}")
    try:
        return Deferral(until=until.astimezone(UTC))
    except OverflowError:
        raise ValueError(f"until= takes a moment in the years 1 to 9999 of UTC, not {until}") from None
