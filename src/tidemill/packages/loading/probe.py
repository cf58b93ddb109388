"""The probe: a child process imports a package before it is loaded, and reports what it declares.

A fault in that process concerns its package alone. The package may hang, crash, exit, print without end, use all memory
or leave processes behind: the child is held to limits and ended with everything that it started, and what it did
becomes one error of that package. Only a reply with the nonce that the child was given counts; an exit code proves
nothing.

Where the system allows it, the package can neither see nor signal the node: `probe_isolation` says how. But it may read
and write the files that the node's user may.

Everything about the process happens on a separate thread, so that a child that prints as fast as it can does not
block the event loop, and a cancelled caller leaves nothing behind.
"""

import asyncio
import os
import re
import secrets
import select
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from math import ceil
from pathlib import Path
from typing import IO

import msgspec

from tidemill.graphs.snapshot import KeptValue
from tidemill.kernel.clock import Clock, SystemClock
from tidemill.kernel.errors import Location, OperationError, Problem
from tidemill.kernel.settings import Settings
from tidemill.packages.format.manifest import Manifest
from tidemill.packages.loading.inspector import (
    EXIT_UNANSWERED,
    MEMORY_REMEDY,
    PROBE_MARK_VARIABLE,
    ProbeLimits,
    ProbeReply,
    ProbeRequest,
    memory_text,
)
from tidemill.packages.loading.metadata import PackageMetadata, ProbeError
from tidemill.packages.loading.probe_environment import ProbeEnvironment
from tidemill.packages.loading.probe_isolation import is_first_in_namespace
from tidemill.packages.sanitizing import append_last_lines

__all__ = ["ProbeError", "ProbeLimits", "WarmProbe", "probe_limits", "run_probe"]

DEFAULT_PROBE_LIMITS = ProbeLimits()
_TIME_REMEDY = "do no work at import, import large libraries in tasks, or raise the setting probe_timeout"

_CHILD_MODULE = "tidemill.packages.loading.inspector"
_INHERITED_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_POLL_INTERVAL = 0.01
_ABORT_GRACE_TIMEOUT = 0.5
"""Seconds that a child that is aborted has to print its stack."""

_KILL_TIMEOUT = 2.0
"""Seconds to wait for killed processes that are not children of this process."""

_READ_SIZE = 65_536
_OUTPUT_TAIL_SIZE = 8_192
_SHOWN_LINE_LIMIT = 5
_SHOWN_WIDTH_LIMIT = 200
_CRASH_DUMP_PATTERN = re.compile(r"^(?:Fatal Python error: |(?:Current thread|Thread) 0x)", re.MULTILINE)
_FRAME_PATTERN = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)


def probe_limits(settings: Settings) -> ProbeLimits:
    """Return the limits that settings give to the import of a package."""
    timeout = settings.probe_timeout
    return ProbeLimits(wall=timeout, cpu=max(ceil(timeout), 1), memory=settings.probe_memory)


async def run_probe(
    folder: Path,
    manifest: Manifest,
    *,
    environment: ProbeEnvironment | None = None,
    limits: ProbeLimits = DEFAULT_PROBE_LIMITS,
    clock: Clock,
    warm_probe: "WarmProbe | None" = None,
    kept: tuple[KeptValue, ...] = (),
) -> PackageMetadata:
    """Import a package in a child process and return its metadata; raise ProbeError if it cannot be loaded.

    `folder` holds the files of the package and nothing else; nothing is written to it. The package sees nothing of this
    process unless the environment says otherwise. A warm probe saves the start of a process, and is replaced after use.
    """
    if not hasattr(os, "fork"):
        raise OperationError("a package is imported in a process with limits first, which needs Linux or macOS")
    probe_run = _ProbeRun(
        _build_request(folder, manifest, limits, environment or ProbeEnvironment.isolated(), kept), warm_probe
    )
    pool = ThreadPoolExecutor(1, thread_name_prefix="tidemill probe")
    work = asyncio.get_running_loop().run_in_executor(pool, probe_run.run)
    pool.shutdown(wait=False)
    async with asyncio.TaskGroup() as group:
        timer = group.create_task(_expire_after(probe_run, limits.wall, clock), name=f"probe limit of {manifest.name}")
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            probe_run.cancel()
            await asyncio.wait([work])
            raise
        finally:
            timer.cancel()
            if warm_probe is not None:
                warm_probe.start_replacement()
    return _read_result(work.result(), manifest, probe_run.request)


def _build_request(
    folder: Path, manifest: Manifest, limits: ProbeLimits, environment: ProbeEnvironment, kept: tuple[KeptValue, ...]
) -> ProbeRequest:
    return ProbeRequest(
        nonce=secrets.token_bytes(32),
        folder=os.path.realpath(folder),
        manifest=manifest,
        limits=limits,
        environment=environment,
        kept=kept,
    )


async def _expire_after(probe_run: "_ProbeRun", seconds: float, clock: Clock) -> None:
    await clock.sleep(seconds)
    probe_run.expire()


# -- the process


class _ProbeExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a probe process ended."""

    status: int
    """The exit code; negative for the signal that ended the process."""

    timed_out: bool
    printed_too_much: bool
    """Whether it printed more than the limit."""

    leftover_processes: int
    """The number of processes that it left running."""

    reply: bytes
    reply_truncated: bool
    """Whether the reply was longer than the limit."""

    output: str


class _BoundedBuffer:
    """Keeps the first and the last bytes of a stream, and counts those between."""

    def __init__(self, head: int, tail: int = 0) -> None:
        self._head_room = head
        self._tail_size = tail
        self._head = bytearray()
        self._tail = bytearray()
        self.dropped = 0

    @property
    def count(self) -> int:
        """The number of bytes that were added."""
        return len(self._head) + len(self._tail) + self.dropped

    def add(self, data: bytes) -> None:
        taken = data[: self._head_room]
        self._head_room -= len(taken)
        self._head += taken
        self._tail += data[len(taken) :]
        excess = len(self._tail) - self._tail_size
        if excess > 0:
            del self._tail[:excess]
            self.dropped += excess

    def head(self) -> bytes:
        return bytes(self._head)

    def text(self) -> str:
        gap = f"\n[... {self.dropped} bytes left out ...]\n" if self.dropped else ""
        return f"{self._head.decode(errors='replace')}{gap}{self._tail.decode(errors='replace')}"


class _ProbeProcess:
    """A process that waits for one package to probe. It ends with the process that started it."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16)
        self._monotonic = SystemClock().monotonic  # real processes take real time, even if the node's clock is virtual
        with ExitStack() as stack:
            home = tempfile.TemporaryDirectory(prefix="tidemill-probe-", ignore_cleanup_errors=True)
            self._request = stack.enter_context(_anonymous_file())  # a write to it never blocks, unlike one to a pipe
            self.reply_fd, reply_end = os.pipe()
            stack.callback(os.close, self.reply_fd)
            wake_end, self._wake_fd = os.pipe()
            stack.callback(os.close, self._wake_fd)
            try:
                self.process = self._start(stack.enter_context(home), reply_end, wake_end)
            finally:
                os.close(reply_end)
                os.close(wake_end)
            assert self.process.stdout is not None
            self.output_fd = stack.enter_context(self.process.stdout).fileno()
            self._resources = stack.pop_all()

    def _start(self, home: str, reply_end: int, wake_end: int) -> subprocess.Popen[bytes]:
        inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
        # Isolated, so that only installed modules can be imported; unbuffered, so that the last output is not lost.
        flags = ["-I", "-B", "-u", "-X", "faulthandler"]
        descriptors = [self._request.fileno(), reply_end, wake_end]
        return subprocess.Popen(
            [sys.executable, *flags, "-m", _CHILD_MODULE, *map(str, descriptors)],
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=home,
            env={**inherited, "HOME": home, "TMPDIR": home, PROBE_MARK_VARIABLE: self._mark},
            pass_fds=descriptors,
            start_new_session=True,
        )

    def send_request(self, request: ProbeRequest) -> None:
        """Send the package to probe."""
        self._request.write(msgspec.msgpack.encode(request))
        self._request.flush()
        with suppress(BrokenPipeError):  # the process has ended, which the caller notices
            os.write(self._wake_fd, b"!")

    def kill(self) -> None:
        """Kill the process and everything that it started, and wait until they are gone."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # before it is reaped, its pid cannot be reused
        deadline = self._monotonic() + _KILL_TIMEOUT
        while (others := list(self.iter_descendants())) and self._monotonic() < deadline:
            for pid in others:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            select.select([], [], [], _POLL_INTERVAL)
        self.process.wait()

    def iter_descendants(self) -> Iterator[int]:
        """Yield the processes of its group, and those that left the group, by the mark in their environment."""
        mark = f"{PROBE_MARK_VARIABLE}={self._mark}".encode()
        for name in os.listdir("/proc") if sys.platform == "linux" else ():
            if not name.isdigit() or int(name) == self.process.pid:
                continue
            with suppress(OSError):  # it has ended, or belongs to another user
                state, _, group, *_ = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                if state in (b"Z", b"X"):
                    continue
                is_ours = int(group) == self.process.pid or mark in Path("/proc", name, "environ").read_bytes()
                if is_ours and not is_first_in_namespace(int(name)):
                    yield int(name)

    def close(self) -> None:
        """Release the resources of a process that has ended."""
        self._resources.close()


def _anonymous_file() -> IO[bytes]:
    """Return a file without a name, in memory if possible: it may hold secrets."""
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("tidemill request"), "w+b")
    return tempfile.TemporaryFile()


class WarmProbe:
    """A probe process that is started before it is needed, for folders whose packages change often.

    Each process is used once and then replaced. Any thread may call.
    """

    def __init__(self) -> None:
        self._child: _ProbeProcess | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the process that is ready; None if there is none."""
        child = self._child
        return None if child is None else child.process.pid

    def take(self) -> _ProbeProcess | None:
        """Return the process, if there is one; it then belongs to the caller."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None and _has_ended(child.process.pid):
            _kill_and_close(child)
            return None
        return child

    def start_replacement(self) -> None:
        """Start a process on a thread, if there is none."""
        threading.Thread(target=self.start, daemon=True, name="tidemill warm probe").start()

    def start(self) -> None:
        """Start a process if there is none; blocks for a moment."""
        with self._lock, suppress(OSError):  # without it the next package only takes longer
            if self._child is None and not self._is_closed:
                self._child = _ProbeProcess()

    def close(self) -> None:
        """End the process and start no other."""
        with self._lock:
            self._is_closed = True
            child, self._child = self._child, None
        if child is not None:
            _kill_and_close(child)


def _kill_and_close(child: _ProbeProcess) -> None:
    child.kill()
    child.close()


class _ProbeRun:
    """One probe of one package. `run` blocks a thread; the other methods may be called from any thread."""

    def __init__(self, request: ProbeRequest, warm_probe: WarmProbe | None) -> None:
        self.request = request
        self._warm_probe = warm_probe
        self._output = _BoundedBuffer(request.limits.output, _OUTPUT_TAIL_SIZE)
        self._reply = _BoundedBuffer(request.limits.answer)
        self._monotonic = SystemClock().monotonic  # real processes take real time, even if the node's clock is virtual
        self._timed_out = False
        self._is_cancelled = False

    def expire(self) -> None:
        """End the child because it exceeded its time."""
        self._timed_out = True

    def cancel(self) -> None:
        """End the child because its caller was cancelled."""
        self._is_cancelled = True

    def run(self) -> _ProbeExit:
        """Start the child, collect its output and its reply, and end it."""
        try:
            with ExitStack() as stack:
                return self._run(stack)
        except OSError as error:
            raise OperationError(f"package '{self.request.manifest.name}' could not be probed: {error}") from error

    def _run(self, stack: ExitStack) -> _ProbeExit:
        child = (self._warm_probe.take() if self._warm_probe is not None else None) or _ProbeProcess()
        stack.callback(child.close)
        sources = {child.output_fd: self._output, child.reply_fd: self._reply}
        left = 0
        try:
            child.send_request(self.request)
            self._read_until_exit(child.process, sources)
            left = len(list(child.iter_descendants()))
        finally:
            child.kill()
        _drain_pipes(sources)
        return _ProbeExit(
            status=child.process.returncode,
            timed_out=self._timed_out,
            printed_too_much=self._printed_too_much,
            leftover_processes=left,
            reply=self._reply.head(),
            reply_truncated=self._reply.dropped > 0,
            output=self._output.text(),
        )

    @property
    def _printed_too_much(self) -> bool:
        return self._output.count > self.request.limits.printed

    def _read_until_exit(self, process: subprocess.Popen[bytes], sources: dict[int, _BoundedBuffer]) -> None:
        """Read the child's pipes until it has ended or must be killed, even if other processes hold them open."""
        deadline = None
        with selectors.DefaultSelector() as selector:
            for descriptor, buffer in sources.items():
                selector.register(descriptor, selectors.EVENT_READ, buffer)
            while not _has_ended(process.pid):
                if self._is_cancelled or (deadline is not None and self._monotonic() > deadline):
                    return
                if deadline is None and (self._timed_out or self._printed_too_much):
                    deadline = self._monotonic() + _ABORT_GRACE_TIMEOUT
                    os.kill(process.pid, signal.SIGABRT)  # faulthandler prints the stack, and the process dies
                for key, _ in selector.select(_POLL_INTERVAL):
                    if data := os.read(key.fd, _READ_SIZE):
                        key.data.add(data)
                    else:
                        selector.unregister(key.fd)


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended, without reaping it, so that its pid is not reused."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _drain_pipes(sources: dict[int, _BoundedBuffer]) -> None:
    """Read what is left in the pipes, at most what they hold: another process may still write to them."""
    for descriptor, buffer in sources.items():
        os.set_blocking(descriptor, False)
        with suppress(BlockingIOError):
            for _ in range(64):
                data = os.read(descriptor, _READ_SIZE)
                if not data:
                    break
                buffer.add(data)


# -- the result


def _read_result(exit_info: _ProbeExit, manifest: Manifest, request: ProbeRequest) -> PackageMetadata:
    """Return the metadata of a package, or raise its problems."""
    subject = f"package '{manifest.name}'"
    dump = _CRASH_DUMP_PATTERN.search(exit_info.output)
    printed = exit_info.output[: dump.start()] if dump else exit_info.output
    reply = _decode_reply(exit_info, request.nonce)
    if reply is None:
        location = _crash_location(exit_info.output[dump.start() :], request.folder) if dump else None
        message = append_last_lines(_describe_exit(exit_info, request.limits), _last_lines(printed))
        is_transient = not exit_info.printed_too_much and (exit_info.timed_out or exit_info.status < 0)
        raise ProbeError([Problem(message=message, location=location)], subject, printed, is_transient)
    problems = list(reply.problems)
    if reply.import_failed:
        first = problems[0]
        problems[0] = msgspec.structs.replace(first, message=append_last_lines(first.message, _last_lines(printed)))
    if exit_info.leftover_processes:
        message = (
            f"importing it started processes and left {exit_info.leftover_processes} of them running: start "
            "none before a task runs"
        )
        problems.append(Problem(message=message))
    if problems or reply.metadata is None:
        raise ProbeError(problems, subject, printed, reply.is_transient)
    return reply.metadata


def _decode_reply(exit_info: _ProbeExit, nonce: bytes) -> ProbeReply | None:
    if exit_info.printed_too_much or exit_info.reply_truncated or not exit_info.reply.startswith(nonce):
        return None
    try:
        return msgspec.msgpack.decode(exit_info.reply[len(nonce) :], type=ProbeReply)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _describe_exit(exit_info: _ProbeExit, limits: ProbeLimits) -> str:
    """Return what happened to a child that sent no valid reply."""
    if exit_info.printed_too_much:
        return f"importing it printed more than {limits.printed:,} bytes: print little at import, and log in tasks"
    if exit_info.timed_out:
        return f"importing it took longer than {limits.wall:g} s, and was ended: {_TIME_REMEDY}"
    if exit_info.status == -signal.SIGXCPU:
        return f"importing it used more than {limits.cpu} s of processor time, and was ended: {_TIME_REMEDY}"
    if exit_info.status in (-signal.SIGKILL, -signal.SIGTERM):
        return f"importing it was killed with {_signal_name(-exit_info.status)}, by itself or for lack of memory"
    if exit_info.status == -signal.SIGABRT and limits.memory:  # what C++ does without memory
        remedy = f"if it needs more than {memory_text(limits.memory)}, {MEMORY_REMEDY}"
        return f"importing it crashed with SIGABRT: {remedy}"
    if exit_info.status < 0:
        return f"importing it crashed with {_signal_name(-exit_info.status)}"
    if exit_info.status == EXIT_UNANSWERED:
        return "importing it broke the probe: it closed descriptors that it did not open, or changed Python itself"
    if exit_info.reply_truncated:
        return f"it declares more than {limits.answer:,} bytes, or wrote to descriptors that it did not open"
    if exit_info.status == 0 and exit_info.reply:
        return "importing it broke the probe: it wrote to descriptors that it did not open"
    return f"importing it ended the process, with exit code {exit_info.status}, before it was complete"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return f"signal {number}"


def _crash_location(dump: str, folder: str) -> Location | None:
    """Return the package's line in the stack that Python printed when it died."""
    _, current, after = dump.partition("Current thread")
    for file, line in _FRAME_PATTERN.findall(after if current else dump):
        if Path(file).is_relative_to(folder):
            return Location(str(Path(file).relative_to(folder)), int(line))
    return None


def _last_lines(printed: str) -> list[str]:
    """Return the last lines of the output, shortened."""
    lines = [line.rstrip() for line in printed[-_OUTPUT_TAIL_SIZE:].splitlines() if line.strip()][-_SHOWN_LINE_LIMIT:]
    return [line[:_SHOWN_WIDTH_LIMIT] for line in lines]
