"""From an order to a call of the author's function, and from what comes of it to an ending.

Every executor does this in the same way, wherever it runs the code. Values are decoded afresh for each attempt, so no
two tasks ever share one that can be changed.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from os import getpid
from typing import Any, NoReturn, get_args, get_origin

import msgspec

from tidemill.annotations.admission import MisfitError
from tidemill.annotations.codec import ENCODER, Codec, UnstorableError, codec_of
from tidemill.annotations.signatures import Parameter
from tidemill.annotations.variants import Variant, label, variants
from tidemill.engine.workflows.executors.failures import MESSAGE_LIMIT, shorten, task_error
from tidemill.engine.workflows.executors.interface import Element, Input, LogRecord, Many, One, Order, Piece
from tidemill.engine.workflows.executors.task_log import TaskLog
from tidemill.kernel.author_errors import describe, is_cut_off
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.workflows.context import Deferral, Push, TaskContext
from tidemill.workflows.definition import Fail, Skip
from tidemill.workflows.endings import Deferred, Ending, Failed, Skipped, Succeeded
from tidemill.workflows.records import TaskError
from tidemill.workflows.wiring import WiredTask
from tidemill.workflows.workflow import Workflow

NOTHING = ENCODER.encode(None)
_SAFE = (bool, int, float, str, bytes)
"""Annotations whose values come back as they are, if they are of that very class: that need not be tried."""


class Surroundings(msgspec.Struct, frozen=True):
    """What code gets from where it runs."""

    clock: Clock
    logged: Callable[[LogRecord], None]
    """Takes what the code logs; may be called on any thread."""
    process: int
    """The process in which the code is called. A copy of that, which the code forked, has no end to tell of."""
    echoes: bool = True
    """Whether what is logged also goes to Python's logging."""
    push: Push | None = None


class Runner:
    """The tasks of one version of a workflow, each made ready once."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._calls: dict[str, Call] = {}
        self._values: dict[str, _Values] = {}

    def call(self, task: str) -> "Call":
        """Return a task, ready to be called; OperationError if there is none of that name."""
        found = self._calls.get(task)
        if found is None:
            wired = self._workflow.wired().tasks.get(task)
            if wired is None:
                raise OperationError(f"workflow '{self._workflow.name}' has no task '{task}'")
            found = self._calls[task] = Call(wired, self._workflow, self._values_of)
        return found

    def value(self, task: str, stored: bytes) -> Any:
        """Return what a task returned, from how it is stored."""
        return self._values_of(task).take(One(stored))

    def lighten(self, order: Order) -> Order:
        """Return an order without what its task does not need: of a list that it is mapped over, only its element."""
        inputs = {name: self._values_of(name).cut(given) for name, given in order.inputs.items()}
        return msgspec.structs.replace(order, inputs=inputs)

    def _values_of(self, task: str) -> "_Values":
        if task not in self._values:
            self._values[task] = _Values(task, self._workflow.wired().tasks[task].signature.returns)
        return self._values[task]


class Call:
    """One task: its function, what goes in, and how what comes out is stored."""

    def __init__(self, wired: WiredTask, workflow: Workflow, values_of: "Callable[[str], _Values]") -> None:
        self.name = wired.task.name
        self.is_async = wired.task.function.is_async
        self._function = wired.task.function.call
        self._wired = wired
        self._result = values_of(self.name)
        sources = [edge.parameter for edge in wired.spec.edges if edge.parameter is not None]
        self._inputs = {name: values_of(name) for name in sources}
        self._params: Any = msgspec.msgpack.Decoder(workflow.params or dict[str, Any])

    # -- running

    def run(self, order: Order, around: Surroundings) -> Ending:
        """Run the attempt here and now. Whatever the author's code raises is its own failure."""
        try:
            values, named = self._arguments(order, around, order.deferrals)
            value = self._function(*values, **named)
        except BaseException as error:  # author code: it may raise anything, and nothing of it is ours
            if getpid() != around.process:
                _end_copy(error)
            return self.raised(error, around)
        if getpid() != around.process:
            _end_copy()
        return self._returned(value)

    async def run_async(self, order: Order, around: Surroundings) -> Ending:
        """Run the attempt on this loop; only the end that was asked of the current task is raised."""
        deferrals = order.deferrals
        while True:
            try:
                values, named = self._arguments(order, around, deferrals)
                value = await self._function(*values, **named)
            except BaseException as error:  # author code: as above
                if getpid() != around.process:
                    _end_copy(error)
                if is_cut_off(error):
                    raise
                answer = await self._answer(error, around)
                if answer is not None:
                    return answer
                deferrals += 1  # it is over already: as if woken, from the top
            else:
                if getpid() != around.process:
                    _end_copy()
                return self._returned(value)

    async def _answer(self, error: BaseException, around: Surroundings) -> Ending | None:
        """Return how an attempt ends that raised, or None if it deferred itself, and is to go on."""
        if not isinstance(error, Deferral) or error.asked is None:
            return self.raised(error, around)
        return await self._ask(error.asked, error, around)

    async def _ask(self, asked: Awaitable[bool], deferral: Deferral, around: Surroundings) -> Ending | None:
        """Return how the attempt ends, or None if it is to go on."""
        try:
            return None if await asked else self.raised(deferral, around)
        except BaseException as error:  # author code: as above
            if is_cut_off(error):
                raise
            return self.raised(error, around)

    # -- what goes in

    def _arguments(
        self, order: Order, around: Surroundings, deferrals: int
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        given: dict[str, Any] = {}
        for name, source in self._inputs.items():
            if name in order.inputs:
                given[name] = source.take(order.inputs[name])
        params = self._params.decode(order.params) if order.params else {}
        positional, named = [], {}
        for one in self._wired.signature.parameters:
            if one.name in self._wired.takes_params:
                value = params
            elif one.name in self._wired.takes_context:
                value = self._context(order, around, deferrals, params, given)
            else:
                value = given[one.name] if one.name in given else _fallback(one)
            if one.keyword_only:
                named[one.name] = value
            else:
                positional.append(value)
        return tuple(positional), named

    def _context(
        self, order: Order, around: Surroundings, deferrals: int, params: Any, given: Mapping[str, Any]
    ) -> TaskContext:
        return TaskContext(
            order.key,
            number=order.number,
            slot=order.slot,
            deferrals=deferrals,
            log=TaskLog(order.key, around.clock, around.logged, echoes=around.echoes),
            merge=lambda: _merged(params, given),
            push=around.push,
            settle=None if self.is_async else _settle,
        )

    # -- what comes out

    def _returned(self, value: Any) -> Ending:
        try:
            return self._result.give(value)
        except (UnstorableError, MisfitError) as error:
            return Failed(error=TaskError(type(error).__name__, shorten(str(error), MESSAGE_LIMIT)), may_retry=False)
        except BaseException as error:  # author code: encoding a value may call into it
            return undone(error)

    def raised(self, error: BaseException, around: Surroundings) -> Ending:
        """Return how an attempt ends that raised: always, or it would hang, and hold its place."""
        try:
            return self._ending_of(error, around)
        except BaseException as mishap:  # author code: an error, its text and its class may do anything when looked at
            return undone(mishap)

    def _ending_of(self, error: BaseException, around: Surroundings) -> Ending:
        if isinstance(error, Skip):
            return Skipped(shorten(_reason(error), MESSAGE_LIMIT))
        if isinstance(error, Deferral):
            after, poll = error.after or 0.0, error.poll
            wake_at = error.until or around.clock.now() + timedelta(seconds=after)
            every = after if poll is not None else 0.0
            return Deferred(wake_at=wake_at, after=error.after, is_over=poll is None, poll=poll, every=every)
        return Failed(error=task_error(error), may_retry=self._may_retry(error))

    def _may_retry(self, error: BaseException) -> bool:
        if isinstance(error, Fail | MisfitError):
            return False
        retry = self._wired.task.retry
        # Who names no class of errors wants every failure tried again, also a SystemExit.
        return retry is None or Exception in retry.on or isinstance(error, retry.on)


def undone(error: BaseException) -> Failed:
    """Return the failure of an attempt whose end could not be told for an error, whatever that is made of."""
    try:
        return Failed(error=task_error(error), may_retry=False)
    except BaseException:  # author code: as above; nothing of it is looked at any more
        return Failed(error=TaskError("Error", "it ended with an error that cannot be shown"), may_retry=False)


def _end_copy(error: BaseException | None = None) -> NoReturn:
    """End a process that author code forked, as Python would at its end, but without a word.

    It has a copy of all that is ours: loops, threads' work, what is still to be written. None of it is its business.
    """
    code = error.code if isinstance(error, SystemExit) else error
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def _fallback(parameter: Parameter) -> Any:
    return parameter.default if parameter.has_default else None


def _merged(params: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `ctx["key"]` looks in."""
    merged = dict(params) if isinstance(params, dict) else msgspec.structs.asdict(params)
    for value in given.values():
        if isinstance(value, dict):
            merged |= value
    return merged


def _reason(error: Skip) -> str:
    return describe(error).partition(": ")[2]


def _settle(answer: Awaitable[bool]) -> bool:
    """Wait for an answer on a thread, or in a process, that has no loop."""

    async def wait() -> bool:
        return await answer

    return asyncio.run(wait())


class _Values:
    """The values of one task: how they are stored, and which way they go."""

    def __init__(self, task: str, returns: Any) -> None:
        self._task = task
        self._returns = returns
        self._variants = variants(returns)
        self._labels = {one.cls: one.label for one in reversed(self._variants or ())}
        self._safe: type | None = next((one for one in _SAFE if returns is one), None)
        self._split: tuple[bytes, list[bytes]] = b"", []
        try:
            self._codec: Codec | None = codec_of(returns)
        except UnstorableError as error:
            self._codec, self._why = None, str(error)
        self._element = self._element_codec()

    def _element_codec(self) -> Codec | None:
        """Return how one element of a list is stored, if lists of them are stored one after the other."""
        args = get_args(self._returns)
        is_list = get_origin(self._returns) is list or (get_origin(self._returns) is tuple and args[1:] == (...,))
        return codec_of(args[0]) if is_list and args and self._codec is not None else None

    def give(self, value: Any) -> Succeeded:
        """Return a value as it is stored, or raise what is wrong with it."""
        if inspect.iscoroutine(value):
            value.close()  # it would complain that nobody awaited it
            raise MisfitError(
                f"task '{self._task}' returned a coroutine, which nobody has awaited: declare it `async def`, and "
                "return `await ...`"
            )
        variant = self._variant_of(value)
        if value is None:
            return Succeeded(NOTHING, variant)
        if self._codec is None:
            raise UnstorableError(f"task '{self._task}' returned a value that cannot be stored: {self._why}")
        try:
            encoded = self._codec.encode(value)
            if value.__class__ is not self._safe:
                self._codec.decode(encoded)  # what cannot be read again is this task's fault, not that of the next
        except UnstorableError as error:
            raise UnstorableError(f"task '{self._task}' returned a value that cannot be stored: {error}") from error
        except MisfitError as error:
            raise self._misfit(value, str(error)) from error
        return Succeeded(encoded, variant, len(value) if isinstance(value, list | tuple) else None)

    def _variant_of(self, value: Any) -> str | None:
        if self._variants is None:
            return None
        if (found := self._labels.get(value.__class__)) is not None:
            return found
        for one in self._variants:
            if _is_one(value, one):
                return one.label
        raise self._misfit(value)

    def _misfit(self, value: Any, why: str = "") -> MisfitError:
        found = "None" if value is None else f"a value of class {type(value).__name__}"
        message = f"task '{self._task}' returned {found}, but declares {label(self._returns)}"
        return MisfitError(f"{message}: {why}" if why else message)

    def take(self, given: Input) -> Any:
        """Return a value for another task, its own."""
        if isinstance(given, Many):
            return [self._decode(one) for one in given.values]
        if isinstance(given, Element):
            return self._take_element(given)
        if isinstance(given, Piece) and self._element is not None:
            return self._element.decode(given.value)
        return self._decode(given.value)

    def _take_element(self, given: Element) -> Any:
        piece = self.cut(given)
        return self.take(piece) if isinstance(piece, Piece) else self._decode(given.value)[given.number]

    def cut(self, given: Input) -> Input:
        """Return an element cut out of its list, if elements are stored one after the other; else what was given."""
        if self._element is None or not isinstance(given, Element):
            return given
        if self._split[0] is not given.value:  # one list is mapped over many times: taken apart once
            self._split = given.value, [bytes(one) for one in msgspec.msgpack.decode(given.value, type=_RAWS)]
        return Piece(self._split[1][given.number])

    def _decode(self, data: bytes) -> Any:
        if data == NOTHING or self._codec is None:
            return None
        try:
            return self._codec.decode(data)
        except MisfitError as error:
            message = f"the value of task '{self._task}' cannot be read as {label(self._returns)}: {error}"
            raise MisfitError(message) from error


_RAWS = list[msgspec.Raw]


def _is_one(value: Any, variant: Variant) -> bool:
    return isinstance(value, variant.cls) or (variant.cls is float and isinstance(value, int))
