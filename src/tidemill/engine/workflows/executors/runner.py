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

from tidemill.annotations.codec import ENCODER, Codec, UnstorableError, build_codec
from tidemill.annotations.signatures import Parameter
from tidemill.annotations.validation import TypeMismatchError
from tidemill.annotations.variants import Variant, expand_variants, label
from tidemill.engine.workflows.executors.attempt_output import MESSAGE_LIMIT, TaskLog, build_task_error, shorten
from tidemill.engine.workflows.executors.interface import (
    AttemptRequest,
    EncodedItem,
    Input,
    ItemOfList,
    ListInput,
    LogRecord,
    SingleInput,
)
from tidemill.kernel.author_errors import describe, is_cancelled_here
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.workflows.attempt_results import AttemptResult, Deferred, Failed, Skipped, Succeeded
from tidemill.workflows.context import Deferral, PushFunction, TaskContext
from tidemill.workflows.definition import Fail, Skip
from tidemill.workflows.records import TaskError
from tidemill.workflows.wiring import WiredTask
from tidemill.workflows.workflow import Workflow

ENCODED_NONE = ENCODER.encode(None)
_ROUND_TRIP_TYPES = (bool, int, float, str, bytes)
"""Annotations whose values come back as they are, if they are of that very class: that need not be tried."""


class CallEnvironment(msgspec.Struct, frozen=True):
    """What code gets from where it runs."""

    clock: Clock
    on_log: Callable[[LogRecord], None]
    """Takes what the code logs; may be called on any thread."""
    pid: int
    """The process in which the code is called. A copy of that, which the code forked, has no end to tell of."""
    echoes: bool = True
    """Whether what is logged also goes to Python's logging."""
    push: PushFunction | None = None


class TaskRunner:
    """The tasks of one version of a workflow, each made ready once."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._calls: dict[str, TaskCall] = {}
        self._codecs: dict[str, _ValueCodec] = {}

    def get_call(self, task: str) -> "TaskCall":
        """Return a task, ready to be called; OperationError if there is none of that name."""
        found = self._calls.get(task)
        if found is None:
            wired = self._workflow.wired().tasks.get(task)
            if wired is None:
                raise OperationError(f"workflow '{self._workflow.name}' has no task '{task}'")
            found = self._calls[task] = TaskCall(wired, self._workflow, self._codec_for)
        return found

    def decode_value(self, task: str, stored: bytes) -> Any:
        """Return what a task returned, from how it is stored."""
        return self._codec_for(task).decode_input(SingleInput(stored))

    def trim_inputs(self, request: AttemptRequest) -> AttemptRequest:
        """Return an order without what its task does not need: of a list that it is mapped over, only its element."""
        inputs = {name: self._codec_for(name).extract_item(given) for name, given in request.inputs.items()}
        return msgspec.structs.replace(request, inputs=inputs)

    def _codec_for(self, task: str) -> "_ValueCodec":
        if task not in self._codecs:
            self._codecs[task] = _ValueCodec(task, self._workflow.wired().tasks[task].signature.returns)
        return self._codecs[task]


class TaskCall:
    """One task: its function, what goes in, and how what comes out is stored."""

    def __init__(self, wired: WiredTask, workflow: Workflow, codec_for: "Callable[[str], _ValueCodec]") -> None:
        self.name = wired.task.name
        self.is_async = wired.task.function.is_async
        self._function = wired.task.function.call
        self._wired = wired
        self._output_codec = codec_for(self.name)
        sources = [edge.parameter for edge in wired.spec.edges if edge.parameter is not None]
        self._input_codecs = {name: codec_for(name) for name in sources}
        self._params_decoder: Any = msgspec.msgpack.Decoder(workflow.params or dict[str, Any])

    # -- running

    def run(self, request: AttemptRequest, environment: CallEnvironment) -> AttemptResult:
        """Run the attempt here and now. Whatever the author's code raises is its own failure."""
        try:
            values, named = self._build_arguments(request, environment, request.deferrals)
            value = self._function(*values, **named)
        except BaseException as error:  # author code: it may raise anything, and nothing of it is ours
            if getpid() != environment.pid:
                _exit_forked_copy(error)
            return self.ending_of_error(error, environment)
        if getpid() != environment.pid:
            _exit_forked_copy()
        return self._encode_result(value)

    async def run_async(self, request: AttemptRequest, environment: CallEnvironment) -> AttemptResult:
        """Run the attempt on this loop; only the end that was asked of the current task is raised."""
        deferrals = request.deferrals
        while True:
            try:
                values, named = self._build_arguments(request, environment, deferrals)
                value = await self._function(*values, **named)
            except BaseException as error:  # author code: as above
                if getpid() != environment.pid:
                    _exit_forked_copy(error)
                if is_cancelled_here(error):
                    raise
                answer = await self._handle_error(error, environment)
                if answer is not None:
                    return answer
                deferrals += 1  # it is over already: as if woken, from the top
            else:
                if getpid() != environment.pid:
                    _exit_forked_copy()
                return self._encode_result(value)

    async def _handle_error(self, error: BaseException, environment: CallEnvironment) -> AttemptResult | None:
        """Return how an attempt ends that raised, or None if it deferred itself, and is to go on."""
        if not isinstance(error, Deferral) or error.pending_answer is None:
            return self.ending_of_error(error, environment)
        return await self._await_poll(error.pending_answer, error, environment)

    async def _await_poll(
        self, polled: Awaitable[bool], deferral: Deferral, environment: CallEnvironment
    ) -> AttemptResult | None:
        """Return how the attempt ends, or None if it is to go on."""
        try:
            return None if await polled else self.ending_of_error(deferral, environment)
        except BaseException as error:  # author code: as above
            if is_cancelled_here(error):
                raise
            return self.ending_of_error(error, environment)

    # -- what goes in

    def _build_arguments(
        self, request: AttemptRequest, environment: CallEnvironment, deferrals: int
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        given: dict[str, Any] = {}
        for name, source in self._input_codecs.items():
            if name in request.inputs:
                given[name] = source.decode_input(request.inputs[name])
        params = self._params_decoder.decode(request.params) if request.params else {}
        positional, named = [], {}
        for one in self._wired.signature.parameters:
            if one.name in self._wired.takes_params:
                value = params
            elif one.name in self._wired.takes_context:
                value = self._build_context(request, environment, deferrals, params, given)
            else:
                value = given[one.name] if one.name in given else _default_value(one)
            if one.keyword_only:
                named[one.name] = value
            else:
                positional.append(value)
        return tuple(positional), named

    def _build_context(
        self,
        request: AttemptRequest,
        environment: CallEnvironment,
        deferrals: int,
        params: Any,
        inputs: Mapping[str, Any],
    ) -> TaskContext:
        return TaskContext(
            request.key,
            number=request.number,
            slot=request.slot,
            deferrals=deferrals,
            log=TaskLog(request.key, environment.clock, environment.on_log, echoes=environment.echoes),
            merge=lambda: _merge_context(params, inputs),
            push=environment.push,
            wait_for=None if self.is_async else _run_awaitable,
        )

    # -- what comes out

    def _encode_result(self, value: Any) -> AttemptResult:
        try:
            return self._output_codec.encode_result(value)
        except (UnstorableError, TypeMismatchError) as error:
            return Failed(error=TaskError(type(error).__name__, shorten(str(error), MESSAGE_LIMIT)), may_retry=False)
        except BaseException as error:  # author code: encoding a value may call into it
            return build_fallback_failure(error)

    def ending_of_error(self, error: BaseException, environment: CallEnvironment) -> AttemptResult:
        """Return how an attempt ends that raised: always, or it would hang, and hold its place."""
        try:
            return self._classify_error(error, environment)
        except BaseException as mishap:  # author code: an error, its text and its class may do anything when looked at
            return build_fallback_failure(mishap)

    def _classify_error(self, error: BaseException, environment: CallEnvironment) -> AttemptResult:
        if isinstance(error, Skip):
            return Skipped(shorten(_skip_reason(error), MESSAGE_LIMIT))
        if isinstance(error, Deferral):
            after, poll = error.delay or 0.0, error.poll
            wake_at = error.until or environment.clock.now() + timedelta(seconds=after)
            every = after if poll is not None else 0.0
            return Deferred(wake_at=wake_at, delay=error.delay, ends_on_wake=poll is None, poll=poll, every=every)
        return Failed(error=build_task_error(error), may_retry=self._may_retry(error))

    def _may_retry(self, error: BaseException) -> bool:
        if isinstance(error, Fail | TypeMismatchError):
            return False
        retry = self._wired.task.retry
        # Who names no class of errors wants every failure tried again, also a SystemExit.
        return retry is None or Exception in retry.on or isinstance(error, retry.on)


def build_fallback_failure(error: BaseException) -> Failed:
    """Return the failure of an attempt whose end could not be told for an error, whatever that is made of."""
    try:
        return Failed(error=build_task_error(error), may_retry=False)
    except BaseException:  # author code: as above; nothing of it is looked at any more
        return Failed(error=TaskError("Error", "it ended with an error that cannot be shown"), may_retry=False)


def _exit_forked_copy(error: BaseException | None = None) -> NoReturn:
    """End a process that author code forked, as Python would at its end, but without a word.

    It has a copy of all that is ours: loops, threads' work, what is still to be written. None of it is its business.
    """
    code = error.code if isinstance(error, SystemExit) else error
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def _default_value(parameter: Parameter) -> Any:
    return parameter.default if parameter.has_default else None


def _merge_context(params: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `ctx["key"]` looks in."""
    merged = dict(params) if isinstance(params, dict) else msgspec.structs.asdict(params)
    for value in inputs.values():
        if isinstance(value, dict):
            merged |= value
    return merged


def _skip_reason(error: Skip) -> str:
    return describe(error).partition(": ")[2]


def _run_awaitable(awaitable: Awaitable[bool]) -> bool:
    """Wait for an answer on a thread, or in a process, that has no loop."""

    async def wait() -> bool:
        return await awaitable

    return asyncio.run(wait())


class _ValueCodec:
    """The values of one task: how they are stored, and which way they go."""

    def __init__(self, task: str, returns: Any) -> None:
        self._task = task
        self._returns = returns
        self._variants = expand_variants(returns)
        self._labels = {one.cls: one.label for one in reversed(self._variants or ())}
        self._round_trip_type: type | None = next((one for one in _ROUND_TRIP_TYPES if returns is one), None)
        self._split_list: tuple[bytes, list[bytes]] = b"", []
        try:
            self._codec: Codec | None = build_codec(returns)
        except UnstorableError as error:
            self._codec, self._codec_error = None, str(error)
        self._item_codec = self._build_item_codec()

    def _build_item_codec(self) -> Codec | None:
        """Return how one element of a list is stored, if lists of them are stored one after the other."""
        args = get_args(self._returns)
        is_list = get_origin(self._returns) is list or (get_origin(self._returns) is tuple and args[1:] == (...,))
        return build_codec(args[0]) if is_list and args and self._codec is not None else None

    def encode_result(self, value: Any) -> Succeeded:
        """Return a value as it is stored, or raise what is wrong with it."""
        if inspect.iscoroutine(value):
            value.close()  # it would complain that nobody awaited it
            raise TypeMismatchError(
                f"task '{self._task}' returned a coroutine, which nobody has awaited: declare it `async def`, and "
                "return `await ...`"
            )
        variant = self._variant_of(value)
        if value is None:
            return Succeeded(ENCODED_NONE, variant)
        if self._codec is None:
            raise UnstorableError(f"task '{self._task}' returned a value that cannot be stored: {self._codec_error}")
        try:
            encoded = self._codec.encode(value)
            if value.__class__ is not self._round_trip_type:
                self._codec.decode(encoded)  # what cannot be read again is this task's fault, not that of the next
        except UnstorableError as error:
            raise UnstorableError(f"task '{self._task}' returned a value that cannot be stored: {error}") from error
        except TypeMismatchError as error:
            raise self._mismatch_error(value, str(error)) from error
        return Succeeded(encoded, variant, len(value) if isinstance(value, list | tuple) else None)

    def _variant_of(self, value: Any) -> str | None:
        if self._variants is None:
            return None
        if (found := self._labels.get(value.__class__)) is not None:
            return found
        for one in self._variants:
            if _matches_variant(value, one):
                return one.label
        raise self._mismatch_error(value)

    def _mismatch_error(self, value: Any, why: str = "") -> TypeMismatchError:
        found = "None" if value is None else f"a value of class {type(value).__name__}"
        message = f"task '{self._task}' returned {found}, but declares {label(self._returns)}"
        return TypeMismatchError(f"{message}: {why}" if why else message)

    def decode_input(self, encoded: Input) -> Any:
        """Return a value for another task, its own."""
        if isinstance(encoded, ListInput):
            return [self._decode(one) for one in encoded.values]
        if isinstance(encoded, ItemOfList):
            return self._decode_item(encoded)
        if isinstance(encoded, EncodedItem) and self._item_codec is not None:
            return self._item_codec.decode(encoded.value)
        return self._decode(encoded.value)

    def _decode_item(self, encoded: ItemOfList) -> Any:
        piece = self.extract_item(encoded)
        return (
            self.decode_input(piece) if isinstance(piece, EncodedItem) else self._decode(encoded.value)[encoded.number]
        )

    def extract_item(self, encoded: Input) -> Input:
        """Return an element cut out of its list, if elements are stored one after the other; else what was given."""
        if self._item_codec is None or not isinstance(encoded, ItemOfList):
            return encoded
        if self._split_list[0] is not encoded.value:  # one list is mapped over many times: taken apart once
            self._split_list = (
                encoded.value,
                [bytes(one) for one in msgspec.msgpack.decode(encoded.value, type=_RAW_LIST)],
            )
        return EncodedItem(self._split_list[1][encoded.number])

    def _decode(self, data: bytes) -> Any:
        if data == ENCODED_NONE or self._codec is None:
            return None
        try:
            return self._codec.decode(data)
        except TypeMismatchError as error:
            message = f"the value of task '{self._task}' cannot be read as {label(self._returns)}: {error}"
            raise TypeMismatchError(message) from error


_RAW_LIST = list[msgspec.Raw]


def _matches_variant(value: Any, variant: Variant) -> bool:
    return isinstance(value, variant.cls) or (variant.cls is float and isinstance(value, int))
