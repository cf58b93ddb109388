"""Every metric of graphs, packages, subscriptions and the server rises by its cause, and by nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import websockets

import tidemill as tm
from tests.service.samples import pair, raising, single
from tests.service.server.serving_node import served
from tests.service.workflows.test_metrics import ELSEWHERE as WORKFLOW_METRICS_ELSEWHERE
from tests.service.workflows.test_metrics import STORIES as WORKFLOW_STORIES
from tidemill.engine.graphs.keys.topic_share import KeyedStream
from tidemill.graphs.keys import partition_of
from tidemill.kernel.clock import SystemClock
from tidemill.packages.status import PACKAGE_METRICS
from tidemill.server.connections import connections_of
from tidemill.server.exposition import METRICS
from tidemill.server.metrics import ServerMetrics
from tidemill.server.request_context import RequestContext
from tidemill.server.serving import serving
from tidemill.telemetry.metrics import shown_names
from tidemill.telemetry.tracing import NoSpans
from tidemill.testing import TestNode

NODE = {"scheduler_leader", "scheduler_ticks_total", "uptime_seconds", "build_info"}
"""What a node without work has."""
FIRING = {"accumulator_events_total", "reactor_fires_total", "push_seconds"}
RUN = {
    *("claims_total", "runs_total", "tasks_total", "runs_active", "dispatch_latency_seconds"),
    *("run_duration_seconds", "task_duration_seconds", "run_last_success_timestamp_seconds"),
}


class Cause(NamedTuple):
    """Something that happens on a loaded node, and all metrics that change by it."""

    load: Callable[[], list[Any]]
    act: Callable[[TestNode], Awaitable[Any]]
    changed: set[str]


def failing() -> list[Any]:
    """Return a reactor that fails for 13."""
    return single(raising(when=lambda value: value == 13)).load


def reporting(**options: Any) -> list[Any]:
    """Return a reactor, and a workflow that its firings start."""
    workflow = tm.Workflow("w", triggers=[tm.on_firing("r", **options)])

    @workflow.task
    async def work() -> None:
        return None

    return [*pair().load, workflow]


def deciding() -> list[Any]:
    """Return a graph, and a workflow that at most one of its outputs in an hour starts."""
    sample = single()
    workflow = tm.Workflow("w", triggers=[tm.on_output("g", "out", cooldown="1h")])

    @workflow.task
    async def work() -> None:
        return None

    return [*sample.load, workflow]


async def push(node: TestNode, *events: Any) -> None:
    for event in events:
        await node.push("a", event)
    await node.settle()


def slow() -> list[Any]:
    """Return a graph that takes a second of the virtual clock."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    async def out(a: int) -> int:
        await CLOCK[0].sleep(1.0)
        return a

    return [reactor, graph]


CLOCK: list[Any] = []


async def push_and_wait(node: TestNode) -> None:
    CLOCK[:] = [node.clock]
    async with asyncio.TaskGroup() as group:
        group.create_task(node.push("a", 1), name="push")
        await node.advance("2s")


async def break_accumulator(node: TestNode) -> None:
    await node.break_accumulator("a")
    await node.push("a", 1)
    await node.advance("2s")


async def break_reactor(node: TestNode) -> None:
    await node.break_reactor("r")
    await node.advance("2s")


async def start_twice(node: TestNode) -> None:
    await push(node, 1, 2)


async def fail_to_start(node: TestNode) -> None:
    await push(node, 1)
    await node.advance("20s")


async def disconnect(node: TestNode) -> None:
    await node.disconnect("a")


def following() -> list[Any]:
    """Return a reactor on a source, which a test node does not read."""

    @tm.stream(tm.Nats(subject="a"))
    def a(event: int) -> int:
        return event

    return [tm.Reactor("r", [a])]


def keyed() -> list[Any]:
    """Return a keyed reactor on a Kafka topic, which a test node does not read."""

    @tm.stream(tm.Kafka(topic="t"))
    def a(event: int) -> int:
        return event

    return [tm.Reactor("r", [a], key=lambda event: event, partitions=2, durability="interval")]


async def misplace(node: TestNode) -> None:
    """Let a partition read an event whose key belongs to the other one."""
    number = 1 - partition_of(7, 2)
    reader = node.probe.graphs.accumulator(f"a[{number}]").kind
    assert isinstance(reader, KeyedStream)
    await reader.on_events([(7, 1)])


async def lose_events(node: TestNode) -> None:
    node.probe.graphs.accumulator("a").kind.on_gap("events 1 to 3 are missing")  # type: ignore[attr-defined]


def needing_both() -> list[Any]:
    """Return a graph that needs two inputs, on a reactor that fires for each."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    @tm.passthrough
    def b(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a, b])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(a: int, b: int) -> int:
        return a + b

    return [reactor, graph]


CAUSES = {
    "push": Cause(failing, lambda node: push(node, 1), FIRING),
    "failing firing": Cause(
        failing, lambda node: push(node, 13), FIRING | {"reactor_fire_failures_total", "dead_letters_total"}
    ),
    "event of another type": Cause(
        failing, lambda node: push(node, "x"), {"accumulator_events_total", "push_seconds", "dead_letters_total"}
    ),
    "missing input": Cause(
        needing_both, lambda node: push(node, 1), FIRING - {"reactor_fires_total"} | {"reactor_incomplete_total"}
    ),
    "slow graph": Cause(slow, push_and_wait, FIRING | {"reactor_firing_seconds"}),
    "lost source": Cause(failing, disconnect, {"reactor_health"}),
    "missing events": Cause(following, lose_events, {"accumulator_gaps_total"}),
    "new key": Cause(keyed, lambda node: push(node, 1), FIRING | {"reactor_keys_active"}),
    "misplaced event": Cause(
        keyed,
        misplace,
        FIRING | {"reactor_keys_active", "accumulator_misplaced_total"},
    ),
    "broken accumulator": Cause(
        failing, break_accumulator, {"accumulator_restarts_total", "boundaries_dropped_total", "push_seconds"}
    ),
    "broken reactor": Cause(failing, break_reactor, {"reactor_restarts_total"}),
    "firing that starts a run": Cause(
        lambda: reporting(when="payload.a > 0"),
        lambda node: push(node, 1),
        FIRING | RUN - {"runs_active"} | {"subscription_runs_total"},
    ),
    "start that fails": Cause(
        lambda: reporting(when="payload.b > 0"),
        fail_to_start,
        FIRING | {"subscription_errors_total", "subscription_dead_letters_total", "dead_letters_total"},
    ),
    "repeated decision": Cause(
        deciding,
        start_twice,
        FIRING | RUN - {"runs_active"} | {"subscription_runs_total", "subscription_suppressed_total"},
    ),
}


METRIC_OF = {name: one.name for one in METRICS for name in (one.name, *one.shown)}
"""The name of the metric, by a name under which a node shows it."""


def changes(before: dict[str, float], after: dict[str, float]) -> set[str]:
    """Return the metrics that have changed, apart from those that change by themselves."""
    return {METRIC_OF[name] for name in after if after[name] != before.get(name, 0)} - NODE


@pytest.mark.parametrize("name", CAUSES)
async def test_a_cause_changes_its_metrics_and_no_others(name: str) -> None:
    """graphs.md, Metrics: an alert must not fire for something else."""
    cause = CAUSES[name]
    async with tm.testing.node(load=cause.load()) as node:
        await node.settle()
        before = node.metrics()
        await cause.act(node)
        assert changes(before, node.metrics()) == cause.changed


async def test_a_failing_store_changes_its_metrics_and_no_others(tmp_path: Path) -> None:
    """G-20: failed checkpoints."""
    load = single(durability="interval").load
    async with tm.testing.node(f"sqlite:///{tmp_path}/tidemill.db", load=load) as node:
        await node.settle()
        before = node.metrics()
        node.fail_store(times=1)
        await push(node, 1)
        await node.advance("1s")
        assert changes(before, node.metrics()) - FIRING == {"checkpoint_failures_total"}


async def test_a_checkpoint_counts_the_keys_that_it_stores(tmp_path: Path) -> None:
    """Keys in the store, which may be in memory too."""
    async with tm.testing.node(f"sqlite:///{tmp_path}/tidemill.db", load=keyed()) as node:
        for event in (1, 2, 1):
            await node.push("a", event)
        before = node.metrics()
        assert (before["reactor_keys_active"], before["reactor_keys_stored"]) == (2, 0)
        await node.settle()
        assert changes(before, node.metrics()) == {"reactor_keys_stored"}
        assert node.metrics()["reactor_keys_stored"] == 2


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Send each frame of a WebSocket back."""
    scope["path_template"] = "/ws/echo"
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


async def test_connections_and_frames_change_their_metrics_and_no_others() -> None:
    """S-3: counted by route and direction; a connection only while it is open."""
    async with tm.Node() as node:
        app = RequestContext(echo, ServerMetrics(node), NoSpans(), SystemClock())
        before = node.metrics()
        async with serving(app, "127.0.0.1", 0) as url, websockets.connect(url.replace("http", "ws")) as connection:
            await connection.send("one")
            assert await connection.recv() == "one"
            during = node.metrics()
            assert changes(before, during) == {"websocket_connections", "websocket_frames_total"}
            assert (during["websocket_connections"], during["websocket_frames_total"]) == (1, 2)
        after = node.metrics()
        assert changes(during, after) == {"websocket_connections", "http_requests_total"}
        assert (after["websocket_connections"], after["http_request_duration_seconds_count"]) == (0, 0)


async def test_requests_and_readers_change_their_metrics_and_no_others() -> None:
    """Ops: an answered request, and a reader of the event feed."""
    async with tm.Node() as node, served(node) as server:
        before = node.metrics()
        await server.http.get("/version")
        answered = node.metrics()
        assert changes(before, answered) == {"http_requests_total", "http_request_duration_seconds"}
        async with node.event_feed.subscribe():
            assert changes(answered, node.metrics()) == {"event_feed_readers"}


async def test_connections_change_their_metrics_and_no_others() -> None:
    """Open ones, and those that the server dropped; test_hostile_connections has those that it could not accept."""
    async with tm.Node(settings={"head_timeout": "500ms"}) as node:
        connections = connections_of(node)
        before = node.metrics()
        async with serving(echo, "127.0.0.1", 0, connections) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            async with asyncio.timeout(10):
                assert await reader.read() == b""
            writer.close()
        assert changes(before, node.metrics()) == {"http_connections_dropped_total"}
        async with serving(echo, "127.0.0.1", 0, connections) as url, websockets.connect(url.replace("http", "ws")):
            assert node.metrics()["http_connections"] == 1


CONNECTIONS = {"http_connections", "http_connections_dropped_total", "http_accept_errors_total"}
FORWARDING = {"forwarded_requests_total", "links_open", "links_unreached"}
"""What test_links raises: these need several nodes."""
SERVER = {"websocket_connections", "websocket_frames_total", "http_requests_total", "http_request_duration_seconds"}


def test_every_metric_has_a_cause() -> None:
    """Contract 72: a metric that nothing raises is a defect. test_reconciler raises those of packages."""
    caused = set[str]().union(
        *(cause.changed for cause in CAUSES.values()),
        WORKFLOW_STORIES,
        WORKFLOW_METRICS_ELSEWHERE,
        shown_names(PACKAGE_METRICS),
    )
    caused |= (
        SERVER
        | CONNECTIONS
        | FORWARDING
        | {"http_answers_broken_total"}
        | NODE
        | {"event_feed_readers", "checkpoint_failures_total", "reactor_keys_stored"}
    )
    assert {METRIC_OF[name] for name in caused} == {one.name for one in METRICS}
