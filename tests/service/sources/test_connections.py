"""Sources that cannot be reached, that are lost, and that refuse: endless tries, and failure only where it is final."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill.engine.graphs.sources.reader import open_reader
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.testing.probes import GraphProbe

QUICK = {"backoff_base": "1ms", "backoff_max": "2ms"}


class Unreliable:
    """A source that raises at its first starts, then delivers one number and stays connected until it is cut."""

    def __init__(self, *errors: BaseException, checkpoint: Any = None) -> None:
        self.errors = list(errors)
        self.checkpoint = checkpoint
        self.starts = 0
        self.cut = asyncio.Event()

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, Any]]:
        self.starts += 1
        if self.errors:
            raise self.errors.pop(0)
        yield self.starts, self.checkpoint or self.starts
        await self.cut.wait()
        self.cut.clear()
        raise ConnectionError("cut")


def reading(source: tm.Source, **options: Any) -> tm.Reactor:
    @tm.stream(source)
    def numbers(event: int) -> int:
        return event

    return tm.Reactor("r", [numbers], **options)


def stream_state(node: tm.Node) -> tm.AccumulatorState:
    return node.reactor("r").state().accumulators["numbers"]


async def until_health(node: tm.Node, health: str) -> None:
    """Return when the stream has this health."""
    async with asyncio.timeout(10):
        while stream_state(node).health != health:
            await node.settle()


async def test_a_source_that_cannot_be_reached_is_tried_without_end(caplog: pytest.LogCaptureFixture) -> None:
    """G-20: after the tries of the settings it is disconnected, never failed; it is live once the source answers."""
    source = Unreliable(*(ConnectionError("away") for _ in range(30)))
    with caplog.at_level(logging.INFO, "tidemill"):
        async with tm.Node(load=[reading(source)], settings=QUICK) as node:
            await until_health(node, "live")
            actions = [event.action for event in node.reactor("r").events()[::-1]]
            restarts = stream_state(node).restarts
    assert (source.starts, restarts) == (31, 30)
    assert actions == ["crashed", "restarted"] * 4 + ["disconnected"]
    healths = [vars(record)["health"] for record in caplog.records if record.msg == "accumulator.health"]
    assert healths == ["connecting", *["disconnected", "connecting"] * 4, "disconnected", "live"]
    assert [record.msg for record in caplog.records].count("accumulator.source_lost") == 1
    (recovered,) = [vars(record) for record in caplog.records if record.msg == "accumulator.source_recovered"]
    assert recovered["failures"] == 30


async def test_a_reactor_that_never_was_live_is_warming_with_the_reason() -> None:
    """G-8, G-20: the state says whom it waits for and why, and the stream takes pushes meanwhile."""
    source = Unreliable(*(ConnectionError("away") for _ in range(9)))
    async with tm.Node(load=[reading(source)], settings={"component_max_failures": 1}) as node:
        await until_health(node, "disconnected")
        assert (await node.push("numbers", 7)).outcome == "emitted"
        state = node.reactor("r").state()
        assert (state.health, state.waiting) == (tm.ReactorHealth.WARMING, ["numbers"])
        assert stream_state(node).reason == "ConnectionError('away')"
        (event,) = node.reactor("r").events()
    assert event.action == "disconnected"
    assert event.reason == (
        "1 failure in a row, the last: ConnectionError('away'); "
        "start the source or correct its address; it is tried again every 60 s"
    )


async def test_a_lost_source_degrades_its_reactor_until_it_is_back() -> None:
    """G-9, G-20: no matter how often it was lost before."""
    source = Unreliable()
    async with tm.Node(load=[reading(source)], settings={**QUICK, "component_max_failures": 2}) as node:
        for number in range(1, 5):
            await until_health(node, "live")
            assert node.reactor("r").state().cache == {"numbers": number}
            assert stream_state(node).reason is None
            source.errors = [ConnectionError("away")] * 3
            source.starts -= 3
            source.cut.set()
            await until_health(node, "disconnected")
            assert node.reactor("r").state().health is tm.ReactorHealth.DEGRADED
            assert node.reactor("r").state().disconnected == ["numbers"]


async def test_a_feed_that_is_cut_often_and_healthy_in_between_is_connected_quickly() -> None:
    """G-20: the limit per hour is for crashes; a cut after `success_reset` is the first failure of a row."""
    source = Unreliable()
    settings = {"backoff_base": "1ms", "backoff_max": "1h", "success_reset": "1ms", "restarts_per_hour": 3}
    async with tm.Node(load=[reading(source)], settings=settings) as node:
        for number in range(1, 9):
            await until_health(node, "live")
            await asyncio.sleep(0.002)  # real time: longer than `success_reset`
            source.cut.set()
            await until(node, lambda number=number: source.starts > number)  # type: ignore[misc]
        actions = {event.action for event in node.reactor("r").events()}
    assert actions == {"crashed", "restarted"}


async def test_a_source_that_raises_fail_is_failed_at_once() -> None:
    """G-20: it says that a retry cannot help; an operator who has corrected the cause restarts it."""
    source = Unreliable(tm.Fail("the account is closed"))
    async with tm.Node(load=[reading(source)], settings=QUICK) as node:
        await until_health(node, "failed")
        state = node.reactor("r").state()
        assert (state.health, state.waiting, source.starts) == (tm.ReactorHealth.WARMING, ["numbers"], 1)
        assert "the account is closed" in (await node.push("numbers", 1)).reason  # type: ignore[operator]
        (event,) = node.reactor("r").events()
        assert (event.action, event.reason) == ("failed", "a retry cannot help: the account is closed")
        await node.restart_accumulator("numbers")
        await until_health(node, "live")


async def test_an_error_of_the_engine_is_a_crash_and_the_fifth_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    """G-20: a defect behind the source is not the connection's fault."""
    source = Unreliable()

    async def defective(event: Any, checkpoint: Any) -> None:
        raise RuntimeError(f"a defect met {event}")

    async with tm.Node(load=[reading(source)], settings=QUICK) as node:
        await until_health(node, "live")
        monkeypatch.setattr(GraphProbe.of(node).accumulator("numbers").kind, "on_event", defective)
        source.cut.set()
        await until_health(node, "failed")
        reasons = [event.reason for event in node.reactor("r").events()[::-1] if event.action in ("crashed", "failed")]
    assert reasons[0] == "ConnectionError('cut')"
    assert reasons[-1] == "5 failures in a row, the last: RuntimeError('a defect met 5')"


async def test_a_restart_by_an_operator_does_not_wait_for_the_next_try() -> None:
    """G-20: nor does the try that was planned come on top of it."""
    source = Unreliable(ConnectionError("away"))
    async with tm.Node(load=[reading(source)], settings={"backoff_base": "1h", "backoff_max": "1h"}) as node:
        await until_health(node, "disconnected")
        await node.restart_accumulator("numbers")
        await until_health(node, "live")
        assert source.starts == 2


class Scripted:
    """A source whose iterator yields what a test gives it; exceptions are raised."""

    encoding = "msgpack"

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.checkpoints: list[Any] = []
        self.acknowledged: list[Any] = []
        self.context: tm.sources.SourceContext | None = None

    async def start(self, checkpoint: Any, context: tm.sources.SourceContext) -> AsyncIterator[Any]:
        self.checkpoints.append(checkpoint)
        self.context = context
        return self.deliveries()

    async def deliveries(self) -> AsyncIterator[Any]:
        while self.script:
            delivery = self.script.pop(0)
            if isinstance(delivery, Exception):
                raise delivery
            yield delivery
            self.acknowledged.append(delivery)
        await asyncio.Event().wait()


async def until(node: tm.Node, condition: Callable[[], bool]) -> None:
    """Return when a condition holds."""
    async with asyncio.timeout(10):
        while not condition():
            await node.settle()


async def test_a_list_is_delivered_as_a_whole_and_acknowledged_after_it(tmp_path: Path) -> None:
    """G-6: the code after a `yield` runs when every event of the list is committed; `encoding` counts."""
    source = Scripted([(b"\x01", 1), (b"\x02", 2)], (b"\xc1", 3), (b"\x04", 4))
    reactor = reading(source, strategy="sequential", durability="boundary")
    async with tm.Node(store=f"sqlite:///{tmp_path}/n.db", load=[reactor]) as node:
        await until(node, lambda: len(source.acknowledged) == 3)
        assert node.reactor("r").state().accumulators["numbers"].emitted == 3
        assert [letter.event for letter in await node.reactor("r").dead_letters()] == [b"\xc1"]
    source.script = [(b"\x05", 5)]
    async with tm.Node(store=f"sqlite:///{tmp_path}/n.db", load=[reactor]) as node:
        await until(node, lambda: len(source.acknowledged) == 4)
    assert source.checkpoints == [None, 4]


@pytest.mark.parametrize("durability", ["boundary", "interval"])
async def test_a_position_that_moved_without_an_event_is_stored(tmp_path: Path, durability: str) -> None:
    """G-24: the next process continues there, also if no event ever came."""
    source = Scripted(tm.sources.Moved(["first", 7]))
    for _ in range(2):
        reactor = reading(source, durability=durability)
        async with tm.Node(store=f"sqlite:///{tmp_path}/n.db", load=[reactor]) as node:
            await until_health(node, "live")
            await until(node, lambda: not source.script)
    assert source.checkpoints == [None, ["first", 7]]


class Yielding:
    """A source that yields one thing."""

    def __init__(self, delivery: Any) -> None:
        self.delivery = delivery

    async def start(self, checkpoint: Any) -> AsyncIterator[Any]:
        yield self.delivery


class Returning(Yielding):
    """A source whose `start` returns something that is no iterator."""

    async def start(self, checkpoint: Any) -> Any:  # type: ignore[override]
        return [self.delivery]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Yielding(b"1"), "yields b'1', not a pair (event, checkpoint), or a list of pairs"),
        (Yielding([b"1", b"2"]), "yields b'1', not a pair"),
        (Yielding((1, 2, 3)), "yields (1, 2, 3), not a pair"),
        (Yielding(((1, 1), (2, 2))), "yields ((1, 1), (2, 2)): yield several events as a list of pairs, not a tuple"),
        (Returning((1, 1)), "`start` returns [(1, 1)], not an async iterator"),
    ],
)
async def test_a_source_that_yields_no_events_with_checkpoints_is_failed(source: tm.Source, words: str) -> None:
    """G-20: a retry cannot help; the reason says what to yield instead."""
    async with tm.Node(load=[reading(source)]) as node:
        await until_health(node, "failed")
        (event,) = node.reactor("r").events()
    assert f"the source of accumulator 'numbers'{' ' if 'yields' in words else ': '}{words}" in (event.reason or "")


async def test_a_source_is_given_what_it_needs_and_its_lag_and_gaps_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """G-22: the state shows the lag that the source has set; a gap is recorded."""
    source = Scripted((b"\x01", 1))
    async with tm.Node(load=[reading(source)], settings={"nats_servers": "nats://here"}) as node:
        await until(node, lambda: bool(source.acknowledged))
        context = source.context
        assert context is not None
        assert (context.name, context.settings.nats_servers) == ("numbers", "nats://here")
        assert stream_state(node).upstream_lag is None
        context.lag = 7
        assert stream_state(node).upstream_lag == 7
        context.report_gap("events 3 to 5 are missing")
        (event,) = node.reactor("r").events()
        assert node.metrics()["accumulator_gaps_total"] == 1
    assert (event.action, event.name, event.reason) == ("gap", "numbers", "events 3 to 5 are missing")
    assert "accumulator.source_gap" in caplog.messages


async def test_a_feed_that_loses_events_all_the_time_does_not_fill_the_store() -> None:
    """Gaps are counted one by one, and recorded once a minute."""
    async with tm.testing.node(load=[reading(Scripted())]) as node:
        stream: Any = node.probe.graphs.accumulator("numbers").kind
        for number in range(1, 1001):
            stream.on_gap(f"gap {number}")
            if number == 500:
                await node.advance("1m")
        reasons = [event.reason for event in node.reactor("r").events()[::-1]]
        assert node.metrics()["accumulator_gaps_total"] == 1000
    assert sorted(reasons) == ["gap 1", "gap 501; 499 more since the last record"]


async def test_a_pause_that_the_other_side_asks_for_is_no_failure() -> None:
    """G-20: the reason is shown, the pause is kept, and the tries of the settings are untouched."""
    pauses = [tm.sources.Disconnected("the server restarts", retry_after=0.0) for _ in range(9)]
    source = Scripted(*pauses, (b"\x01", 1), tm.sources.Disconnected("closed for the night", retry_after=3600))
    async with tm.Node(load=[reading(source)], settings={"component_max_failures": 2}) as node:
        await until(node, lambda: stream_state(node).reason == "closed for the night")
        assert len(source.checkpoints) == 10
        assert (stream_state(node).health, stream_state(node).restarts) == ("disconnected", 0)
        assert node.reactor("r").events() == []


async def test_the_reason_of_a_lost_connection_is_shown_as_it_was_written() -> None:
    """G-9: people read it; any other error shows with its type."""
    source = Scripted(tm.sources.Disconnected("the feed at wss://feed is closed for the day"))
    async with tm.Node(load=[reading(source)], settings={"backoff_base": "1h", "backoff_max": "1h"}) as node:
        await until_health(node, "disconnected")
        assert stream_state(node).reason == "the feed at wss://feed is closed for the day"
        assert [event.reason for event in node.reactor("r").events()] == [stream_state(node).reason]


async def test_pauses_that_follow_one_another_are_logged_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """G-20: a file that is missing for days is looked for all the time, and must not fill the log."""
    path = tmp_path / "log"
    with caplog.at_level(logging.INFO, "tidemill"):
        async with tm.Node(load=[reading(tm.sources.Tail(path, every="1ms"))]) as node:
            await until_health(node, "disconnected")
            await asyncio.sleep(0.1)  # real time: many pauses
            path.write_text("1\n")
            await until_health(node, "live")
    healths = [vars(record)["health"] for record in caplog.records if record.msg == "accumulator.health"]
    assert healths == ["connecting", "disconnected", "live"]
    assert [record.msg for record in caplog.records].count("accumulator.source_paused") == 1


async def test_accumulators_of_two_tenants_are_two_clients() -> None:
    """With one name they would share a session or a consumer at the broker, and so each other's events."""
    names: list[str] = []

    class Named:
        async def start(self, checkpoint: Any, context: tm.sources.SourceContext) -> AsyncIterator[tuple[int, int]]:
            names.append(context.client_name)
            yield 1, 1

    async with tm.Node(load=[reading(Named())]) as node:
        await node.load(reading(Named()), tenant="acme")
        await until(node, lambda: len(names) == 2)
    assert names == ["tidemill-numbers", "tidemill-acme-numbers"]


@pytest.mark.parametrize("source", [tm.Kafka(topic="t", servers="k:1"), tm.Nats(subject="s", servers="nats://n:1")])
def test_groups_and_durable_consumers_have_the_name_of_the_tenant(source: tm.Source) -> None:
    @tm.stream(source)
    def numbers(event: int) -> int:
        return event

    readers = [open_reader(numbers, tenant, Settings(), VirtualClock()) for tenant in ("public", "acme")]
    names = [(*vars(one).values(), *vars(one).get("_settings", {}).values()) for one in readers]
    assert "tidemill-numbers" in names[0]
    assert "tidemill-acme-numbers" in names[1]
