"""Operations on a reactor that another node of the store owns: they reach the owner, and answer as if it were here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tests.service.samples import Sample, single, slow
from tidemill.access.principal import Caller
from tidemill.engine.forwarding import sender
from tidemill.engine.forwarding.wire import decode_answer
from tidemill.engine.graphs.client import graph_client
from tidemill.storage.graph_ports import PartKey
from tidemill.storage.mailbox_port import StoredRequest

PUBLIC = Caller("public", "test")
PATIENCE = 20.0  # seconds until a test gives up


@pytest.fixture(params=["memory", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several nodes can use."""
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/tidemill.db"


@asynccontextmanager
async def nodes(address: str, sample: Sample) -> AsyncIterator[tuple[tm.testing.TestNode, ...]]:
    """Run the owner of a reactor, a node that waits for it, and a node that has not loaded it."""
    async with (
        asyncio.timeout(PATIENCE),
        tm.testing.node(address, load=sample.load) as owner,
        tm.testing.node(address, load=sample.load) as waiting,
        tm.testing.node(address) as stranger,
    ):
        yield owner, waiting, stranger


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_pushes_at_any_node_get_the_receipts_of_the_owner(address: str, durability: Any) -> None:
    """G-31, G-4: in one order, numbered by one node; events that do not fit are its dead letters."""
    sample = single(durability=durability, strategy="sequential")
    async with nodes(address, sample) as (owner, waiting, stranger):
        for number, node in enumerate((owner, waiting, stranger), 1):
            assert await node.push("a", number) == tm.Receipt(True, number, "emitted")
        assert (await waiting.push("a", -1)).outcome == "suppressed"
        assert (await stranger.push("a", b"\x04", format="msgpack")).sequence == 4
        wrong = await stranger.push("a", "x")
        assert (wrong.outcome, wrong.accepted) == ("dead_lettered", False)
        summary = await waiting.push_many("a", [5, "y", 6])
        assert (summary.counts, summary.last_sequence) == ({"emitted": 2, "dead_lettered": 1}, 6)
        assert [one.event for one in (await owner.reactor("r").dead_letters())[::-1]] == ["x", "y"]
        await owner.settle()
    assert sample.seen == [1, 2, 3, 4, 5, 6]


async def test_a_numbered_push_is_recognized_at_every_node(address: str) -> None:
    """G-24, G-31: a producer may repeat at one node what it has pushed at another."""
    sample = single(durability="boundary", strategy="sequential")
    position = tm.ProducerPosition("c", 7)
    async with nodes(address, sample) as running:
        first, *others = [await node.push_many("a", [1, 2], position=position) for node in running]
        assert not first.is_duplicate
        assert others == [tm.PushSummary(first.runs, is_duplicate=True)] * 2
        for node in running:
            assert await node.graph_client.last_position(PUBLIC, "a", "c") == 7
        await running[0].settle()
    assert sample.seen == [1, 2]


async def test_every_operation_works_at_every_node(address: str) -> None:
    """G-31, G-13: reads and commands."""
    sample = single(durability="interval")
    async with nodes(address, sample) as (owner, waiting, stranger):
        await owner.push("a", 3)
        for node in (waiting, stranger):
            client = node.graph_client
            assert (await client.reactor_state(PUBLIC, "r")).cache == {"a": 3}
            assert [one.name for one in await client.list_reactors(PUBLIC)] == ["r"]
            assert [one.name for one in await client.list_accumulators(PUBLIC)] == ["a"]
            assert (await client.accumulator(PUBLIC, "a")).event_schema == {"type": "integer"}
            fired = await client.command(PUBLIC, "r", "force_fire")
            assert fired.firing is not None
            assert (fired.firing.manual, fired.firing.results["g"].outputs) == (True, {"out": 30})
            page = await client.firings(PUBLIC, "r")
            assert page.firings[0].id == fired.firing.id
            assert sum(await client.timeseries(PUBLIC, "r")) == page.kept
            assert set((await client.courses(PUBLIC, "r", 5)).values) >= {"firings", "emitted/a"}
            assert (await client.command(PUBLIC, "r", "fire_with", {"a": 4})).state.cache == {"a": 4}
            assert (await client.command(PUBLIC, "r", "pause")).state.paused
            assert owner.reactor("r").state().paused
            assert not (await client.command(PUBLIC, "r", "resume")).state.paused
            await client.command(PUBLIC, "r", "restart")
            await client.command(PUBLIC, "r", "fire_with", {"a": 3})
            await node.restart_accumulator("a")
            assert "restarted" in {one.action for one in await client.recoveries(PUBLIC, "r")}


async def test_dead_letters_can_be_replayed_and_dropped_from_every_node(address: str) -> None:
    """G-7, G-31."""
    async with nodes(address, single(durability="boundary")) as (owner, waiting, stranger):
        await owner.push_many("a", ["x", "y"])
        for node in (waiting, stranger):
            kept = await node.graph_client.dead_letters.list_of(PUBLIC, "accumulator", "a")
            replayed = await node.graph_client.dead_letters.replay(PUBLIC, "accumulator", "a", kept[-1].id)
            assert replayed.receipt is not None
            assert replayed.receipt.outcome == "dead_lettered"
            await node.graph_client.dead_letters.drop(PUBLIC, "accumulator", "a", kept[-1].id)
            with pytest.raises(tm.RequestError) as raised:
                await node.graph_client.dead_letters.drop(PUBLIC, "accumulator", "a", kept[-1].id)
            assert raised.value.status == 404
        assert await owner.graph_client.dead_letters.list_of(PUBLIC, "accumulator", "a") == []


async def test_an_error_is_the_same_at_every_node(address: str) -> None:
    """G-13: class, code, status, message and facts."""
    async with nodes(address, single(durability="interval")) as running:
        errors = []
        for node in running:
            with pytest.raises(tm.RequestError) as raised:
                await node.graph_client.command(PUBLIC, "r", "fire_with", {"b": 1})
            errors.append(raised.value)
        described = [(type(one), str(one), one.code, one.status, one.facts) for one in errors]
        assert described == [described[0]] * 3


async def test_a_name_that_no_node_owns_is_not_found(address: str) -> None:
    """G-31: with suggestions; and a value that cannot be sent is refused."""
    async with nodes(address, single(durability="interval")) as (owner, _, stranger):
        with pytest.raises(tm.RequestError, match=r"accumulator 'aa' not loaded.*did you mean 'a'") as raised:
            await owner.push("aa", 1)
        assert (raised.value.code, raised.value.status) == ("accumulator_not_found", 404)
        with pytest.raises(tm.RequestError, match="accumulator 'b' not loaded"):
            await stranger.push("b", 1)
        with pytest.raises(tm.RequestError, match="cannot be sent there") as raised:
            await stranger.push("a", object())
        assert raised.value.code == "invalid_value"
        with pytest.raises(tm.RequestError, match="accumulator 'a' not loaded"):
            await stranger.push("a", 1, tenant="other")


@pytest.mark.parametrize("name", ["evict", "__class__", "_reactor", "states"])
async def test_an_operation_that_the_owner_does_not_have_is_refused(address: str, name: str) -> None:
    """G-31: a node of a later version may ask for it, and gets an error that says so."""
    async with nodes(address, single(durability="interval")) as (owner, _, stranger):
        request = StoredRequest(
            id="1",
            target=PartKey("public", "reactor", "r"),
            sender="a later version",
            operation=name,
            payload=msgspec.msgpack.encode({"tenant": "public", "name": "r"}),
            at=owner.clock.now(),
        )
        await stranger.database.mailbox.send(request)
        while not (answers := await stranger.database.mailbox.read_answers(request.sender)):  # noqa: ASYNC110
            await asyncio.sleep(0)
        with pytest.raises(tm.RequestError, match=f"reactor 'r' .* has no operation '{name}'") as raised:
            decode_answer(answers[0].payload, None)
        assert (raised.value.code, raised.value.status) == ("unknown_operation", 501)


async def test_a_full_queue_holds_back_pushers_at_other_nodes(address: str) -> None:
    """G-12: back-pressure reaches them, and nothing is lost."""
    sample = single(durability="boundary", strategy="sequential", capacity=2)
    async with nodes(address, sample) as (owner, waiting, _):
        await owner.reactor("r").pause()
        async with asyncio.TaskGroup() as group:
            pushes = [group.create_task(waiting.push("a", number), name="push") for number in (1, 2, 3)]
            done: set[Any] = set()
            while len(done) < 2:
                await asyncio.wait(set(pushes) - done, return_when=asyncio.FIRST_COMPLETED)
                done = {one for one in pushes if one.done()}
            assert len(done) == 2
            await owner.reactor("r").resume()
        await owner.settle()
    assert sorted(sample.seen) == [1, 2, 3]


async def test_a_node_sends_a_bounded_number_of_requests(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-7: beyond it, callers get an error that says to try again."""
    monkeypatch.setattr(sender, "MAX_OUTSTANDING", 2)
    async with nodes(address, single(durability="boundary", strategy="sequential", capacity=1)) as (owner, waiting, _):
        await owner.reactor("r").pause()
        await owner.push("a", 1)
        async with asyncio.TaskGroup() as group:
            for number in (2, 3):
                group.create_task(waiting.push("a", number), name="push")
            await asyncio.sleep(0)
            with pytest.raises(tm.RequestError, match="2 requests of this node wait") as raised:
                await waiting.push("a", 4)
            assert (raised.value.code, raised.value.status) == ("forwarding_busy", 429)
            await owner.reactor("r").resume()
        monkeypatch.setattr(sender, "MAX_OUTSTANDING_BYTES", 100)
        with pytest.raises(tm.RequestError):
            await waiting.push_many("a", range(1000))


# -- owners that die


async def test_a_request_that_the_owner_did_not_answer_goes_to_the_next_owner(address: str) -> None:
    """G-31: the caller waits meanwhile, and gets the receipt of the new owner."""
    sample = single(durability="boundary", strategy="sequential")
    async with nodes(address, sample) as (owner, waiting, _):
        await owner.push("a", 1)
        await owner._close()
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(waiting.push("a", 2), name="push")  # no node owns it now
            await waiting.advance("3s")
        assert pushing.result() == tm.Receipt(True, 2, "emitted")
        await waiting.settle()
    assert sample.seen == [1, 2]


async def test_a_push_that_was_applied_but_not_answered_is_not_applied_again(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-24, G-31: the owner dies between the commit and the answer; the next one answers with the same receipt."""
    sample = single(durability="boundary", strategy="sequential")
    async with nodes(address, sample) as (owner, waiting, stranger):
        applied = asyncio.Event()

        async def die(answer: Any) -> None:
            applied.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(owner.database.mailbox, "answer", die)
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(stranger.push_many("a", [1, 2]), name="push")
            await applied.wait()
            await owner._close()
            await waiting.advance("3s")
        assert pushing.result().receipts == (tm.Receipt(True, 1, "emitted"), tm.Receipt(True, 2, "emitted"))
        await waiting.settle()
        assert (list(dict.fromkeys(sample.seen)), waiting.reactor("r").state().accumulators["a"].emitted) == ([1, 2], 2)


async def test_an_owner_that_never_answers_is_reported(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-31: after a time that is longer than a take-over; nothing of the request is left."""
    async with nodes(address, single(durability="interval")) as (owner, _, stranger):
        is_served = asyncio.Event()

        async def ignore(answer: Any) -> None:
            is_served.set()

        monkeypatch.setattr(owner.database.mailbox, "answer", ignore)
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(outcome_of(stranger.push("a", 1)), name="push")
            await is_served.wait()
            await stranger.advance("31s")
            error = await pushing
        assert (error.code, error.status) == ("owner_silent", 503)
        await stranger.settle()
        assert owner.registry.reactors() == ["r"]


async def test_the_health_of_a_silent_owner_is_unknown_after_a_short_time(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-8: the overview of another node neither waits for it nor fails."""
    async with nodes(address, single(durability="interval")) as (owner, _, stranger):
        assert (await stranger.graph_client.health_reports(PUBLIC))["r"].unhealthy == []

        async def ignore(answer: Any) -> None:
            pass

        with monkeypatch.context() as patch:
            patch.setattr(owner.database.mailbox, "answer", ignore)
            patch.setattr(graph_client, "REPORT_TIMEOUT", 0.1)
            (part,) = (await stranger.graph_client.health_reports(PUBLIC))["r"].unhealthy
        assert (part.name, part.health, part.since) == ("r", "unknown", None)
        assert part.reason.startswith("its node has not answered")


async def test_the_health_of_a_reactor_that_this_node_cannot_ask_for_is_unknown(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-8: as many requests wait for other nodes as this one sends at a time."""
    async with nodes(address, single(durability="interval")) as (_, _, stranger):
        monkeypatch.setattr(sender, "MAX_OUTSTANDING", 0)
        (part,) = (await stranger.graph_client.health_reports(PUBLIC))["r"].unhealthy
        assert (part.name, part.health) == ("r", "unknown")


async def outcome_of(push: Any) -> tm.RequestError:
    """Return the error that a push raises."""
    with pytest.raises(tm.RequestError) as raised:
        await push
    return raised.value


async def test_nothing_is_left_of_answered_requests(address: str) -> None:
    """Neither mail nor the numbers of their pushes."""
    async with nodes(address, single(durability="boundary")) as (owner, waiting, stranger):
        await asyncio.gather(*(node.push("a", number) for number in range(20) for node in (waiting, stranger)))
        accumulator = PartKey("public", "accumulator", "a")
        (row,) = await owner.database.part_owners.owners_of([accumulator])
        async with asyncio.timeout(PATIENCE):
            while await owner.database.mailbox.read_requests(row.owner):  # noqa: ASYNC110 - it is deleted soon
                await asyncio.sleep(0)


async def test_a_slow_operation_holds_up_no_other(address: str) -> None:
    """G-21: a firing that takes long is no reason to wait for the state."""
    may_end = asyncio.Event()
    async with nodes(address, slow(lambda _: may_end.wait(), durability="interval")) as (owner, waiting, _):
        await owner.push("a", 1)
        async with asyncio.TaskGroup() as group:
            firing = group.create_task(waiting.graph_client.command(PUBLIC, "r", "force_fire"), name="fire")
            assert (await waiting.graph_client.reactor_state(PUBLIC, "r")).cache == {"a": 1}
            assert not firing.done()
            may_end.set()
