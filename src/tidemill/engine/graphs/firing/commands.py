"""Operator commands on firings: fire manually, replay a dead firing, wait for the next firing."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tidemill.engine.graphs.firing.firing_log import FiringRecord
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.result import Firing
from tidemill.kernel.errors import OperationError, RequestError


class FiringCommands:
    """The operator's commands on one reactor's firing loop."""

    def __init__(self, firing_loop: FiringLoop, runtime: GraphRuntime) -> None:
        self._loop = firing_loop
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._task_name = f"reactor {firing_loop.name}"

    async def fire_manually(self, values: Sequence[Any] | None = None, key_state: KeyState | None = None) -> Firing:
        """Fire regardless of the criteria: with the cache as it is, or with `values` in its place.

        With keys, `key_state` is that of the key to fire.
        """
        self._loop.reactor.check_ready()
        if self._loop.driver.is_inside_firing:
            message = (
                f"{self._task_name}: a node cannot wait for a firing of its own reactor; push to an accumulator instead"
            )
            raise RequestError(message, code="inside_firing", status=409)
        title = f"{self._task_name}: manual firing"
        withdrawn = asyncio.Event()
        try:
            record = await self._tasks.run_shielded(title, self._fire_in_turn(values, withdrawn, key_state))
        except asyncio.CancelledError:
            withdrawn.set()  # a firing that waits no longer starts; one that is running is finished
            raise
        return self._loop.log.to_firing(record)

    async def _fire_in_turn(
        self, values: Sequence[Any] | None, withdrawn: asyncio.Event, key_state: KeyState | None
    ) -> FiringRecord:
        loop = self._loop
        async with loop.driver.turn():
            if withdrawn.is_set():
                raise OperationError(f"{self._task_name}: the caller of this manual firing was cancelled")
            inputs = loop.inputs_of(key_state)
            self._check_inputs_complete(list(inputs.cache if values is None else values))
            loop.fast_path_state.close()
            if values is None:
                return await loop.fire_inputs(inputs.take_snapshot(), key_state)
            loop.reactor.replace_windows(values, key_state)
            return await loop.fire_inputs(inputs.replace_cache(values), key_state)

    def _check_inputs_complete(self, values: list[Any]) -> None:
        missing = [graph.missing_inputs(values) for graph in self._loop.graphs.values()]
        if missing and all(missing):
            names = sorted({name for one in missing for name in one})
            sources = ", ".join(map(repr, names))
            message = (
                f"reactor '{self._loop.name}' cannot fire: no value yet from {sources}; "
                "push to it first, or use fire_with"
            )
            raise RequestError(message, code="incomplete_inputs", status=409, missing=names)

    async def replay(self, dead_letter_id: str) -> Firing:
        """Run the graphs of a dead firing again on its own snapshot; cache and flags stay as they are."""
        loop = self._loop
        firing = loop.results.prepare_replay(dead_letter_id, loop.graphs)
        title = f"{self._task_name}: replay"
        started, results = await self._tasks.run_shielded(title, loop.driver.rerun(firing))
        return loop.results.finish_replay(dead_letter_id, firing, started, results, degraded=loop.is_degraded)

    async def next_firing(self, timeout: float | None) -> Firing:
        """Return the oldest firing not returned before; wait up to `timeout` seconds if there is none."""
        loop = self._loop
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while (firing := loop.log.next_unread()) is None:
            waiter = loop.log.add_waiter()
            if loop.fast_path_state.credit != 0:
                loop.fast_path_state.close()
            await (waiter if deadline is None else self._wait_until(deadline, waiter))
        loop.fire_due()
        return firing

    async def _wait_until(self, deadline: float, waiter: "asyncio.Future[None]") -> None:
        """Wait for the next firing; raise TimeoutError after the deadline."""
        timer = self._tasks.start(f"{self._task_name}: next firing", self._expire(deadline, waiter))
        try:
            await waiter
        finally:
            timer.cancel()

    async def _expire(self, deadline: float, waiter: "asyncio.Future[None]") -> None:
        await self._clock.sleep(deadline - self._clock.monotonic())
        if not waiter.done():
            waiter.set_exception(TimeoutError())
