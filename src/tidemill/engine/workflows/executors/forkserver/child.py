"""The child process of one attempt: reads the request, runs it, sends the result and exits.

Every page of memory that a forked process writes to is copied, and that is most of the cost of a start. So this module
does little, in plain steps: no socket object, no loop for code that needs none, and no thread.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from os import getpid
from queue import SimpleQueue
from signal import ITIMER_REAL, SIG_DFL, SIGALRM, SIGKILL, set_wakeup_fd, setitimer, signal
from socket import socketpair
from typing import Any, NamedTuple, NoReturn

import msgspec

from tidemill.annotations.codec import encode_msgpack
from tidemill.engine.workflows.executors.forkserver import protocol
from tidemill.engine.workflows.executors.forkserver.protocol import ForkHooks
from tidemill.engine.workflows.executors.interface import AttemptRequest, SingleInput
from tidemill.engine.workflows.executors.runner import CallEnvironment, TaskCall, TaskRunner
from tidemill.kernel.author_errors import describe
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.concurrency import call_in_thread, has_running_loop
from tidemill.kernel.masking import SecretMask
from tidemill.telemetry.author_output import AUTHOR_OUTPUT, captured_record
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult, Failed
from tidemill.workflows.node_calls import NodeCall, PushCall, SecretCall
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, TaskError
from tidemill.workflows.workflow import Workflow

if sys.platform == "linux":
    from fcntl import F_SETFL, F_SETOWN, F_SETSIG, fcntl
    from os import O_ASYNC

STANDARD_FDS = 0, 1, 2

WARM_UP_ROUNDS = 50
"""The number of runs after which Python has specialised the code; about half of them would do."""

LEFTOVER_TIMEOUT = 1.0
"""Seconds that tasks and threads left behind by author code have to end; then the process is killed."""

_CLOCK = SystemClock()
_REQUEST_DECODER = msgspec.msgpack.Decoder(AttemptRequest)
_SEND_LOCK = threading.Lock()
"""Held while a message is sent to the node: several threads may log."""
_CALL_LOCK = threading.Lock()
"""Held from a call to its reply: several threads may call."""
_REPLIES: SimpleQueue[bytes] = SimpleQueue()
"""The replies that the watchdog thread has read, on systems that have one."""


class ChildSetup(NamedTuple):
    """What a child gets from its fork server, besides the code."""

    devnull: int
    """Becomes its stdin."""
    fds_to_close: Sequence[int]
    """Descriptors of the fork server."""
    deferred_hooks: Sequence[ForkHooks] = ()
    """At-fork hooks to register: the child may start threads and fork itself."""


def child_main(call: TaskCall, fds: Sequence[int], setup: ChildSetup) -> NoReturn:
    """Run one attempt in a process that was just forked, and exit; `fds` are the control socket, stdout and stderr."""
    status = 1
    try:
        os.setsid()
        set_wakeup_fd(-1)
        run_child(call, fds, setup, STANDARD_FDS, getpid())
        status = 0
    except (BrokenPipeError, ConnectionResetError):
        pass  # the node has disconnected, or no longer wants the attempt
    except BaseException as error:  # this process must never continue as a second fork server
        os.write(2, f"{describe(error)}\n".encode(errors="replace"))
    finally:
        os._exit(status)


def run_child(call: TaskCall, fds: Sequence[int], setup: ChildSetup, streams: Sequence[int], group: int) -> None:
    """Set up the descriptors and run the requested attempt; process group `group`, if not 0, dies with the node."""
    control, stdout, stderr = fds
    devnull, fds_to_close, deferred_hooks = setup
    os.dup2(devnull, streams[0])
    os.dup2(stdout, streams[1])
    os.dup2(stderr, streams[2])
    for descriptor in fds_to_close:
        os.close(descriptor)
    os.close(stdout)
    os.close(stderr)
    for hooks in deferred_hooks:
        os.register_at_fork(**hooks)
    data = protocol.read_frame(control)
    if data is not None:
        _kill_group_on_disconnect(control, group)
        _run_request(data, control, call)


def warm_up(devnull: int) -> None:
    """Run a trivial task several times in the process that will fork.

    Python specialises bytecode during its first runs. Specialised before the fork, it is shared by all children; else
    each of them would copy and specialise it again.
    """
    call = _build_warm_up_call()
    data = protocol.encode_frame(_build_warm_up_request(call.name))
    streams = [os.dup(devnull) for _ in STANDARD_FDS]
    for _ in range(WARM_UP_ROUNDS):
        node, control = socketpair()
        with node, control:
            node.send(data)
            fds = control.fileno(), os.dup(devnull), os.dup(devnull)
            run_child(call, fds, ChildSetup(devnull, [os.dup(devnull)]), streams, group=0)
    for stream in streams:
        os.close(stream)


def _build_warm_up_request(task: str) -> AttemptRequest:
    return AttemptRequest(
        key=AttemptKey("warm_up", task, UNMAPPED, 1),
        tenant="",
        workflow="",
        version="",
        executor="",
        number=1,
        deferrals=0,
        params=b"",
        inputs={"number": SingleInput(msgspec.msgpack.encode(1))},
    )


def _build_warm_up_call() -> TaskCall:
    workflow = Workflow("warm_up")

    @workflow.task
    def number() -> int:
        return 1

    @workflow.task
    def identity(number: int) -> int:
        return number

    return TaskRunner(workflow).get_call("identity")


def _run_request(data: bytes, control: int, call: TaskCall) -> None:
    request = _REQUEST_DECODER.decode(data)
    mask = SecretMask()
    call_node, on_log = partial(_call_node, control, mask), partial(_send_log, control)
    environment = CallEnvironment(_CLOCK, on_log, getpid(), echoes=False, call_node=call_node, mask=mask)
    if request.captures_output:
        AUTHOR_OUTPUT.observe_process(_RecordSender(on_log))
    if call.is_async:
        _run_on_loop(request, control, call, environment)
    else:
        _send_result(control, call.run(request, environment))


class _RecordSender:
    """Sends what author code logs and warns about to the node, which reads what it prints at the descriptors."""

    def __init__(self, on_log: Callable[[LogRecord], None]) -> None:
        self._on_log = on_log

    def add_printed(self, stream: str, data: bytes) -> None:
        """Do nothing: the streams of this process are not observed."""

    def add_logged(self, record: logging.LogRecord, *, is_shown: bool) -> None:  # noqa: ARG002
        """Send a log record."""
        self._on_log(captured_record(_CLOCK.now(), record))


def _run_on_loop(request: AttemptRequest, control: int, call: TaskCall, environment: CallEnvironment) -> None:
    """Run code that needs a loop. The result is sent before the loop closes, which waits for leftover tasks."""
    with asyncio.Runner() as loop:
        try:
            ending = loop.run(call.run_async(request, environment))
        except asyncio.CancelledError as error:  # author code: Tidemill cancels nothing here
            ending = call.ending_of_error(error, environment)
        _send_result(control, ending)
        signal(SIGALRM, SIG_DFL)
        setitimer(ITIMER_REAL, LEFTOVER_TIMEOUT)
    _flush_streams()


def _send_result(control: int, ending: AttemptResult) -> None:
    _flush_streams()
    _send_frame(control, _encode_result(ending))


def _send_log(control: int, record: LogRecord) -> None:
    """Send a log record of author code to the node."""
    with suppress(OSError):
        _send_frame(control, protocol.encode_frame(protocol.LogMessage(record)))


def _send_frame(control: int, data: bytes) -> None:
    with _SEND_LOCK:
        protocol.write_all(control, data)


def _call_node(control: int, mask: SecretMask, call: NodeCall) -> Any:
    """Make a call of the task to its node; a secret in the answer is masked from now on."""
    data = protocol.encode_frame(protocol.CallMessage(_encode_values(call)))
    on_answer = mask.add if isinstance(call, SecretCall) else None
    if has_running_loop():
        return call_in_thread(_exchange, control, data, on_answer)
    return _exchange(control, data, on_answer)


def _encode_values(call: NodeCall) -> NodeCall:
    """Return a call whose event the node decodes as the accumulator's type, however the task has built it."""
    if isinstance(call, PushCall) and not isinstance(call.event, bytes | bytearray | memoryview):
        return PushCall(call.accumulator, encode_msgpack(call.event), "msgpack")
    return call


def _exchange(control: int, data: bytes, on_answer: Callable[[Any], None] | None = None) -> Any:
    """Send a call and wait for its reply; end with the node if it disconnects meanwhile."""
    with _CALL_LOCK:
        _set_disconnect_signal(control, is_on=False)  # the reply would be taken for the end
        _send_frame(control, data)
        body = protocol.read_frame(control) if sys.platform == "linux" else _REPLIES.get()
        if body is None:
            os.killpg(0, SIGKILL)
        _set_disconnect_signal(control, is_on=True)
    answer = protocol.CALL_REPLY_DECODER.decode(body or b"").unwrap()
    if on_answer is not None:
        on_answer(answer)
    return answer


def _encode_result(ending: AttemptResult) -> bytes:
    try:
        return protocol.encode_frame(protocol.ResultMessage.from_ending(ending))
    except protocol.FrameTooLongError as error:
        message = f"its return value is too big to be sent to the node: {error}"
        failure = Failed(error=TaskError("TooLong", message), may_retry=False)
        return protocol.encode_frame(protocol.ResultMessage.from_ending(failure))


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # author code: it may have closed or replaced them
            continue


def _kill_group_on_disconnect(control: int, group: int) -> None:
    """SIGKILL process group `group` when the node closes the socket or dies; 0 disables this.

    Linux does it without a thread: a socket can send a chosen signal to a process group when it becomes ready, and
    after the request the only event on this one, apart from replies to calls, is its end. On other systems a thread
    waits for that, which doubles the cost of a fork.
    """
    if sys.platform == "linux":
        fcntl(control, F_SETOWN, -group)
        fcntl(control, F_SETSIG, SIGKILL)
        _set_disconnect_signal(control, is_on=True)
    elif group:
        threading.Thread(target=_wait_for_disconnect, args=(control,), daemon=True, name="tidemill watchdog").start()


def _set_disconnect_signal(control: int, *, is_on: bool) -> None:
    """Turn on or off that the socket sends a signal when it is ready; only on Linux."""
    if sys.platform == "linux":
        fcntl(control, F_SETFL, O_ASYNC if is_on else 0)
        if is_on:
            os.write(control, b"")  # raises a broken pipe if the node disconnected before the signal was turned on


def _wait_for_disconnect(control: int) -> None:
    with suppress(OSError):
        while (body := protocol.read_frame(control)) is not None:
            _REPLIES.put(body)
    os.killpg(0, SIGKILL)
