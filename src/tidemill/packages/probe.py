"""Trying a package before it is loaded: a child process imports it, and says what it declares.

What happens in that process is the package's own affair. It may hang, crash, exit, print without end, need all memory,
or leave processes behind: the child is held to limits, ended with everything that it started, and what it did becomes
one error of that package. Only an answer with the nonce that the child was given counts; an exit code proves nothing.

This keeps a node safe from mistakes. It is no cage for hostile code, which may do what the node's user may do.

Everything about the process happens in one thread of its own, so that a child that prints as fast as it can keeps no
loop busy, and a caller that is cancelled leaves nothing behind.
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
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from tidemill.kernel.clock import Clock, SystemClock
from tidemill.kernel.errors import DefinitionError, Location, OperationError, Problem
from tidemill.packages.examination import MARK, UNANSWERED, Answer, ProbeLimits, Request
from tidemill.packages.manifest import Manifest
from tidemill.packages.metadata import Metadata
from tidemill.packages.surroundings import Surroundings
from tidemill.packages.words import harmless_problem, with_last_lines

__all__ = ["ProbeError", "ProbeLimits", "Spare", "probe"]

STANDARD = ProbeLimits()

_PROGRAM = "tidemill.packages.examination"
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_TICK = 0.01
_GRACE = 0.5
"""How long a child that took too long may say where it was."""

_PATIENCE = 2.0
"""How long killed processes are waited for that are nobody's children here."""

_CHUNK = 65_536
_TAIL = 8_192
_SHOWN_LINES = 5
_SHOWN_WIDTH = 200
_DUMP = re.compile(r"^(?:Fatal Python error: |(?:Current thread|Thread) 0x)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)


class ProbeError(DefinitionError):
    """A package cannot be loaded: what happened when it was tried, or every problem of what it declares."""

    def __init__(
        self, problems: Iterable[Problem], subject: str = "package", output: str = "", may_pass: bool = False
    ) -> None:
        super().__init__(map(harmless_problem, problems), subject)
        self.output = output
        """What it printed, shortened if that was much; as it came, so that it is not to be shown like that."""
        self.may_pass = may_pass
        """Whether the machine may be to blame, so that the same package may be sound at another time."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems, self.subject, self.output, self.may_pass)


async def probe(
    folder: Path,
    manifest: Manifest,
    *,
    surroundings: Surroundings | None = None,
    limits: ProbeLimits = STANDARD,
    clock: Clock,
    spare: "Spare | None" = None,
) -> Metadata:
    """Import a package in a child process and return what it declares; ProbeError if it is not fit to be loaded.

    The folder holds what belongs to the package and nothing else: nothing is written to it. Of this process the package
    finds nothing, unless the surroundings say otherwise. A `spare` saves the time
    in which a process starts; what is used of it is replaced.
    """
    trial = _Trial(_request(folder, manifest, limits, surroundings or Surroundings.bare()), spare)
    pool = ThreadPoolExecutor(1, thread_name_prefix="tidemill probe")
    work = asyncio.get_running_loop().run_in_executor(pool, trial.run)
    pool.shutdown(wait=False)
    async with asyncio.TaskGroup() as group:
        timer = group.create_task(_time_out(trial, limits.wall, clock), name=f"probe limit of {manifest.name}")
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            trial.give_up()
            await asyncio.wait([work])
            raise
        finally:
            timer.cancel()
            if spare is not None:
                spare.renew_soon()
    return _judged(work.result(), manifest, trial.request)


def _request(folder: Path, manifest: Manifest, limits: ProbeLimits, surroundings: Surroundings) -> Request:
    return Request(
        nonce=secrets.token_bytes(32),
        folder=os.path.realpath(folder),
        manifest=manifest,
        limits=limits,
        surroundings=surroundings,
    )


async def _time_out(trial: "_Trial", seconds: float, clock: Clock) -> None:
    await clock.sleep(seconds)
    trial.time_out()


# -- the process


class _Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended."""

    status: int
    """Its exit code; negative for the signal that ended it."""

    is_late: bool
    is_loud: bool
    """Whether it printed more than may be."""

    left: int
    """How many processes it left behind."""

    answer: bytes
    is_cut: bool
    """Whether there was more of the answer than may be."""

    output: str


class _Kept:
    """Bytes as they come: the first of them, the very last, and how many there were between."""

    def __init__(self, head: int, tail: int = 0) -> None:
        self._room = head
        self._size = tail
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0

    @property
    def count(self) -> int:
        """How many there were."""
        return len(self._head) + len(self._tail) + self.left_out

    def add(self, data: bytes) -> None:
        taken = data[: self._room]
        self._room -= len(taken)
        self._head += taken
        self._tail += data[len(taken) :]
        excess = len(self._tail) - self._size
        if excess > 0:
            del self._tail[:excess]
            self.left_out += excess

    def first(self) -> bytes:
        return bytes(self._head)

    def text(self) -> str:
        gap = f"\n[... {self.left_out} bytes left out ...]\n" if self.left_out else ""
        return f"{self._head.decode(errors='replace')}{gap}{self._tail.decode(errors='replace')}"


class _Child:
    """A process that can try one package, and waits for it. It ends by itself with the process that started it."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16)
        self._monotonic = SystemClock().monotonic  # of the grace that a real process gets, whatever clock the node has
        with ExitStack() as stack:
            home = tempfile.TemporaryDirectory(prefix="tidemill-probe-", ignore_cleanup_errors=True)
            self._request = stack.enter_context(_nameless_file())  # nobody waits until it is read, as in a pipe
            self.answers, answering = os.pipe()
            stack.callback(os.close, self.answers)
            waiting, self._calling = os.pipe()
            stack.callback(os.close, self._calling)
            try:
                self.process = self._start(stack.enter_context(home), answering, waiting)
            finally:
                os.close(answering)
                os.close(waiting)
            assert self.process.stdout is not None
            self.output = stack.enter_context(self.process.stdout).fileno()
            self._belongings = stack.pop_all()

    def _start(self, home: str, answering: int, waiting: int) -> subprocess.Popen[bytes]:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        # Isolated, so that only what is installed can be imported; unbuffered, so that the last words are heard.
        flags = ["-I", "-B", "-u", "-X", "faulthandler"]
        descriptors = [self._request.fileno(), answering, waiting]
        return subprocess.Popen(
            [sys.executable, *flags, "-m", _PROGRAM, *map(str, descriptors)],
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=home,
            env={**kept, "HOME": home, "TMPDIR": home, MARK: self._mark},
            pass_fds=descriptors,
            start_new_session=True,
        )

    def ask(self, request: Request) -> None:
        """Let it try a package."""
        self._request.write(msgspec.msgpack.encode(request))
        self._request.flush()
        with suppress(BrokenPipeError):  # it has ended, which is noticed
            os.write(self._calling, b"!")

    def end(self) -> None:
        """Kill it and all that it started, and wait until they are gone."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # before it is waited for: its number is nobody else's yet
        deadline = self._monotonic() + _PATIENCE
        while (others := list(self.others())) and self._monotonic() < deadline:
            for pid in others:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            select.select([], [], [], _TICK)
        self.process.wait()

    def others(self) -> Iterator[int]:
        """Yield the processes of its group, and those that left it, by the mark in their environment."""
        mark = f"{MARK}={self._mark}".encode()
        for name in os.listdir("/proc") if sys.platform == "linux" else ():
            if not name.isdigit() or int(name) == self.process.pid:
                continue
            with suppress(OSError):  # it has ended, or is somebody else's
                state, _, group, *_ = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                if state in (b"Z", b"X"):
                    continue
                if int(group) == self.process.pid or mark in Path("/proc", name, "environ").read_bytes():
                    yield int(name)

    def close(self) -> None:
        """Let go of what belongs to it; it has ended."""
        self._belongings.close()


def _nameless_file() -> IO[bytes]:
    """Return a file that nobody else finds; in memory, if the system can do that: there may be secrets in it."""
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("tidemill request"), "w+b")
    return tempfile.TemporaryFile()


class Spare:
    """One child that was started before it is needed, for folders in which packages change all the time.

    It is used once, by whoever takes it, and then there is another one. Any thread may call.
    """

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._is_closed = False
        self._turn = threading.Lock()

    def take(self) -> _Child | None:
        """Return the child, if there is one; it belongs to the caller."""
        with self._turn:
            child, self._child = self._child, None
        if child is not None and _has_ended(child.process.pid):
            _see_off(child)
            return None
        return child

    def renew_soon(self) -> None:
        """Start another one if there is none, on a thread: that takes a moment."""
        threading.Thread(target=self._renew, daemon=True, name="tidemill spare probe").start()

    def _renew(self) -> None:
        with self._turn, suppress(OSError):  # then the next package does without
            if self._child is None and not self._is_closed:
                self._child = _Child()

    def close(self) -> None:
        """End it; there will be no other."""
        with self._turn:
            self._is_closed = True
            child, self._child = self._child, None
        if child is not None:
            _see_off(child)


def _see_off(child: _Child) -> None:
    child.end()
    child.close()


class _Trial:
    """One package that is tried, until nothing of its child is left. `run` is for a thread, the rest for any."""

    def __init__(self, request: Request, spare: Spare | None) -> None:
        self.request = request
        self._spare = spare
        self._output = _Kept(request.limits.output, _TAIL)
        self._answer = _Kept(request.limits.answer)
        self._monotonic = SystemClock().monotonic  # of the grace that a real process gets, whatever clock the node has
        self._is_late = False
        self._is_unwanted = False

    def time_out(self) -> None:
        """End the child because its time is over."""
        self._is_late = True

    def give_up(self) -> None:
        """End the child because nobody wants to know any more."""
        self._is_unwanted = True

    def run(self) -> _Ended:
        """Start the child, take what it says, and see it off."""
        try:
            with ExitStack() as stack:
                return self._run(stack)
        except OSError as error:
            raise OperationError(f"package '{self.request.manifest.name}' could not be tried: {error}") from error

    def _run(self, stack: ExitStack) -> _Ended:
        child = (self._spare.take() if self._spare is not None else None) or _Child()
        stack.callback(child.close)
        sources = {child.output: self._output, child.answers: self._answer}
        left = 0
        try:
            child.ask(self.request)
            self._attend(child.process, sources)
            left = len(list(child.others()))
        finally:
            child.end()
        _drain(sources)
        return _Ended(
            status=child.process.returncode,
            is_late=self._is_late,
            is_loud=self._is_loud,
            left=left,
            answer=self._answer.first(),
            is_cut=self._answer.left_out > 0,
            output=self._output.text(),
        )

    @property
    def _is_loud(self) -> bool:
        return self._output.count > self.request.limits.printed

    def _attend(self, process: subprocess.Popen[bytes], sources: dict[int, _Kept]) -> None:
        """Take what the child says until it has ended, or has to. Who else holds its descriptors does not matter."""
        deadline = None
        with selectors.DefaultSelector() as selector:
            for descriptor, kept in sources.items():
                selector.register(descriptor, selectors.EVENT_READ, kept)
            while not _has_ended(process.pid):
                if self._is_unwanted or (deadline is not None and self._monotonic() > deadline):
                    return
                if deadline is None and (self._is_late or self._is_loud):
                    deadline = self._monotonic() + _GRACE
                    os.kill(process.pid, signal.SIGABRT)  # it says where it is, and dies of it
                for key, _ in selector.select(_TICK):
                    if data := os.read(key.fd, _CHUNK):
                        key.data.add(data)
                    else:
                        selector.unregister(key.fd)


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended; it is left to be waited for, so that its number stays its own."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _drain(sources: dict[int, _Kept]) -> None:
    """Take what is still in the pipes: not more than they hold, should somebody write even now."""
    for descriptor, kept in sources.items():
        os.set_blocking(descriptor, False)
        with suppress(BlockingIOError):
            for _ in range(64):
                data = os.read(descriptor, _CHUNK)
                if not data:
                    break
                kept.add(data)


# -- the verdict


def _judged(ended: _Ended, manifest: Manifest, request: Request) -> Metadata:
    """Return what a package declares, or raise what is wrong with it."""
    subject = f"package '{manifest.name}'"
    dump = _DUMP.search(ended.output)
    printed = ended.output[: dump.start()] if dump else ended.output
    answer = _answer(ended, request.nonce)
    if answer is None:
        location = _crash_site(ended.output[dump.start() :], request.folder) if dump else None
        said = with_last_lines(_fate(ended, request.limits), _last_lines(printed))
        may_pass = not ended.is_loud and (ended.is_late or ended.status < 0)
        raise ProbeError([Problem(message=said, location=location)], subject, printed, may_pass)
    problems = list(answer.problems)
    if answer.failed:
        first = problems[0]
        problems[0] = msgspec.structs.replace(first, message=with_last_lines(first.message, _last_lines(printed)))
    if ended.left:
        message = f"importing it started processes and left {ended.left} of them running: start none before a task runs"
        problems.append(Problem(message=message))
    if problems or answer.metadata is None:
        raise ProbeError(problems, subject, printed, answer.may_pass)
    return answer.metadata


def _answer(ended: _Ended, nonce: bytes) -> Answer | None:
    if ended.is_loud or ended.is_cut or not ended.answer.startswith(nonce):
        return None
    try:
        return msgspec.msgpack.decode(ended.answer[len(nonce) :], type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _fate(ended: _Ended, limits: ProbeLimits) -> str:
    """Return what happened to a child whose answer does not count, if there is one."""
    if ended.is_loud:
        return f"importing it printed more than {limits.printed:,} bytes: print little at import, and log in tasks"
    if ended.is_late:
        return f"importing it took longer than {limits.wall:g} s, and was ended: do no work at import"
    if ended.status == -signal.SIGXCPU:
        return f"importing it used more than {limits.cpu} s of processor time, and was ended: do no work at import"
    if ended.status in (-signal.SIGKILL, -signal.SIGTERM):
        return f"importing it was killed with {_signal_name(-ended.status)}, by itself or for lack of memory"
    if ended.status < 0:
        return f"importing it crashed with {_signal_name(-ended.status)}"
    if ended.status == UNANSWERED:
        return "importing it broke the probe: it closed descriptors that it did not open, or changed Python itself"
    if ended.is_cut:
        return f"it declares more than {limits.answer:,} bytes, or wrote to descriptors that it did not open"
    if ended.status == 0 and ended.answer:
        return "importing it broke the probe: it wrote to descriptors that it did not open"
    return f"importing it ended the process, with exit code {ended.status}, before it was complete"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return f"signal {number}"


def _crash_site(dump: str, folder: str) -> Location | None:
    """Return where the package was, from what Python wrote when it died."""
    _, current, after = dump.partition("Current thread")
    for file, line in _FRAME.findall(after if current else dump):
        if Path(file).is_relative_to(folder):
            return Location(str(Path(file).relative_to(folder)), int(line))
    return None


def _last_lines(printed: str) -> list[str]:
    """Return the end of what was printed: few lines, none of them long."""
    lines = [line.rstrip() for line in printed[-_TAIL:].splitlines() if line.strip()][-_SHOWN_LINES:]
    return [line[:_SHOWN_WIDTH] for line in lines]
