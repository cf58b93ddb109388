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

from tidemill.engine.workflows.executors import framing
from tidemill.engine.workflows.executors.fork_hooks import Hooks
from tidemill.engine.workflows.executors.interface import LogRecord, One, Order
from tidemill.engine.workflows.executors.runner import Call, Runner, Surroundings
from tidemill.kernel.author_errors import describe
from tidemill.kernel.clock import SystemClock
from tidemill.workflows.endings import Ending, Failed
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import AttemptKey, TaskError
from tidemill.workflows.workflow import Workflow

if sys.platform == "linux":
    from fcntl import F_SETFL, F_SETOWN, F_SETSIG, fcntl
    from os import O_ASYNC

STREAMS = 0, 1, 2

REHEARSALS = 50
"""How often code is run before it is as it stays: Python looks at it for about half of that."""

LAST = 1.0
"""Seconds that tasks and threads which the code has left behind have to end; then the process is killed."""

_CLOCK = SystemClock()
_ORDERS = msgspec.msgpack.Decoder(Order)
_TURN = threading.Lock()
"""Whose it is says something to the node: threads may log, one after the other."""


class Inheritance(NamedTuple):
    """What a process has from its fork server, besides the code."""

    nothing: int
    """What is read from stdin."""
    unwanted: Sequence[int]
    """Descriptors that are none of its business."""
    repairs: Sequence[Hooks] = ()
    """What has to be done when it forks itself, by then perhaps with several threads."""


def begin(call: Call, given: Sequence[int], inheritance: Inheritance) -> NoReturn:
    """Run one attempt in a process that was just forked, and end that process.

    `given` are the control socket, stdout and stderr.
    """
    status = 1
    try:
        os.setsid()
        set_wakeup_fd(-1)
        attend(call, given, inheritance, STREAMS, getpid())
        status = 0
    except (BrokenPipeError, ConnectionResetError):
        pass  # the node is gone, or wants no more of it
    except BaseException as error:  # nothing of this process may go on as a second fork server
        os.write(2, f"{describe(error)}\n".encode(errors="replace"))
    finally:
        os._exit(status)


def attend(call: Call, given: Sequence[int], inheritance: Inheritance, streams: Sequence[int], group: int) -> None:
    """Take over the descriptors, and run the attempt that is ordered; `group` dies with the node, if it is not 0."""
    control, stdout, stderr = given
    nothing, unwanted, repairs = inheritance
    os.dup2(nothing, streams[0])
    os.dup2(stdout, streams[1])
    os.dup2(stderr, streams[2])
    for descriptor in unwanted:
        os.close(descriptor)
    os.close(stdout)
    os.close(stderr)
    for hooks in repairs:
        os.register_at_fork(**hooks)
    order = framing.receive(control)
    if order is not None:
        _die_with(control, group)
        _perform(order, control, call)


def rehearse(nothing: int) -> None:
    """Attend a few times to a task that does nothing, in a process that will fork.

    Python rewrites code in the course of its first runs. What is rewritten before a fork is shared by all children;
    what is not, each of them would copy and rewrite for itself.
    """
    call = _drill()
    order = framing.framed(_order(call.name))
    streams = [os.dup(nothing) for _ in STREAMS]
    for _ in range(REHEARSALS):
        node, control = socketpair()
        with node, control:
            node.send(order)
            given = control.fileno(), os.dup(nothing), os.dup(nothing)
            attend(call, given, Inheritance(nothing, [os.dup(nothing)]), streams, group=0)
    for stream in streams:
        os.close(stream)


def _order(task: str) -> Order:
    return Order(
        key=AttemptKey("rehearsal", task, WHOLE, 1),
        tenant="",
        workflow="",
        version="",
        executor="",
        number=1,
        deferrals=0,
        params=b"",
        inputs={"given": One(msgspec.msgpack.encode(1))},
    )


def _drill() -> Call:
    workflow = Workflow("rehearsal")

    @workflow.task
    def given() -> int:
        return 1

    @workflow.task
    def passed_on(given: int) -> int:
        return given

    return Runner(workflow).call("passed_on")


def _perform(data: bytes, control: int, call: Call) -> None:
    order, around = _ORDERS.decode(data), Surroundings(_CLOCK, partial(_log, control), getpid(), echoes=False)
    if call.is_async:
        _perform_on_loop(order, control, call, around)
    else:
        _tell(control, call.run(order, around))


def _perform_on_loop(order: Order, control: int, call: Call, around: Surroundings) -> None:
    """Run code that needs a loop. How it ended is said before the loop is: that waits for what the code left behind."""
    with asyncio.Runner() as loop:
        try:
            ending = loop.run(call.run_async(order, around))
        except asyncio.CancelledError as error:  # author code: nobody else cancels anything here
            ending = call.raised(error, around)
        _tell(control, ending)
        signal(SIGALRM, SIG_DFL)
        setitimer(ITIMER_REAL, LAST)
    _flush()


def _tell(control: int, ending: Ending) -> None:
    _flush()
    _say(control, _told(ending))


def _log(control: int, record: LogRecord) -> None:
    """Pass on what the author's code logs."""
    with suppress(OSError):
        _say(control, framing.framed(framing.Said(record)))


def _say(control: int, data: bytes) -> None:
    with _TURN:
        framing.send(control, data)


def _told(ending: Ending) -> bytes:
    try:
        return framing.framed(framing.Told.of(ending))
    except framing.TooLongError as error:
        message = f"the value that it returned is too big to leave its process: {error}"
        return framing.framed(framing.Told.of(Failed(error=TaskError("TooLong", message), may_retry=False)))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # author code: it may have closed or replaced them
            continue


def _die_with(control: int, group: int) -> None:
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
        threading.Thread(target=_wait_for_end, args=(control,), daemon=True, name="tidemill watch").start()


def _wait_for_end(control: int) -> None:
    with suppress(OSError):
        while os.read(control, 4096):
            pass
    os.killpg(0, SIGKILL)
