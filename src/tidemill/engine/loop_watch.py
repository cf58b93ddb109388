"""The watch of a node's event loop: it names code that blocks the loop, and renews the leases of the node meanwhile.

Author code on the loop may block it: a driver that is not async, a computation. Nothing else runs on the node until it
returns, and no lease is renewed: other nodes would take over what works here. So a thread asks the loop to respond from
time to time. While it does not, the thread samples its stack, and renews the leases on another connection to the store.

A blocked leader plans nothing, and the events of a blocked reactor wait. So the leases of both are renewed only up to a
limit. A process that is frozen falls silent as a whole: this thread is frozen with it.
"""

import asyncio
import logging
import sys
import sysconfig
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, NamedTuple

from tidemill.kernel.concurrency import call_in_new_thread
from tidemill.kernel.durations import format_duration
from tidemill.kernel.errors import StoreError
from tidemill.kernel.settings import Settings
from tidemill.storage.store import Store
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

THREAD_NAME = "tidemill-loop-watch"
_STORE_TIMEOUT = 5.0
"""Seconds for each store call: the store's own deadlines do not cover a commit whose outcome is unknown."""


class HeldLeases(NamedTuple):
    """Leases of one kind, with what renews them on another connection. The thread of the watch calls the functions."""

    interval: float
    """Seconds between two renewals. The first one comes after half of it."""
    are_held: Callable[[], bool]
    renew: Callable[[Store], Awaitable[Any]]
    has_limit: bool = True
    """Whether they are given up when the loop is blocked for `blocked_loop_limit`."""


BLOCK_MARK = "it blocked the event loop of its node for"
"""Begins the line in the log of an attempt that has blocked the loop: `why` finds it on every node."""


class LoopBlock(NamedTuple):
    """What blocks an event loop, or has blocked it."""

    task: str
    """The asyncio task; that of an attempt has its token as name."""
    graph: str
    """The graph whose node it is; "" if it is not a node."""
    node: str
    """The function of the node."""
    place: str
    """The file and line of the author's code."""
    seconds: float


def describe_block(block: LoopBlock) -> str:
    """Return the sentence about an attempt that has blocked the event loop of its node."""
    return (
        f"{BLOCK_MARK} {format_duration(round(block.seconds, 1))} at {block.place}, so "
        "everything else there waited: make it a plain `def`, await a library that does not block, or give it "
        "executor='subprocess'"
    )


class LoopWatch:
    """A thread that watches the event loop of a node."""

    def __init__(
        self,
        settings: Settings,
        leases: Sequence[HeldLeases],
        make_store: Callable[[], Store] | None,
        count: Callable[[str, float], None],
        on_block_ended: Callable[[LoopBlock], None],
    ) -> None:
        """Make a watch; `count` adds to a metric, and is called on the loop like `on_block_ended`."""
        self.make_store = make_store
        """Makes another store of the same address, not opened yet; None if no other node could take anything."""
        self._leases = leases if make_store is not None else ()
        self._count, self._on_block_ended = count, on_block_ended
        self._warning, self._limit = settings.blocked_loop_warning, settings.blocked_loop_limit
        self._lease_ttl = settings.lease_ttl
        shortest = min((one.interval for one in self._leases), default=self._warning)
        self._period = min(self._warning, shortest) / 2
        """Seconds between two questions, and for the loop to respond to one."""
        self._responded = threading.Event()
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: _Connection | None = None

    def start(self) -> None:
        """Watch the running loop, in a daemon thread, which keeps no process alive."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name=THREAD_NAME, daemon=True)
        self._thread.start()

    async def close(self, timeout: float) -> None:
        """Stop the thread, and wait up to `timeout` seconds for it to end."""
        self._is_closed.set()
        self._responded.set()
        if self._thread is not None:
            await call_in_new_thread(f"{THREAD_NAME}: end", self._thread.join, timeout)

    # -- on the thread

    def _watch(self) -> None:
        while not self._is_closed.wait(self._period) and not self._loop.is_closed():
            asked_at = monotonic()
            if self._is_blocked():
                self._follow(asked_at)
            elif self._connection is not None and asked_at > self._connection.renewed_at + self._lease_ttl:
                self._disconnect()  # not before: the loop has renewed everything on its own connection by now
        self._disconnect()

    def _is_blocked(self) -> bool:
        """Return whether the loop does not respond. A loop that has been stopped, with its attempts, is not blocked."""
        self._responded.clear()
        if not self.call_on_loop(self._responded.set) or not self._loop.is_running():
            return False
        return not self._responded.wait(self._period) and self._is_waiting

    @property
    def _is_waiting(self) -> bool:
        return not self._responded.is_set() and not self._is_closed.is_set() and self._loop.is_running()

    def _follow(self, began: float) -> None:
        """Name what blocks the loop, and renew leases, until the loop responds."""
        is_named = is_given_up = False
        due = [began + one.interval / 2 for one in self._leases]
        while self._is_waiting:
            now = monotonic()
            is_named = is_named or (now - began >= self._warning and self._name_block(began, now))
            is_over_limit = now - began >= self._limit
            for number, leases in enumerate(self._leases):
                if now < due[number] or not leases.are_held():
                    continue
                if not (is_over_limit and leases.has_limit):
                    due[number] = now + (leases.interval if self._renew(leases) else 0.0)
                elif not is_given_up:
                    is_given_up = True
                    logger.warning(events.LOOP_GIVEN_UP, extra={"seconds": round(now - began, 1)})
            self._responded.wait(self._period)

    def _name_block(self, began: float, now: float) -> bool:
        """Log what blocks the loop, and let the loop count it once it responds; False if no author code is seen."""
        block = sample_block(self._loop, self._loop_thread, now - began)
        if block is None:
            return False
        what = {"attempt" if "#" in block.task else "task": block.task, "graph": block.graph, "node": block.node}
        fields = {name: value for name, value in what.items() if value}
        logger.warning(events.LOOP_BLOCKED, extra=fields | {"place": block.place, "seconds": round(block.seconds, 1)})
        return self.call_on_loop(lambda: self._end_block(block._replace(seconds=monotonic() - began)))

    def _end_block(self, block: LoopBlock) -> None:
        self._count("loop_blocked_total", 1)
        self._count("loop_blocked_seconds_total", block.seconds)
        self._on_block_ended(block)

    def _renew(self, leases: HeldLeases) -> bool:
        """Renew leases on the connection of the thread; False if that failed."""
        assert self.make_store is not None
        try:
            if self._connection is None:
                self._connection = _Connection(self.make_store())
                self._connection.run(self._connection.store.open())
            self._connection.run(leases.renew(self._connection.store))
            self._connection.renewed_at = monotonic()
        except Exception as error:  # a failed renewal does not end the thread
            self.call_on_loop(lambda: self._count("heartbeat_errors_total", 1))
            traceback = None if isinstance(error, StoreError | TimeoutError) else error
            logger.warning(events.HEARTBEAT_FAILED, exc_info=traceback, extra={"error": str(error)})
            self._disconnect()
            return False
        return True

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.run(connection.store.close())
            except Exception as error:  # as above
                logger.warning(events.HEARTBEAT_FAILED, extra={"error": str(error)})
            finally:
                connection.runner.close()

    def call_on_loop(self, callback: Callable[[], None]) -> bool:
        """Schedule a callback on the loop; False if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop was closed meanwhile
            return False
        return True


class _Connection:
    """A store of the thread, on an event loop of the thread."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.renewed_at = monotonic()

    def run(self, work: Awaitable[Any]) -> None:
        """Wait for a call of the store."""
        self.runner.run(_with_timeout(work))


async def _with_timeout(work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(_STORE_TIMEOUT):  # real time: the store is outside the injected clock
        return await work


# -- samples

_TIDEMILL_FOLDER = str(Path(__file__).parents[1])
_RUNNER_FILE = str(Path(__file__).parent / "workflows" / "executors" / "runner.py")
_ASYNCIO_FOLDER = str(Path(asyncio.__file__).parent)
_SITE_FOLDERS = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_STANDARD_FOLDER = sysconfig.get_path("stdlib")
_GRAPH_PREFIX = "<graph "
_LOOP_FILES = tuple(f"{_ASYNCIO_FOLDER}/{name}.py" for name in ("base_events", "events", "runners"))


def sample_block(loop: asyncio.AbstractEventLoop, thread: int, seconds: float) -> LoopBlock | None:
    """Return what the thread of a loop does at the moment; None if it runs no author code."""
    frame = sys._current_frames().get(thread)
    called, caller = _frames_of_author(frame)
    author = _author_frame(called, caller)
    if author is None:
        return None
    task = asyncio.current_task(loop)
    graph = caller.f_code.co_filename.removeprefix(_GRAPH_PREFIX) if caller is not None and _is_graph(caller) else ""
    return LoopBlock(
        task="a callback" if task is None else task.get_name(),
        graph=graph.rpartition(" ")[0],
        node=called[-1].f_code.co_name if graph else "",
        place=f"{author.f_code.co_filename}:{author.f_lineno}",
        seconds=seconds,
    )


def _frames_of_author(frame: FrameType | None) -> tuple[list[FrameType], FrameType | None]:
    """Return the frames above the last one of Tidemill or of the loop, innermost first, and that one."""
    called = []
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith((_TIDEMILL_FOLDER, _GRAPH_PREFIX)) or file in _LOOP_FILES:
            break
        called.append(frame)
        frame = frame.f_back
    return called, frame


def _author_frame(called: Sequence[FrameType], caller: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the author's own code, or else of the library that a task or a node is part of."""
    own = [one for one in called if not one.f_code.co_filename.startswith((_STANDARD_FOLDER, *_SITE_FOLDERS))]
    if own:
        return own[0]
    is_called_as_author = _is_graph(caller) or (caller is not None and caller.f_code.co_filename == _RUNNER_FILE)
    return called[-1] if called and is_called_as_author else None


def _is_graph(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_GRAPH_PREFIX)
