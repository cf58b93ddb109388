"""The event feed: what happens on a node and in its store, live and resumable."""

import asyncio
from pathlib import Path

import pytest

import tidemill as tm
from tests.contract.samples import NOON
from tests.postgres import PostgresServer
from tests.service.samples import raising, single
from tidemill.engine.event_feed.feed import (
    FEED_EVENT_TYPES,
    EventFeed,
    EventSubscription,
    FeedEvent,
    TooSlowError,
    select_types,
)
from tidemill.engine.tasks import TaskScope, cancel_and_wait
from tidemill.engine.workflows.notifications import RunNotifier
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import StoreError
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.telemetry.node_events import NodeEvents

DEADLINE = 10.0  # seconds of real time for an event that must come


def flow(name: str = "report", *, fails: bool = False) -> tm.Workflow:
    """Return a workflow of one task."""
    workflow = tm.Workflow(name)

    @workflow.task
    async def fetch() -> int:
        if fails:
            raise tm.Fail("no data")
        return 1

    return workflow


async def take(events: EventSubscription, count: int) -> list[FeedEvent]:
    """Return so many events."""
    found: list[FeedEvent] = []
    async with asyncio.timeout(DEADLINE):
        while len(found) < count:
            found += await events.read()
    return found


async def rest(events: EventSubscription) -> list[FeedEvent]:
    """Return the events up to the end of the node."""
    async with asyncio.timeout(DEADLINE):
        return [event async for event in events]


async def test_a_run_is_seen_from_start_to_end() -> None:
    """S-3: run and task events in order, with the tenant and a growing id."""
    async with tm.testing.node(load=flow()) as node, node.event_feed.subscribe("run.*,task.*") as events:
        run = await node.start("report")
        await run.wait()
        found = await take(events, 6)
    assert [(one.type, one.fields["state"]) for one in found] == [
        ("run.started", "running"),
        ("task.state", "scheduled"),
        ("task.state", "queued"),
        ("task.state", "running"),
        ("task.state", "success"),
        ("run.ended", "success"),
    ]
    assert {(one.tenant, one.fields["run"], one.fields["workflow"]) for one in found} == {("public", run.id, "report")}
    assert len({one.id for one in found}) == len(found)
    json = found[1].to_json()
    assert {"id", "type", "at", "tenant", "run", "task", "index", "attempt", "before", "state"} <= json.keys()
    assert (json["task"], json["index"]) == ("fetch", None)


async def test_only_the_chosen_types_come() -> None:
    async with tm.testing.node(load=[flow(), *single().load]) as node, node.event_feed.subscribe("run.ended") as events:
        await node.push("a", 1)
        await (await node.start("report")).wait()
        assert [one.type for one in await take(events, 1)] == ["run.ended"]


async def test_a_tenant_sees_its_own_events_and_those_of_the_node() -> None:
    """S-5: nothing of another tenant passes."""
    async with tm.testing.node() as node:
        for tenant in ("acme", "beta"):
            await node.load(flow(), tenant=tenant)
        async with node.event_feed.subscribe(tenant="acme") as events, node.event_feed.subscribe() as everything:
            for tenant in ("beta", "acme"):
                await (await node.start("report", tenant=tenant)).wait()
                await node.unload("workflow:report", tenant=tenant)
            await take(everything, 14)
            seen = {one.tenant for one in await take(events, 7)}
    assert seen == {"acme"}


@pytest.mark.parametrize("cut", range(9))
async def test_a_reader_that_comes_back_misses_nothing_and_gets_nothing_twice(cut: int) -> None:
    """S-3: whichever event was the last that it got, while others went on reading or no one did."""
    async with tm.testing.node(load=[flow(), *single().load]) as node:
        async with node.event_feed.subscribe() as events:
            await node.disconnect("a")
            await (await node.start("report")).wait()
            everything = await take(events, 8)
        await node.reconnect("a")
        await (await node.start("report")).wait()
        async with node.event_feed.subscribe(after=everything[-1].id) as events:
            everything += await take(events, 8)
        async with node.event_feed.subscribe(after=everything[cut].id) as events:
            again = await take(events, 15 - cut)
    assert sorted(map(content, again)) == sorted(map(content, everything[cut + 1 :]))
    assert len(set(map(content, everything))) == 16


def content(event: FeedEvent) -> str:
    """Return an event as text, without its id: the order between a node and its store is not fixed."""
    return str(event.to_json() | {"id": ""})


async def test_run_events_resume_at_another_node_of_the_store(tmp_path: Path) -> None:
    """S-3: after the end of a server, and with a note that events of that server are missing."""
    address = f"sqlite:///{tmp_path}/tidemill.db"
    async with tm.testing.node(address, load=flow()) as node:
        async with node.event_feed.subscribe() as events:
            await (await node.start("report")).wait()
            last = (await take(events, 6))[2]
        await (await node.start("report")).wait()
    async with tm.testing.node(address, load=flow()) as node:
        async with node.event_feed.subscribe("run.*", after=last.id) as events:
            runs = await take(events, 3)
        async with node.event_feed.subscribe("run.*,reactor.*", after=last.id) as events:
            both = await take(events, 4)
    assert [one.type for one in runs] == ["run.ended", "run.started", "run.ended"]
    assert [one.type for one in both] == ["events.gap", *(one.type for one in runs)]
    assert "not kept" in both[0].fields["reason"]


async def test_a_reader_that_is_ahead_of_a_server_gets_no_event_twice(tmp_path: Path) -> None:
    """S-3: another server may have sent it events that the tail of this one has not read yet."""
    store = f"sqlite:///{tmp_path}/tidemill.db"
    async with (
        tm.Node(store, load=flow()) as first,
        tm.Node(store, load=flow()) as second,
        second.event_feed.subscribe("run.*") as other,
    ):
        feed = second.event_feed
        await cancel_and_wait(feed._tail_task)  # it reads nothing, as if it were slow
        async with first.event_feed.subscribe("run.*") as events:
            await (await first.start("report")).wait()
            read = await take(events, 2)
        async with feed.subscribe(None, after=read[-1].id) as again:
            feed._tail_task = feed._tasks.start("tail", feed.tail.run())
            (gap,) = await take(again, 1)
            assert (gap.type, "another node" in gap.fields["reason"]) == ("events.gap", True)
            feed.tail.wake()
            assert len(await take(other, 2)) == 2
            await (await first.start("report")).wait()
            found = [one for one in await take(again, 2) if one.type.startswith("run.")]
    assert not {one.fields["run"] for one in found} & {one.fields["run"] for one in read}


@pytest.mark.parametrize("types", [None, "run.*"])
async def test_an_id_of_another_store_is_a_gap(types: str | None) -> None:
    """Also for readers of runs alone: some of these may be lost too."""
    async with tm.testing.node() as node, node.event_feed.subscribe(types, after="99-0-abc") as events:
        (gap,) = await take(events, 1)
    assert (gap.type, gap.tenant) == ("events.gap", None)
    assert "another store" in gap.fields["reason"]


async def test_health_dead_letters_and_recoveries_are_events() -> None:
    """S-3."""
    sample = single(raising(when=lambda value: value == 13))
    types = "reactor.health,accumulator.health,dead_letter.*,component.*"
    async with tm.testing.node(load=sample.load) as node, node.event_feed.subscribe(types) as events:
        await node.push("a", 13)
        await node.push("a", "x")
        await node.break_accumulator("a")
        await node.advance("1s")
        node.event_feed.close()
        found = [(one.type, one.fields) for one in await rest(events)]
    letters = [(fields["kind"], fields["source"]) for kind, fields in found if kind == "dead_letter.added"]
    assert letters == [("firing", "r"), ("event", "a")]
    recoveries = [(fields["name"], fields["action"]) for kind, fields in found if kind == "component.recovery"]
    assert recoveries == [("a", "crashed"), ("a", "restarted")]
    health = [fields["health"] for kind, fields in found if kind == "accumulator.health"]
    assert health == ["disconnected", "starting", "socket_only"]
    assert [fields["health"] for kind, fields in found if kind == "reactor.health"] == ["degraded", "live"]


async def test_firings_are_counted_not_listed() -> None:
    """S-3: the hot path publishes nothing; a quarter of a second of firings is one event."""
    async with tm.testing.node(load=single().load) as node, node.event_feed.subscribe("reactor.fired") as events:
        push = node.handle("a")
        for value in range(500):
            push(value)
        await node.advance("250ms")
        for value in range(3):
            push(value)
        await node.advance("1s")
        node.event_feed.close()
        found = await rest(events)
    assert [(one.fields["firings"], one.fields["total"]) for one in found] == [(500, 500), (3, 503)]


async def test_packages_and_reactors_come_and_go() -> None:
    sample = single()
    async with tm.testing.node() as node, node.event_feed.subscribe("package.*,reactor.*loaded") as events:
        await node.load(sample.reactor)
        await node.unload("reactor:r")
        found = await take(events, 4)
    assert [one.type for one in found] == ["reactor.loaded", "package.loaded", "reactor.unloaded", "package.removed"]
    assert found[1].fields["package"] == "reactor:r"


async def test_nodes_that_come_and_go_are_events(tmp_path: Path) -> None:
    """S-3: servers and workers, wherever they run."""
    address = f"sqlite:///{tmp_path}/tidemill.db"
    async with tm.testing.node(address) as node, node.event_feed.subscribe("node.*") as events:
        async with tm.testing.node(address) as other:
            await node.advance("2s")
            (joined,) = await take(events, 1)
        await node.advance("2s")
        (left,) = await take(events, 1)
    owner = other.probe.workflows.owner.id
    assert [(one.type, one.tenant, one.fields["node"]) for one in (joined, left)] == [
        ("node.joined", None, owner),
        ("node.left", None, owner),
    ]


async def test_leadership_is_an_event() -> None:
    async with tm.testing.node() as node:
        async with node.event_feed.subscribe("leadership.*") as events:
            node.probe.workflows.step_down()
            found = await take(events, 1)
        assert (found[0].type, found[0].tenant) == ("leadership.lost", None)


@pytest.mark.parametrize(("published", "is_too_slow"), [(4, False), (5, True), (50, True)])
async def test_a_slow_reader_is_cut_off(published: int, *, is_too_slow: bool) -> None:
    """S-3: it gets everything or an error, never a silent gap; events of a node do not cut off readers of runs."""
    clock, store, tasks = VirtualClock(NOON), MemoryStore(), TaskScope()
    await store.open()
    await tasks.open()
    node_events = NodeEvents(clock, limit=4)
    feed = EventFeed(store, RunNotifier(), node_events, lambda: [], clock=clock, tasks=tasks)
    async with feed.subscribe() as events, feed.subscribe("run.*") as runs:
        for number in range(published):
            node_events.publish("reactor.health", "public", number=number)
        if is_too_slow:
            with pytest.raises(TooSlowError, match="too slow"):
                await take(events, 1)
        else:
            assert [one.fields["number"] for one in await take(events, 4)] == [0, 1, 2, 3]
        feed.close()
        assert await rest(runs) == []
    await tasks.close()
    await store.close()


async def test_a_reader_that_comes_back_too_late_learns_of_the_gap() -> None:
    """S-3: more has passed than the node keeps."""
    clock, store, tasks = VirtualClock(NOON), MemoryStore(), TaskScope()
    await store.open()
    await tasks.open()
    node_events = NodeEvents(clock, limit=4)
    feed = EventFeed(store, RunNotifier(), node_events, lambda: [], clock=clock, tasks=tasks)
    async with feed.subscribe() as events:
        node_events.publish("reactor.health", "public", number=0)
        (first,) = await take(events, 1)
    for number in range(1, 6):
        node_events.publish("reactor.health", "public", number=number)
    async with feed.subscribe(after=first.id) as events:
        (gap,) = await take(events, 1)
        assert (gap.type, gap.fields) == ("events.gap", {"reason": "too many events have passed since then"})
        node_events.publish("reactor.health", "public", number=6)
        assert [one.fields["number"] for one in await take(events, 1)] == [6]
    await tasks.close()
    await store.close()


def test_an_unknown_type_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        tm.RequestError, match=r"no event has the type 'run\.ende' \(did you mean 'run\.ended'\?\)"
    ) as caught:
        select_types("run.ende")
    assert (caught.value.code, caught.value.status) == ("unknown_event_type", 400)


def test_patterns_select_types() -> None:
    assert select_types(None) == select_types("") == set(FEED_EVENT_TYPES)
    assert select_types(" run.* , reactor.health") == {
        "run.started", "run.ended", "run.cleared", "reactor.health", "events.gap"
    }  # fmt: skip
    assert select_types(["*.health"]) == {"reactor.health", "accumulator.health", "events.gap"}


@pytest.mark.parametrize("text", ["", "7", "1-2", "1-2-", "-1-2-a", "1-2-a b", "1-2-ä", "9" * 19 + "-0-a"])
async def test_an_id_that_is_none_is_refused(text: str) -> None:
    async with tm.testing.node() as node:
        with pytest.raises(tm.RequestError, match="is not the id of an event") as caught:
            node.event_feed.subscribe(after=text)
    assert caught.value.code == "invalid_event_id"


async def test_a_node_without_readers_records_nothing_and_runs_nothing() -> None:
    """S-3: a feed that no one reads costs nothing."""
    async with tm.testing.node(load=[flow(), *single().load]) as node:
        names = {task.get_name() for task in asyncio.all_tasks()}
        await node.disconnect("a")
        await (await node.start("report")).wait()
        async with node.event_feed.subscribe() as events:
            await (await node.start("report")).wait()
            assert (await take(events, 1))[0].type == "run.started"
            assert any("event feed" in task.get_name() for task in asyncio.all_tasks())
        assert not any("event feed" in name for name in names | {task.get_name() for task in asyncio.all_tasks()})


async def test_a_node_that_does_not_lead_sees_all_runs(tmp_path: Path) -> None:
    """S-3: runs that another node starts and ends, also where the store sends no notifications."""
    address = f"sqlite:///{tmp_path}/tidemill.db"
    async with (
        tm.testing.node(address, load=flow()) as leader,
        tm.testing.node(address, load=flow()) as other,
        other.event_feed.subscribe("run.*") as events,
    ):
        run = await leader.start("report")
        await run.wait()
        await other.advance("1s")
        found = await take(events, 2)
    assert [(one.type, one.fields["run"]) for one in found] == [("run.started", run.id), ("run.ended", run.id)]


async def test_servers_on_postgresql_tell_each_other_at_once(postgres: PostgresServer) -> None:
    """S-3: notifications of the store wake the feed; polling alone would take a quarter of a second for each."""
    address = await postgres.fresh_store()
    async with tm.Node(address, load=flow()) as leader, tm.Node(address, load=flow()) as other:
        async with other.event_feed.subscribe("run.*,task.*") as events:
            run = await leader.start("report")
            await run.wait()
            found = await take(events, 6)
        expected = await leader.store.runs.read_events(run.id)
    assert [one.fields["state"] for one in found] == [row.after for row in expected]
    assert {one.fields["run"] for one in found} == {run.id}


async def test_a_reader_that_cannot_be_added_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-3: the store fails as a reader comes back."""

    async def refuse() -> int:
        raise StoreError("refused on purpose")

    async with tm.testing.node() as node, node.event_feed.subscribe():
        monkeypatch.setattr(node.store.runs, "last_event_number", refuse)
        with pytest.raises(StoreError):
            await node.event_feed.subscribe("run.*", after="99-0-abc").__aenter__()
        assert node.event_feed.reader_count == 1
