"""Heartbeats: the leases of attempts that will still report are renewed, and lost attempts are stopped."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

from tests.unit.engine.workflows.builders import START
from tidemill.engine.workflows.metrics import WorkflowMetrics
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.engine.workflows.worker.heartbeats import Heartbeats
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import StoreError
from tidemill.kernel.settings import Settings
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey

OURS, TAKEN = AttemptKey("r1", "a", UNMAPPED, 1), AttemptKey("r1", "b", UNMAPPED, 1)


class FakeRuns:
    """A store in which one attempt belongs to another node; it may fail."""

    def __init__(self) -> None:
        self.renewed: list[set[AttemptKey]] = []
        self.is_failing = False

    async def renew_leases(self, owner: str, attempts: Collection[AttemptKey], ttl: float) -> set[AttemptKey]:
        """Renew the leases of all attempts but one."""
        assert (owner, ttl) == ("node", Settings().heartbeat_timeout)
        self.renewed.append(set(attempts))
        if self.is_failing:
            raise StoreError("away")
        return set(attempts) - {TAKEN}


class FakeAttempts:
    """The attempts of a node, which records those that are stopped."""

    def __init__(self, tracked: set[AttemptKey]) -> None:
        self.owner = SimpleNamespace(id="node")
        self.has_claimed = asyncio.Event()
        self.stopped: set[AttemptKey] = set()
        self.executors: dict[str, Any] = {}
        self._tracked = tracked

    def kept_alive(self) -> set[AttemptKey]:
        """Return the attempts whose leases the node renews."""
        return self._tracked

    async def stop(self, keys: Collection[AttemptKey]) -> None:
        """Record the attempts."""
        self.stopped |= set(keys)


class Node:
    """Heartbeats with fakes of everything around them."""

    def __init__(self, *tracked: AttemptKey) -> None:
        self.runs, self.attempts = FakeRuns(), FakeAttempts(set(tracked))
        self.clock, self.metrics = VirtualClock(START), WorkflowMetrics(100)
        runtime: Any = SimpleNamespace(
            store=SimpleNamespace(runs=self.runs),
            clock=self.clock,
            settings=Settings(),
            metrics=self.metrics,
            make_heartbeat_store=None,
        )
        self.heartbeats = Heartbeats(cast(WorkflowRuntime, runtime), cast(LocalAttempts, self.attempts))

    async def advance(self, seconds: float) -> None:
        """Let time pass once all tasks sleep, and give them turns."""
        for _ in range(2):
            for _ in range(10):
                await asyncio.sleep(0)
            self.clock.advance_to(self.clock.monotonic() + seconds)
            seconds = 0.0


async def test_attempts_that_belong_to_another_node_are_stopped() -> None:
    """W-11: a node that lost an attempt must not go on with it."""
    node = Node(OURS, TAKEN)
    await node.heartbeats.renew_leases()
    assert (node.runs.renewed, node.attempts.stopped) == ([{OURS, TAKEN}], {TAKEN})


async def test_without_attempts_the_store_is_left_alone() -> None:
    """An idle node sends nothing."""
    node = Node()
    await node.heartbeats.renew_leases()
    assert node.runs.renewed == []


async def test_leases_are_renewed_at_their_interval_also_after_a_failure() -> None:
    """W-5, W-11: only while attempts are claimed; a failure is counted and ends nothing."""
    node = Node(OURS)
    async with asyncio.TaskGroup() as group:
        beats = group.create_task(node.heartbeats.run(), name="heartbeats")
        await node.advance(60.0)
        assert node.runs.renewed == []
        node.attempts.has_claimed.set()
        node.runs.is_failing = True
        await node.advance(Settings().heartbeat_interval)
        node.runs.is_failing = False
        await node.advance(Settings().heartbeat_interval)
        beats.cancel()
    assert len(node.runs.renewed) == 2
    assert node.metrics.counters["heartbeat_errors_total", ()] == 1
