"""One attempt in a process of its own: takes the order, runs it, says how it ended, and is gone.

What a process that was just forked touches is copied for it, page by page, and that is most of what a start costs. So
this does little, in plain steps: no socket object, no loop for code that needs none, and no thread.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from os import getpid
from signal import ITIMER_REAL, SIG_DFL, SIGALRM, SIGKILL, set_wakeup_fd, setitimer, signal
from socket import socketpair
from typing import NamedTuple, NoReturn

import msgspec

from tidemill.engine.workflows.executors.forkserver import protocol as framing
from tidemill.engine.workflows.executors.forkserver.protocol import ForkHooks
from tidemill.engine.workflows.executors.interface import AttemptRequest, LogRecord, SingleInput
from tidemill.engine.workflows.executors.runner import CallEnvironment, TaskCall, TaskRunner
from tidemill.kernel.author_errors import describe
from tidemill.kernel.clock import SystemClock
from tidemill.workflows.attempt_results import AttemptResult, Failed
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, TaskError
from tidemill.workflows.workflow import Workflow

if sys.platform == "linux":
    from fcntl import F_SETFL, F_SETOWN, F_SETSIG, fcntl
    from os import O_ASYNC

STANDARD_FDS = 0, 1, 2

WARM_UP_ROUNDS = 50
"""How often code is run before it is as it stays: Python looks at it for about half of that."""

LEFTOVER_TIMEOUT = 1.0
"""Seconds that tasks and threads which the code has left behind have to end; then the process is killed."""

_CLOCK = SystemClock()
_REQUEST_DECODER = msgspec.msgpack.Decoder(AttemptRequest)
_SEND_LOCK = threading.Lock()
"""Whose it is says something to the node: threads may log, one after the other."""


class ChildSetup(NamedTuple):
    """What a process has from its fork server, besides the code."""

    devnull: int
    """What is read from stdin."""
    fds_to_close: Sequence[int]
    """Descriptors that are none of its business."""
    deferred_hooks: Sequence[ForkHooks] = ()
    """What has to be done when it forks itself, by then perhaps with several threads."""


def child_main(call: TaskCall, fds: Sequence[int], setup: ChildSetup) -> NoReturn:
    """Run one attempt in a process that was just forked, and end that process.

    `given` are the control socket, stdout and stderr.
    """
    status = 1
    try:
        os.setsid()
        set_wakeup_fd(-1)
        run_child(call, fds, setup, STANDARD_FDS, getpid())
        status = 0
    except (BrokenPipeError, ConnectionResetError):
        pass  # the node is gone, or wants no more of it
    except BaseException as error:  # nothing of this process may go on as a second fork server
        os.write(2, f"{describe(error)}\n".encode(errors="replace"))
    finally:
        os._exit(status)


def run_child(call: TaskCall, fds: Sequence[int], setup: ChildSetup, streams: Sequence[int], group: int) -> None:
    """Take over the descriptors, and run the attempt that is ordered; `group` dies with the node, if it is not 0."""
    control, stdout, stderr = fds
    nothing, unwanted, repairs = setup
    os.dup2(nothing, streams[0])
    os.dup2(stdout, streams[1])
    os.dup2(stderr, streams[2])
    for descriptor in unwanted:
        os.close(descriptor)
    os.close(stdout)
    os.close(stderr)
    for hooks in repairs:
        os.register_at_fork(**hooks)
    order = framing.read_frame(control)
    if order is not None:
        _kill_group_on_disconnect(control, group)
        _run_request(order, control, call)


def warm_up(devnull: int) -> None:
    """Attend a few times to a task that does nothing, in a process that will fork.

    Python rewrites code in the course of its first runs. What is rewritten before a fork is shared by all children;
    what is not, each of them would copy and rewrite for itself.
    """
    call = _build_warm_up_call()
    order = framing.encode_frame(_build_warm_up_request(call.name))
    streams = [os.dup(devnull) for _ in STANDARD_FDS]
    for _ in range(WARM_UP_ROUNDS):
        node, control = socketpair()
        with node, control:
            node.send(order)
            given = control.fileno(), os.dup(devnull), os.dup(devnull)
            run_child(call, given, ChildSetup(devnull, [os.dup(devnull)]), streams, group=0)
    for stream in streams:
        os.close(stream)


def _build_warm_up_request(task: str) -> AttemptRequest:
    return AttemptRequest(
        key=AttemptKey("rehearsal", task, UNMAPPED, 1),
        tenant="",
        workflow="",
        version="",
        executor="",
        number=1,
        deferrals=0,
        params=b"",
        inputs={"given": SingleInput(msgspec.msgpack.encode(1))},
    )


def _build_warm_up_call() -> TaskCall:
    workflow = Workflow("rehearsal")

    @workflow.task
    def given() -> int:
        return 1

    @workflow.task
    def passed_on(given: int) -> int:
        return given

    return TaskRunner(workflow).get_call("passed_on")


def _run_request(data: bytes, control: int, call: TaskCall) -> None:
    order, around = (
        _REQUEST_DECODER.decode(data),
        CallEnvironment(_CLOCK, partial(_send_log, control), getpid(), echoes=False),
    )
    if call.is_async:
        _run_on_loop(order, control, call, around)
    else:
        _send_result(control, call.run(order, around))


def _run_on_loop(request: AttemptRequest, control: int, call: TaskCall, environment: CallEnvironment) -> None:
    """Run code that needs a loop. How it ended is said before the loop is: that waits for what the code left behind."""
    with asyncio.Runner() as loop:
        try:
            ending = loop.run(call.run_async(request, environment))
        except asyncio.CancelledError as error:  # author code: nobody else cancels anything here
            ending = call.ending_of_error(error, environment)
        _send_result(control, ending)
        signal(SIGALRM, SIG_DFL)
        setitimer(ITIMER_REAL, LEFTOVER_TIMEOUT)
    _flush_streams()


def _send_result(control: int, ending: AttemptResult) -> None:
    _flush_streams()
    _send_frame(control, _encode_result(ending))


def _send_log(control: int, record: LogRecord) -> None:
    """Pass on what the author's code logs."""
    with suppress(OSError):
        _send_frame(control, framing.encode_frame(framing.LogMessage(record)))


def _send_frame(control: int, data: bytes) -> None:
    with _SEND_LOCK:
        framing.write_all(control, data)


def _encode_result(ending: AttemptResult) -> bytes:
    try:
        return framing.encode_frame(framing.ResultMessage.from_ending(ending))
    except framing.FrameTooLongError as error:
        message = f"the value that it returned is too big to leave its process: {error}"
        return framing.encode_frame(
            framing.ResultMessage.from_ending(Failed(error=TaskError("TooLong", message), may_retry=False))
        )


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # author code: it may have closed or replaced them
            continue


def _kill_group_on_disconnect(control: int, group: int) -> None:
    """Let a process group be killed when the node closes its end of the socket, or dies; 0 is nobody.

    Linux does that by itself: a socket on which something happens can send a signal of one's choice to a whole group,
    and after the order nothing happens but its end. Elsewhere a thread waits for it, which makes a fork twice as dear.
    """
    if sys.platform == "linux":
        fcntl(control, F_SETOWN, -group)
        fcntl(control, F_SETSIG, SIGKILL)
        fcntl(control, F_SETFL, O_ASYNC)
        os.write(control, b"")  # a broken pipe if the end came before anybody could be told
    elif group:
        threading.Thread(target=_wait_for_disconnect, args=(control,), daemon=True, name="tidemill watch").start()


def _wait_for_disconnect(control: int) -> None:
    with suppress(OSError):
        while os.read(control, 4096):
            pass
    os.killpg(0, SIGKILL)
