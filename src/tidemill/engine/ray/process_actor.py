"""An actor that holds one process: starts it, waits for its end, and takes it along when it dies itself.

This module runs in a worker of Ray, on a node of the cluster, where Tidemill is installed as well.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

BOUND_MODULE = "tidemill.engine.ray.bound_process"

LOG_TAIL_LIMIT = 4096
"""The bytes of the process's output that are kept."""

OUTPUT_GRACE = 1.0
"""Seconds to wait for the rest of the output: a grandchild may hold the pipe open for longer."""

LINGER = 30.0
"""Seconds that the actor stays after its process has ended, so that every gateway learns how."""


class HeldProcess:
    """One process and its end, for which any number of callers may wait."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", BOUND_MODULE, str(os.getpid()), *arguments]
        self._environment = {**os.environ, **environment}
        self._started: Future[subprocess.Popen[bytes]] = Future()
        self._end: Future[dict[str, Any]] = Future()
        self._log_tail = b""
        self._is_stopped = False
        # The kernel kills the process when the thread that has started it ends: the thread waits for its end.
        threading.Thread(target=self._hold, name="process", daemon=True).start()
        self._process = self._started.result()

    async def wait_end(self) -> dict[str, Any]:
        """Wait until the process has ended, and return its exit code and the end of its output."""
        return await asyncio.wrap_future(self._end)

    def read_log_tail(self) -> str:
        """Return the end of what the process has printed so far."""
        return self._log_tail.decode(errors="replace")

    async def stop(self, grace: float) -> None:
        """End the process by SIGTERM, then by SIGKILL after `grace` seconds, and wait until it has ended."""
        self._is_stopped = True
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await asyncio.shield(self.wait_end())
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self.wait_end()

    def _signal(self, number: signal.Signals) -> None:
        """SIGTERM is for the process, which ends its children in order; SIGKILL is for its whole group."""
        with suppress(ProcessLookupError):
            if self._process.poll() is not None:
                return
            if number is signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                os.kill(self._process.pid, number)

    def _hold(self) -> None:
        try:
            process = self._start()
        except OSError as error:
            self._started.set_exception(error)
            return
        reader = threading.Thread(target=self._read_output, args=[process], name="process output", daemon=True)
        reader.start()
        self._started.set_result(process)
        status = process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has left behind
        reader.join(OUTPUT_GRACE)
        end = {"exit": status, "log_tail": self.read_log_tail(), "is_stopped": self._is_stopped}
        self._end.set_result(end)

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its group is killed as a whole
        )

    def _read_output(self, process: "subprocess.Popen[bytes]") -> None:
        """Keep the end of the output, and show all of it in the log of the worker."""
        assert process.stdout is not None
        with process.stdout as output:
            while data := os.read(output.fileno(), 65536):
                self._log_tail = (self._log_tail + data)[-LOG_TAIL_LIMIT:]
                with suppress(OSError, ValueError):
                    sys.stdout.buffer.write(data)
                    sys.stdout.flush()


class ProcessActor(HeldProcess):
    """A process in a worker of Ray, which ends after it: the gateways of all nodes have time to learn how it ended."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(arguments, environment)
        self._end.add_done_callback(_end_worker_later)

    async def confirm(self) -> None:
        """Return: a call that is answered shows that the actor exists, and so its process."""


def _end_worker_later(_: object) -> None:
    """End the worker unless a gateway removes the actor before: it must not hold its resources any longer."""
    timer = threading.Timer(LINGER, os._exit, [0])
    timer.daemon = True
    timer.start()
