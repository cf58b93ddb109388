"""The node for tests: virtual time, no brokers, and ways to break things."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, cast

from tidemill.kernel.clock import Clock, VirtualClock
from tidemill.kernel.durations import Duration, parse
from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings
from tidemill.node import GLANCE, Node
from tidemill.storage.memory.store import MemoryStore
from tidemill.storage.ports import Store

PATIENCE = 50  # turns of the loop, or glances, that are given to work that may be blocked


class TestNode(Node):
    """A node whose time moves only when told to, and whose parts break when asked."""

    __test__ = False  # pytest: this is no test class

    def __init__(
        self,
        store: str | None = None,
        *,
        load: Iterable[Any] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        tenant: str = "public",
        start: datetime | None = None,
        disconnected: Iterable[str] = (),
        clock: VirtualClock | None = None,
        predecessor: "TestNode | None" = None,
    ) -> None:
        self.clock = clock or VirtualClock(start)
        self._arguments = {"store": store, "settings": settings, "tenant": tenant}
        self._predecessor = predecessor
        self._successor: TestNode | None = None
        super().__init__(store, load=load, settings=settings, tenant=tenant)
        self._environment.connects = False
        self._scheduler.severed_at_start = frozenset(disconnected)

    def _make_clock(self) -> Clock:
        return self.clock

    def _make_store(self, address: str | None) -> Store | None:
        """Keep "memory://" in this process: as long as the node and its successors after crashes."""
        if address != "memory://":
            return super()._make_store(address)
        return MemoryStore() if self._predecessor is None else self._predecessor._store

    def _first_loads(self) -> Iterable[tuple[Any, str]]:
        if self._predecessor is None:
            return super()._first_loads()
        return [(thing, tenant) for (tenant, _), thing in self._predecessor._loaded.items()]

    async def _close(self) -> None:
        if self._successor is not None:
            await self._successor._close()
        if self._is_open:
            self._environment.tasks.start("test node: end of grace", self._run_out_of_grace())
        await super()._close()

    async def _run_out_of_grace(self) -> None:
        """Let time pass for what does not end while the node closes: nobody else moves the clock then."""
        while True:
            for _ in range(PATIENCE):
                await asyncio.sleep(GLANCE)
            self.clock.move_to(self.clock.monotonic() + self.settings.unload_timeout)

    # -- time

    async def advance(self, duration: Duration) -> None:
        """Move time forward step by step, running what becomes due; work that blocks is not waited for."""
        target = self.clock.monotonic() + parse(duration)
        if target == float("inf"):
            raise ValueError("time cannot move for ever: advance by a finite duration")
        await self._calm_down()
        while (due := self.clock.next_due()) is not None and due <= target:
            self.clock.move_to(due)
            await self._calm_down()
        self.clock.move_to(target)
        await self._calm_down()

    async def _calm_down(self) -> None:
        """Give work its turns: until nothing is due, or what runs does not get on. The store is always waited for."""
        calm = turns = 0
        while turns < PATIENCE and calm < 3:
            is_writing = self._checkpointer is not None and not self._checkpointer.is_idle
            await asyncio.sleep(GLANCE if is_writing else 0)
            turns += not is_writing
            calm = calm + 1 if self._is_calm else 0

    @property
    def _is_calm(self) -> bool:
        return super()._is_calm and not self.clock.is_waking

    # -- faults

    async def break_accumulator(
        self, name: str, error: BaseException | None = None, *, tenant: str | None = None
    ) -> None:
        """Crash an accumulator once."""
        accumulator = self._scheduler.accumulator(self._tenant(tenant), name)
        accumulator.crash(error or RuntimeError("broken on purpose"))
        await self._calm_down()

    async def break_reactor(self, name: str, error: BaseException | None = None, *, tenant: str | None = None) -> None:
        """Crash a reactor once."""
        self._scheduler.reactor(self._tenant(tenant), name).crash(error or RuntimeError("broken on purpose"))
        await self._calm_down()

    async def disconnect(self, name: str, *, tenant: str | None = None) -> None:
        """Cut an accumulator's connection to its source."""
        self._scheduler.accumulator(self._tenant(tenant), name).sever()
        await self._calm_down()

    async def reconnect(self, name: str, *, tenant: str | None = None) -> None:
        """Give an accumulator its connection back."""
        self._scheduler.accumulator(self._tenant(tenant), name).mend()
        await self._calm_down()

    def fail_store(self, times: int) -> None:
        """Let the next `times` transactions of the store fail."""
        if self._store is None:
            raise RequestError("this node has no store that could fail: pass store=", code="no_store", status=409)
        if type(times) is not int or times < 0:
            raise ValueError(f"times is a number of transactions, not {times!r}")
        self._store.fail_next(times)

    async def crash(self) -> "TestNode":
        """End this node as kill -9 would, and return a started successor on the same store, clock and definitions.

        The `async with` block that opened the first node closes its successors too.
        """
        self._is_open = False
        self._scheduler.abandon()
        await self._environment.tasks.close(self.settings.unload_timeout)
        if self._store is not None:
            self._store.fail_next(0)
            await self._store.close()
        arguments = cast(dict[str, Any], self._arguments)
        self._successor = TestNode(clock=self.clock, predecessor=self, **arguments)
        await self._successor.__aenter__()
        return self._successor


node = TestNode
"""A node on a virtual clock that begins at `start`; `disconnected` accumulators begin without connection."""
