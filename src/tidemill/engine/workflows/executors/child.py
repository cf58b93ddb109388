"""One attempt in a process of its own: takes the order, runs it, says how it ended, and is gone.

What a process that was just forked touches is copied for it, page by page, and that is most of what a start costs. So
this does little, in plain steps: no socket object, no loop for code that needs none, and no thread.
"""

import asyncio
import os
import sys
import threading
from contextlib import suppress
from signal import SIGKILL

import msgspec

from tidemill.engine.workflows.executors import framing
from tidemill.engine.workflows.executors.interface import LogRecord, One, Order
from tidemill.engine.workflows.executors.runner import Call, Runner, Surroundings
from tidemill.kernel.clock import SystemClock
from tidemill.workflows.endings import Ending, Failed
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import AttemptKey, TaskError
from tidemill.workflows.workflow import Workflow

if sys.platform == "linux":
    from fcntl import F_SETFL, F_SETOWN, F_SETSIG, fcntl
    from os import O_ASYNC, getpid

REHEARSALS = 50
"""How often code is run before it is as it stays: Python looks at it for about half of that."""

_CLOCK = SystemClock()
_ORDERS = msgspec.msgpack.Decoder(Order)


def attend(control: int, call: Call) -> None:
    """Run the attempt that is ordered over a socket to the node."""
    order = framing.receive(control)
    if order is not None:
        _die_with(control)
        _perform(order, control, call)


def rehearse(nowhere: int) -> None:
    """Run a task that does nothing a few times, in a process that will fork; `nowhere` swallows what it says.

    Python rewrites code in the course of its first runs. What is rewritten before a fork is shared by all children;
    what is not, each of them would copy and rewrite for itself.
    """
    call = _drill()
    key = AttemptKey("rehearsal", call.name, WHOLE, 1)
    order = Order(
        key=key,
        tenant="",
        workflow="",
        version="",
        executor="",
        number=1,
        deferrals=0,
        params=b"",
        inputs={"given": One(msgspec.msgpack.encode(1))},
    )
    ours, theirs = os.pipe()
    for _ in range(REHEARSALS):
        framing.send(theirs, framing.framed(order))
        _perform(framing.receive(ours) or b"", nowhere, call)
    os.close(ours)
    os.close(theirs)


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
    voice = _Voice(control)
    ending = _run(call, _ORDERS.decode(data), Surroundings(_CLOCK, voice.log, echoes=False))
    _flush()
    voice.say(_told(ending))


class _Voice:
    """Says things to the node, from any thread, one after the other."""

    def __init__(self, control: int) -> None:
        self._control = control
        self._lock = threading.Lock()

    def log(self, record: LogRecord) -> None:
        """Pass on what the author's code logs."""
        with suppress(OSError):
            self.say(framing.framed(framing.Said(record)))

    def say(self, data: bytes) -> None:
        """Send a message."""
        with self._lock:
            framing.send(self._control, data)


def _run(call: Call, order: Order, around: Surroundings) -> Ending:
    if not call.is_async:
        return call.run(order, around)
    with asyncio.Runner() as loop:
        return loop.run(call.run_async(order, around))


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


def _die_with(control: int) -> None:
    """Let this process group be killed when the node closes its end of the socket, or dies.

    Linux does that by itself: a socket on which something happens can send a signal of one's choice to a whole group,
    and after the order nothing happens but its end. Elsewhere a thread waits for it, which makes a fork twice as dear.
    """
    if sys.platform == "linux":
        fcntl(control, F_SETOWN, -getpid())  # the leader of its group
        fcntl(control, F_SETSIG, SIGKILL)
        fcntl(control, F_SETFL, O_ASYNC)
        os.write(control, b"")  # a broken pipe if the end came before anybody could be told
    else:
        threading.Thread(target=_wait_for_end, args=(control,), daemon=True, name="tidemill watch").start()


def _wait_for_end(control: int) -> None:
    with suppress(OSError):
        while os.read(control, 4096):
            pass
    os.killpg(0, SIGKILL)
