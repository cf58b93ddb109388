"""The firings of a keyed reactor's partitions that run on this node, as those of one reactor.

Which of them have been read is known to the log of each partition. So every handle of the reactor continues where the
others stopped, and a caller that stops to wait has read nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tidemill.engine.graphs.firing.firing_log import FiringLog
from tidemill.engine.graphs.keys.keyed_reactor import check_request_key
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.graphs.result import Firing
from tidemill.kernel.clock import order_of
from tidemill.kernel.errors import RequestError

RESCAN_INTERVAL = 1.0
"""Seconds after which one who waits also looks at partitions that this node has started meanwhile."""


class LocalFirings:
    """Reads the firings of one keyed reactor."""

    def __init__(self, scheduler: GraphScheduler, find: Callable[[], PartitionedReactor]) -> None:
        self._scheduler = scheduler
        self._loaded = scheduler.loaded
        self._find = find
        self._clock = scheduler.runtime.clock

    def _reactors(self) -> list[RunningReactor]:
        return [one.reactor for one in self._loaded.partitions_of(self._find())]

    def newest(self, limit: int, key: Any = None) -> list[Firing]:
        """Return the newest firings, or those of one key, newest first."""
        wanted = None if key is None else check_request_key(key)
        logs = [one.firing_loop.log for one in self._reactors()]
        found = [
            (order_of(record.started), log, record) for log in logs for record in log.newest_records(limit, wanted)
        ]
        found.sort(key=lambda one: one[0], reverse=True)
        return [log.to_firing(record) for _, log, record in found[:limit]]

    async def next(self, timeout: float | None) -> Firing:
        """Return the oldest firing that no caller has read; wait up to `timeout` seconds if there is none."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        name, stopped = self._find().name, set[RunningReactor]()
        while True:
            reactors = [one for one in self._reactors() if one not in stopped]
            if not reactors:
                raise _no_partitions_error(name, were_stopped=bool(stopped))
            if (firing := _read_oldest([one.firing_loop.log for one in reactors])) is not None:
                return firing
            if deadline is not None and deadline <= self._clock.monotonic():
                raise TimeoutError
            stopped |= await self._wait(reactors, deadline)

    async def _wait(self, reactors: Sequence[RunningReactor], deadline: float | None) -> set[RunningReactor]:
        """Wait until a partition may have fired or has stopped, or until the deadline; return those that stopped."""
        loops = [one.firing_loop for one in reactors]
        waiters = [loop.log.add_waiter() for loop in loops]
        delay = RESCAN_INTERVAL if deadline is None else min(RESCAN_INTERVAL, deadline - self._clock.monotonic())
        timer = self._scheduler.runtime.tasks.start("keyed reactors: next firing", self._clock.sleep(delay))
        for loop in loops:
            loop.fast_path_state.close()
        try:
            await asyncio.wait({*waiters, timer}, return_when=asyncio.FIRST_COMPLETED)
            answers = zip(reactors, waiters, strict=True)
            return {one for one, waiter in answers if waiter.done() and waiter.exception() is not None}
        finally:
            timer.cancel()
            for waiter, loop in zip(waiters, loops, strict=True):
                waiter.cancel()
                loop.fire_due()


def _no_partitions_error(name: str, *, were_stopped: bool) -> RequestError:
    if were_stopped:
        message = f"reactor '{name}' was unloaded, or its partitions have left this node"
        return RequestError(message, code="reactor_not_found", status=404, reactor=name)
    message = f"no partition of reactor '{name}' runs on this node: wait on a node that runs some"
    return RequestError(message, code="reactor_owned", status=409, reactor=name)


def _read_oldest(logs: Sequence[FiringLog]) -> Firing | None:
    """Read the oldest firing of several logs that was not read before."""
    unread = [(order_of(record.started), log) for log in logs if (record := log.peek_unread()) is not None]
    return min(unread, key=lambda one: one[0])[1].next_unread() if unread else None
