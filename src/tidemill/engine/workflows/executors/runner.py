"""Calls the author's function for a request, and turns what it returns or raises into a result.

All executors share this code, wherever they run it. Values are decoded for each attempt, so that no two tasks ever
share a mutable one.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from os import getpid
from typing import Any, NoReturn

import msgspec

from tidemill.annotations.codec import UnstorableError
from tidemill.annotations.signatures import Parameter
from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.workflows.executors.attempt_output import MESSAGE_LIMIT, TaskLog, build_task_error
from tidemill.engine.workflows.executors.interface import (
    AttemptRequest,
)
from tidemill.engine.workflows.executors.performing import LoopPerformer, perform_now
from tidemill.engine.workflows.executors.value_codec import ValueCodec
from tidemill.kernel.author_errors import Fail, describe, is_cancelled_here, shorten
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.kernel.masking import SecretMask
from tidemill.telemetry.log_context import ATTEMPT, ATTEMPT_OUTPUT, FIRING, OutputSink
from tidemill.telemetry.log_records import LogRecord
from tidemill.telemetry.tracing import enter_trace
from tidemill.workflows.attempt_results import AttemptResult, Deferred, Failed, Skipped, Succeeded
from tidemill.workflows.context import Deferral, TaskContext
from tidemill.workflows.definition import Skip
from tidemill.workflows.node_calls import CallNode, NotAwaitedError, PendingCall
from tidemill.workflows.params import decode_params
from tidemill.workflows.records import TaskError
from tidemill.workflows.step_records import StepFailure
from tidemill.workflows.steps import Perform, StepError, SupersededError, TaskSteps
from tidemill.workflows.wiring import WiredTask
from tidemill.workflows.workflow import Workflow


class CallEnvironment(msgspec.Struct, frozen=True):
    """What a call gets from the process it runs in."""

    clock: Clock
    on_log: Callable[[LogRecord], None]
    """Accepts a log record of author code; may be called on any thread."""
    pid: int
    """The process in which the function is called. A copy that author code forked must not report a result."""
    echoes: bool = True
    """Whether log records are repeated in Python's logging."""
    call_node: CallNode | None = None
    """Makes the calls of the context, such as `ctx.push` and `ctx.step`."""
    pending_calls: dict[PendingCall, None] = {}
    """Calls of the attempt that it has not awaited yet."""
    mask: SecretMask | None = None
    """The secrets that are masked in logs and errors."""
    output: OutputSink | None = None
    """Keeps what the code prints, logs and warns about; None if nothing does, or the whole process has one sink."""


class TaskRunner:
    """The callable tasks of one workflow version, each built on first use."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._calls: dict[str, TaskCall] = {}
        self._codecs: dict[str, ValueCodec] = {}

    def get_call(self, task: str) -> "TaskCall":
        """Return the call of a task; OperationError if there is no task of that name."""
        call = self._calls.get(task)
        if call is None:
            wired = self._workflow.wired().tasks.get(task)
            if wired is None:
                raise OperationError(f"workflow '{self._workflow.name}' has no task '{task}'")
            call = self._calls[task] = TaskCall(wired, self._workflow, self._codec_for)
        return call

    def decode_value(self, task: str, stored: bytes) -> Any:
        """Return a task's value from its stored form."""
        return self._codec_for(task).decode(stored)

    def trim_inputs(self, request: AttemptRequest) -> AttemptRequest:
        """Return the request with only the element that its task needs of each list it is mapped over."""
        inputs = {name: self._codec_for(name).extract_item(encoded) for name, encoded in request.inputs.items()}
        return msgspec.structs.replace(request, inputs=inputs)

    def _codec_for(self, task: str) -> "ValueCodec":
        if task not in self._codecs:
            self._codecs[task] = ValueCodec(task, self._workflow.wired().tasks[task].signature.returns)
        return self._codecs[task]


class TaskCall:
    """Calls the function of one task: decodes its arguments and encodes its result."""

    def __init__(self, wired: WiredTask, workflow: Workflow, codec_for: "Callable[[str], ValueCodec]") -> None:
        self.name = wired.task.name
        self.is_async = wired.task.function.is_async
        self._function = wired.task.function.call
        self._wired = wired
        self._output_codec = codec_for(self.name)
        sources = [edge.parameter for edge in wired.spec.edges if edge.parameter is not None]
        self._input_codecs = {name: codec_for(name) for name in sources}
        self._decode_params = _params_decoder(workflow.params)

    # -- running

    def run(self, request: AttemptRequest, environment: CallEnvironment) -> AttemptResult:
        """Run the attempt on this thread. Any error of author code becomes a result."""
        _enter_context(request, environment)
        try:
            steps = self._make_steps(request, environment, partial(perform_now, environment.call_node, _run_awaitable))
            values, named = self._build_arguments(request, environment, request.deferrals, steps)
            value = self._function(*values, **named)
        except BaseException as error:  # author code: it may raise anything
            if getpid() != environment.pid:
                _exit_forked_copy(error)
            if environment.pending_calls:
                return _failure_of_forgotten(environment, error)
            return self.ending_of_error(error, environment)
        if getpid() != environment.pid:
            _exit_forked_copy()
        return (
            _failure_of_forgotten(environment)
            if environment.pending_calls
            else self._encode_result(value, request.value_limit)
        )

    async def run_async(self, request: AttemptRequest, environment: CallEnvironment) -> AttemptResult:
        """Run the attempt on this loop. Raise only if the current task is cancelled; other errors become results."""
        deferrals = request.deferrals
        performer = LoopPerformer(environment.call_node) if self._wired.takes_context else None
        steps = None if performer is None else self._make_steps(request, environment, performer.perform)
        _enter_context(request, environment)
        while True:
            try:
                values, named = self._build_arguments(request, environment, deferrals, steps)
                value = await self._function(*values, **named)
            except BaseException as error:  # author code: as above
                if getpid() != environment.pid:
                    _exit_forked_copy(error)
                if is_cancelled_here(error):
                    raise
                error = _unwrap(error)
                if isinstance(error, Deferral) and error.waits:
                    _close_pending(environment)  # it need not await all that it asks
                elif environment.pending_calls and (forgotten := await _find_forgotten(environment, error)) is not None:
                    return forgotten
                if performer is not None:
                    await performer.cancel()
                ending = await self._handle_error(error, environment)
                if ending is not None:
                    return ending
                deferrals += 1  # the deferral is over already: call the function again, as after a wake-up
            else:
                if getpid() != environment.pid:
                    _exit_forked_copy()
                if environment.pending_calls and (forgotten := await _find_forgotten(environment)) is not None:
                    return forgotten
                return self._encode_result(value, request.value_limit)

    async def _handle_error(self, error: BaseException, environment: CallEnvironment) -> AttemptResult | None:
        """Return the result of an attempt that raised, or None if its deferral is over and it continues."""
        if not isinstance(error, Deferral) or error.pending_answer is None:
            return self.ending_of_error(error, environment)
        return await self._await_poll(error.pending_answer, error, environment)

    async def _await_poll(
        self, answer: Awaitable[bool], deferral: Deferral, environment: CallEnvironment
    ) -> AttemptResult | None:
        """Return the result of a deferral whose first poll is pending, or None if the poll says that it is over."""
        try:
            return None if await answer else self.ending_of_error(deferral, environment)
        except BaseException as error:  # author code: as above
            if is_cancelled_here(error):
                raise
            return self.ending_of_error(error, environment)

    # -- arguments

    def _build_arguments(
        self, request: AttemptRequest, environment: CallEnvironment, deferrals: int, steps: TaskSteps | None
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        inputs: dict[str, Any] = {}
        for name, codec in self._input_codecs.items():
            if name in request.inputs:
                inputs[name] = codec.decode_input(request.inputs[name])
        params = self._decode_params(request.params) if request.params else {}
        positional, named = [], {}
        for parameter in self._wired.signature.parameters:
            if parameter.name in self._wired.takes_params:
                value = params
            elif parameter.name in self._wired.takes_context:
                value = self._build_context(request, environment, deferrals, params, inputs, steps)
            else:
                value = inputs[parameter.name] if parameter.name in inputs else _default_value(parameter)
            if parameter.keyword_only:
                named[parameter.name] = value
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
        steps: TaskSteps | None,
    ) -> TaskContext:
        return TaskContext(
            request.key,
            number=request.number,
            slot=request.slot,
            deferrals=deferrals,
            log=TaskLog(
                request.key, environment.clock, environment.on_log, echoes=environment.echoes, mask=environment.mask
            ),
            merge=lambda: _merge_context(request.params, params, inputs),
            call_node=environment.call_node,
            pending_calls=environment.pending_calls,
            wait_for=None if self.is_async else _run_awaitable,
            steps=steps,
        )

    def _make_steps(self, request: AttemptRequest, environment: CallEnvironment, perform: Perform) -> TaskSteps | None:
        if environment.call_node is None or not self._wired.takes_context:
            return None
        return TaskSteps(
            perform=perform,
            has_records=request.key.attempt > 1,
            number=request.number,
            judge=partial(self._judge_step, environment.mask),
            now=environment.clock.monotonic,
        )

    def _judge_step(self, mask: SecretMask | None, error: BaseException) -> StepFailure:
        """Return what is stored about the error of a step; one of a step inside of it is that one's."""
        told = build_task_error(error, mask)
        if isinstance(error, StepError):
            told = TaskError(error.type, error.message, told.traceback)
        return StepFailure(told, self._may_retry(error))

    # -- results

    def _encode_result(self, value: Any, limit: int) -> AttemptResult:
        try:
            result = self._output_codec.encode_result(value)
            return result if len(result.value) <= limit else _too_long(result, limit)
        except (UnstorableError, TypeMismatchError) as error:
            return Failed(error=TaskError(type(error).__name__, shorten(str(error), MESSAGE_LIMIT)), may_retry=False)
        except BaseException as error:  # author code: encoding a value may call into it
            return build_fallback_failure(error)

    def ending_of_error(self, error: BaseException, environment: CallEnvironment) -> AttemptResult:
        """Return the result of an attempt that raised. Never raises: without a result it would keep its slot."""
        try:
            return self._classify_error(error, environment)
        except BaseException as second_error:  # author code: an exception may raise when it is inspected
            return build_fallback_failure(second_error)

    def _classify_error(self, error: BaseException, environment: CallEnvironment) -> AttemptResult:
        if isinstance(error, Skip):
            return Skipped(shorten(_skip_reason(error), MESSAGE_LIMIT))
        if isinstance(error, Deferral) and error.waits:
            return Deferred(wake_at=None, ends_on_wake=False, waits=error.waits, ended_waits=error.ended_waits)
        if isinstance(error, Deferral):
            after, poll = error.delay or 0.0, error.poll
            wake_at = error.until or environment.clock.now() + timedelta(seconds=after)
            every = after if poll is not None else 0.0
            return Deferred(wake_at=wake_at, delay=error.delay, ends_on_wake=poll is None, poll=poll, every=every)
        return Failed(error=build_task_error(error, environment.mask), may_retry=self._may_retry(error))

    def _may_retry(self, error: BaseException) -> bool:
        if isinstance(error, Fail | TypeMismatchError | UnstorableError | SupersededError):
            return False
        retry = self._wired.task.retry
        if isinstance(error, StepError) and error.failure.may_retry:
            return True
        # A retry policy that names no error classes retries every failure, even a SystemExit.
        return retry is None or Exception in retry.on or isinstance(error, retry.on)


def _too_long(result: Succeeded, limit: int) -> Failed:
    message = (
        f"its return value has {len(result.value):,} bytes, and {limit:,} are allowed: store it elsewhere and return "
        "its location, or raise the setting result_limit"
    )
    return Failed(error=TaskError("TooLong", message), may_retry=False)


def _enter_context(request: AttemptRequest, environment: CallEnvironment) -> None:
    """Log and trace for an attempt, until the end of the current task, or of the context of its thread or process."""
    ATTEMPT.set(request.log_fields)
    ATTEMPT_OUTPUT.set(environment.output)
    FIRING.set(None)
    if request.trace is not None:
        enter_trace(request.trace)


async def _find_forgotten(environment: CallEnvironment, error: BaseException | None = None) -> Failed | None:
    """Return the failure of a coroutine with calls that it has not awaited; None if others await them."""
    await asyncio.sleep(0)  # a call that it has just given to `asyncio.create_task` begins
    return _failure_of_forgotten(environment, error) if environment.pending_calls else None


def _failure_of_forgotten(environment: CallEnvironment, error: BaseException | None = None) -> Failed:
    """Return the failure of an attempt with calls that it has not awaited; an error that it raised is the cause."""
    forgotten = list(environment.pending_calls)
    for call in forgotten:
        call.close()  # else Python warns that it was never awaited
    failure = error if isinstance(error, NotAwaitedError) else forgotten[0].error()
    if error is not failure:
        failure.__cause__ = error
    return Failed(error=build_task_error(failure, environment.mask), may_retry=False)


def _close_pending(environment: CallEnvironment) -> None:
    for call in list(environment.pending_calls):
        call.close()


def _unwrap(error: BaseException) -> BaseException:
    """Return the deferral that a task group has raised; any other error as it is."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    _, others = error.split((Deferral, SupersededError))
    if others is not None:
        return error
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def build_fallback_failure(error: BaseException) -> Failed:
    """Return a failure for an error of any kind, even one that raises when it is formatted."""
    try:
        return Failed(error=build_task_error(error), may_retry=False)
    except BaseException:  # author code: as above
        return Failed(error=TaskError("Error", "it ended with an error that cannot be shown"), may_retry=False)


def _exit_forked_copy(error: BaseException | None = None) -> NoReturn:
    """Exit a process that author code forked, with the status that Python would use, but without any cleanup.

    The process has copies of Tidemill's loops, queues and unwritten data, and must not act on them.
    """
    code = error.code if isinstance(error, SystemExit) else error
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def _default_value(parameter: Parameter) -> Any:
    return parameter.default if parameter.has_default else None


def _params_decoder(params_class: type[msgspec.Struct] | None) -> Callable[[bytes], Any]:
    """Return the function that decodes stored params: a map by the names of the fields."""
    if params_class is None or not any(one.name != one.encode_name for one in msgspec.structs.fields(params_class)):
        decoder: Any = msgspec.msgpack.Decoder(params_class or dict[str, Any])
        if params_class is None or not params_class.__struct_config__.array_like:
            return decoder.decode  # type: ignore[no-any-return]
    return lambda stored: decode_params(params_class, stored)


def _merge_context(stored: bytes, params: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping behind `ctx["key"]`; what started the run may have stored more than its params."""
    if isinstance(params, dict):
        merged = dict(params)
    else:
        merged = msgspec.msgpack.decode(stored, type=dict[str, Any]) | msgspec.structs.asdict(params)
    for value in inputs.values():
        if isinstance(value, dict):
            merged |= value
    return merged


def _skip_reason(error: Skip) -> str:
    return describe(error).partition(": ")[2]


def _run_awaitable(awaitable: Awaitable[Any]) -> Any:
    """Wait for an awaitable on a thread that has no loop."""

    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())
