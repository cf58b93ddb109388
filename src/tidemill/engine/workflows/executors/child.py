"""One attempt in a process of its own: says hello, waits for the order, runs it, says how it ended, and is gone."""

import asyncio
import fcntl
import os
import select
import signal
import socket
import sys
import threading
from contextlib import suppress

import msgspec

from tidemill.engine.workflows.executors import framing
from tidemill.engine.workflows.executors.interface import LogRecord, Order
from tidemill.engine.workflows.executors.runner import Call, Surroundings
from tidemill.kernel.clock import SystemClock
from tidemill.workflows.endings import Ending, Failed
from tidemill.workflows.records import TaskError

_ORDERS = msgspec.msgpack.Decoder(Order)


def attend(control: socket.socket, call: Call) -> None:
    """Run one attempt, over a control socket to the node."""
    control.sendall(framing.framed(framing.Hello(os.getpid())))
    data = framing.receive(control)
    if data is None:
        return  # it is not wanted
    order = _ORDERS.decode(data)
    _die_with(control)
    sending = threading.Lock()

    def log(record: LogRecord) -> None:
        with suppress(OSError), sending:
            control.sendall(framing.framed(framing.Said(record)))

    ending = _run(call, order, Surroundings(SystemClock(), log, echoes=False))
    _flush()
    with sending:
        control.sendall(_told(ending))


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
        with suppress(Exception):  # author code: it may have closed or replaced them
            stream.flush()


def _die_with(control: socket.socket) -> None:
    """Let this process group be killed when the node closes its end of the socket, or dies.

    Linux does that by itself: a socket on which something happens can send a signal of one's choice to a whole group,
    and after the order nothing happens but its end. Elsewhere a thread waits for it, which makes a fork twice as dear.
    """
    if sys.platform == "linux":
        fcntl.fcntl(control, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(control, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(control, fcntl.F_SETFL, fcntl.fcntl(control, fcntl.F_GETFL) | os.O_ASYNC)
        poll = select.poll()
        poll.register(control, 0)
        if poll.poll(0):  # it came to its end before anybody could be told
            _kill_group()
    else:
        threading.Thread(target=_wait_for_end, args=(control,), daemon=True, name="tidemill watch").start()


def _wait_for_end(control: socket.socket) -> None:
    with suppress(OSError):
        while control.recv(4096):
            pass
    _kill_group()


def _kill_group() -> None:
    os.killpg(0, signal.SIGKILL)
