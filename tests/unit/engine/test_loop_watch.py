"""The watch of the event loop: it names what blocks the loop, and renews leases meanwhile, within its limit."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tidemill.engine.loop_watch import THREAD_NAME, HeldLeases, LoopBlock, LoopWatch
from tidemill.kernel.errors import StoreError
from tidemill.kernel.settings import Settings
from tidemill.telemetry.events import HEARTBEAT_FAILED, LOOP_BLOCKED, LOOP_GIVEN_UP

PATIENCE = 10.0  # seconds
PAUSE = threading.Event()
QUICK = {"blocked_loop_warning": "20ms", "blocked_loop_limit": "90s", "lease_ttl": "50ms"}


class Shop:
    """Makes stores, and counts what the watch does with them."""

    def __init__(self, failures: int = 0) -> None:
        self.opened = self.closed = 0
        self.renewed: list[str] = []
        self.counted: dict[str, float] = {}
        self.blocks: list[LoopBlock] = []
        self.held = {"leader", "attempts"}
        self._failures = failures

    def make(self) -> Any:
        """Return a store that is this shop."""
        return self

    async def open(self) -> None:
        """Open a store, unless it is to fail."""
        self.opened += 1
        if self.opened <= self._failures:
            raise StoreError("it is away")

    async def close(self) -> None:
        """Close a store."""
        self.closed += 1

    def leases(self, name: str, *, has_limit: bool) -> HeldLeases:
        """Return leases that are held as long as their name is in `held`."""

        async def renew(store: Any) -> None:
            assert store is self
            self.renewed.append(name)

        return HeldLeases(0.02, lambda: name in self.held, renew, has_limit)

    def count(self, name: str, amount: float) -> None:
        """Add to a metric."""
        self.counted[name] = self.counted.get(name, 0) + amount

    def watch(self, **settings: str) -> LoopWatch:
        """Return a watch over leases with and without a limit."""
        leases = [self.leases("leader", has_limit=True), self.leases("attempts", has_limit=False)]
        read = Settings.read(QUICK | settings, environment={})
        return LoopWatch(read, leases, self.make, self.count, self.blocks.append)


def block_until(is_so: Callable[[], bool]) -> None:
    """Block the loop until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it never came about"
        PAUSE.wait(0.002)


def blocking_lines() -> set[str]:
    """Return the lines of the function above, as locations."""
    lines = range(BLOCKING.co_firstlineno, BLOCKING.co_firstlineno + len(list(BLOCKING.co_lines())))
    return {f"{__file__}:{line}" for line in lines}


BLOCKING = block_until.__code__


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.002)


@asynccontextmanager
async def watching(shop: Shop, **settings: str) -> AsyncIterator[LoopWatch]:
    """Watch the running loop."""
    watch = shop.watch(**settings)
    watch.start()
    yield watch
    await watch.close(PATIENCE)
    assert threads() == []
    assert shop.closed == shop.opened


def threads() -> list[threading.Thread]:
    """Return the threads of all watches."""
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


async def test_what_blocks_the_loop_is_named_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    """D11: while it does, once; and it is counted with its whole duration when it has ended."""
    shop = Shop()
    async with watching(shop):
        block_until(lambda: bool(caplog.records))
        assert (shop.counted, shop.blocks) == ({}, [])
        block_until(lambda: len(shop.renewed) > 8)
        await until(lambda: bool(shop.blocks))
    [record] = [record for record in caplog.records if record.msg == LOOP_BLOCKED]
    task = asyncio.current_task()
    [block] = shop.blocks
    assert task is not None
    assert (vars(record)["task"], vars(record)["place"]) == (task.get_name(), block.place)
    assert block.place in blocking_lines()
    assert shop.counted == {"loop_blocked_total": 1, "loop_blocked_seconds_total": block.seconds}
    assert block.seconds > 8 * 0.02 / 2


async def test_a_loop_that_responds_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """D11: it needs no other connection, and short steps are not reported."""
    shop = Shop()
    async with watching(shop, blocked_loop_warning="2s") as watch:
        asked: list[Any] = []
        ask = watch.call_on_loop
        cast(Any, watch).call_on_loop = lambda callback: asked.append(callback) or ask(callback)
        await until(lambda: len(asked) > 3)
        assert len(threads()) == 1
    assert (shop.opened, caplog.records) == (0, [])


async def test_leases_are_renewed_while_the_loop_is_blocked() -> None:
    """W-11, D11: all that are held, on one connection, which stays until the loop has renewed them itself."""
    shop = Shop()
    async with watching(shop):
        block_until(lambda: min(shop.renewed.count("leader"), shop.renewed.count("attempts")) > 3)
        assert (shop.opened, shop.closed) == (1, 0)
        await until(lambda: shop.closed == 1)


async def test_what_is_not_held_is_not_renewed() -> None:
    """D11: and without anything to renew nothing is opened."""
    shop = Shop()
    shop.held = set()
    async with watching(shop):
        began = time.monotonic()
        block_until(lambda: time.monotonic() > began + 0.1)
        assert shop.opened == 0
        shop.held = {"attempts"}
        block_until(lambda: len(shop.renewed) > 2)
    assert set(shop.renewed) == {"attempts"}


async def test_after_the_limit_only_what_has_none_is_renewed(caplog: pytest.LogCaptureFixture) -> None:
    """D11: a node whose loop is blocked for too long gives up what others can do; its attempts run on."""
    shop = Shop()
    async with watching(shop, blocked_loop_limit="60ms"):
        block_until(lambda: any(record.msg == LOOP_GIVEN_UP for record in caplog.records))
        given_up = shop.renewed.count("leader")
        before = shop.renewed.count("attempts")
        block_until(lambda: shop.renewed.count("attempts") > before + 3)
        assert shop.renewed.count("leader") == given_up
    assert [record.msg for record in caplog.records].count(LOOP_GIVEN_UP) == 1


async def test_a_store_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """W-11: the failure is logged and counted, and the next renewal gets another connection."""
    shop = Shop(failures=2)
    caplog.set_level(logging.WARNING)
    async with watching(shop):
        block_until(lambda: len(shop.renewed) > 2)
        await until(lambda: "heartbeat_errors_total" in shop.counted)
    assert shop.counted["heartbeat_errors_total"] == 2
    assert shop.opened == 3
    assert [record.msg for record in caplog.records].count(HEARTBEAT_FAILED) == 2


def test_a_loop_that_was_left_is_not_kept_alive() -> None:
    """W-11: what a loop holds that does not run any longer is as dead as with its process; the thread ends as well."""
    shop = Shop()

    async def start() -> None:
        shop.watch().start()

    with asyncio.Runner() as runner:
        runner.run(start())
        began = time.monotonic()
        block_until(lambda: time.monotonic() > began + 0.1)
        [thread] = threads()
    thread.join(PATIENCE)
    assert (shop.opened, threads()) == (0, [])
