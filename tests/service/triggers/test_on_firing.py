"""Workflows that firings of reactors start."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import Sample, pair, raising, single, slow
from tidemill.engine.graphs.reactors.outbox import OUTBOX_LIMIT
from tidemill.engine.workflows.starts.starter import RunStarter
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import RunFilter

TOTAL = "subscription_dead_letters_total"


class Book(tm.Params):
    """What a run of a firing may be given."""

    payload: dict[str, Any]
    firing_id: str


def follower(seen: list[Any], *, name: str = "w", when: str | None = None, reactor: str = "r") -> tm.Workflow:
    """Return a workflow that firings start, whose task records what it was given."""
    flow = tm.Workflow(name, params=Book, triggers=[tm.on_firing(reactor, when=when)])

    @flow.task
    def note(params: Book) -> None:
        seen.append((params.payload, params.firing_id))

    return flow


def payloads(seen: list[Any]) -> list[Any]:
    """Return what the runs were given, in the order of their tasks."""
    return [payload for payload, _ in seen]


async def origins(node: Any) -> list[str]:
    """Return what started each run."""
    return [row.origin for row in await node.database.runs.find(RunFilter(tenant="public"))]


# -- what starts, and with what


async def test_each_firing_starts_a_run_with_its_payload_and_id() -> None:
    """graphs.md, Reactor -> workflow; api.md: payload as plain values by source, and firing_id."""
    seen: list[Any] = []
    sample = pair()
    async with tm.testing.node(load=[*sample.load, follower(seen)]) as node:
        await node.push("a", 1)
        await node.push("b", 2)
        await node.settle()
        firings = reversed(node.reactor("r").firings())
        assert seen == [({"a": 1}, next(firings).id), ({"a": 1, "b": 2}, next(firings).id)]
        assert await origins(node) == ["firing", "firing"]
        assert node.metrics()["subscription_runs_total"] == 2
    assert sample.seen == [(1, None), (1, 2)]


async def test_values_become_plain() -> None:
    """api.md: JSON-like values by source."""

    class Quote(tm.Params):
        bid: float
        age: timedelta

    @tm.passthrough
    def quote(event: Quote) -> Quote:
        return event

    seen: list[Any] = []
    flow = follower(seen, when="payload.quote.bid > 100.0", reactor="market")
    async with tm.testing.node(load=[tm.Reactor("market", [quote]), flow]) as node:
        await node.push("quote", Quote(bid=101.5, age=timedelta(seconds=3)))
        await node.push("quote", Quote(bid=99.0, age=timedelta(seconds=3)))
        await node.settle()
    assert payloads(seen) == [{"quote": {"bid": 101.5, "age": "PT3S"}}]


async def test_a_workflow_may_take_what_it_likes() -> None:
    """The brief of on_firing: params are declared, in part, or not at all."""

    class Only(tm.Params):
        firing_id: str
        limit: int = 3

    seen: list[Any] = []
    declared = tm.Workflow("declared", params=Only, triggers=[tm.on_firing("r")])
    free = tm.Workflow("free", triggers=[tm.on_firing("r")])

    @declared.task
    def one(params: Only) -> None:
        seen.append(params.limit)

    @free.task
    def other(ctx: tm.Context) -> None:
        seen.append(ctx["payload"])

    async with tm.testing.node(load=[*single().load, declared, free]) as node:
        await node.push("a", 7)
        await node.settle()
        assert sorted(seen, key=str) == [3, {"a": 7}]


async def test_firings_by_hand_count_and_failed_ones_too_but_tries_do_not() -> None:
    """A run per firing, regardless of its results and of its retries."""
    seen: list[Any] = []
    sample = single(raising(when=lambda value: value == 2), on_error=tm.Retry(2, delay="1s"))
    async with tm.testing.node(load=[*sample.load, follower(seen)]) as node:
        await node.push("a", 2)
        await node.advance("5s")
        await node.push("a", 3)
        await node.reactor("r").force_fire()
        await node.settle()
        assert payloads(seen) == [{"a": 2}, {"a": 3}, {"a": 3}]
    assert sample.seen == [2, 2, 2, 3, 3]


async def test_a_reactor_without_graphs_and_one_with_async_ones_start_runs() -> None:
    """A workflow needs no graph between."""

    async def act(value: int) -> None:
        assert value

    seen: list[Any] = []
    bare, busy = single(), slow(act)
    async with tm.testing.node(load=[bare.reactor, follower(seen)]) as node:
        await node.push("a", 1)
        await node.settle()
    async with tm.testing.node(load=[*busy.load, follower(seen)]) as node:
        await node.push("a", 2)
        await node.settle()
    assert payloads(seen) == [{"a": 1}, {"a": 2}]


async def test_firings_lead_to_firings_by_way_of_a_task() -> None:
    """workflows.md: a task may push; firing, run, push, firing."""
    sample = single()
    flow = tm.Workflow("w", params=Book, triggers=[tm.on_firing("r", when="payload.a < 3")])

    @flow.task
    async def push(params: Book, ctx: tm.AsyncContext) -> None:
        await ctx.push("a", params.payload["a"] + 1)

    async with tm.testing.node(load=[*sample.load, flow]) as node:
        await node.push("a", 1)
        await node.settle()
        assert sample.seen == [1, 2, 3]
        assert len(await node.runs("w")) == 2


# -- expressions


async def test_an_expression_decides() -> None:
    """graphs.md: over payload, reactor and tenant; false skips the firing."""
    seen: list[Any] = []
    flow = follower(seen, when="payload.a > 1 && reactor == 'r' && tenant == 'public'")
    async with tm.testing.node(load=[*single().load, flow]) as node:
        for value in (1, 2, 0, 5):
            await node.push("a", value)
        await node.settle()
        assert payloads(seen) == [{"a": 2}, {"a": 5}]
        assert node.metrics()["subscription_errors_total"] == 0


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("payload.a >", r"at 1:12: Syntax error"),
        ("'abc", r"at 1:1: Syntax error"),
        ("paylod.a > 1", r"no variable 'paylod' \(did you mean 'payload'\?\); it may use payload, reactor, tenant"),
        ("payload.exists(x, x == y)", "no variable 'y'"),
    ],
)
async def test_an_expression_that_cannot_work_is_refused(
    when: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The brief of on_firing: at check and at load, with the place, and quietly."""
    flow = follower([], when=when)
    with pytest.raises(tm.DefinitionError, match=rf"test_on_firing.py:\d+: on_firing\('r', when=.*{said}"):
        flow.check()
    async with tm.testing.node(load=single().load) as node:
        with pytest.raises(tm.DefinitionError, match=said):
            await node.load(flow)
        assert node.registry.workflows() == []
    assert capfd.readouterr() == ("", "")


def test_macros_and_types_are_no_unknown_variables() -> None:
    """What a macro binds is known in its body."""
    follower([], when="payload.a.exists(x, x > 1) || type(payload.a) == int || size(payload) == 2").check()


def test_params_that_a_firing_does_not_give_are_refused() -> None:
    """As with a schedule that leaves a param open."""

    class More(tm.Params):
        firing_id: str
        day: int

    with pytest.raises(tm.DefinitionError, match="a firing gives payload and firing_id, and not the param 'day'"):
        tm.Workflow("w", params=More, triggers=[tm.on_firing("r")]).check()


def test_a_reactor_is_followed_once() -> None:
    """One run per (subscription, firing), so one expression."""
    both = [tm.on_firing("r", when="payload.a > 1"), tm.on_firing("r", when="payload.a < 0")]
    with pytest.raises(tm.DefinitionError, match=r"on_firing\('r'\) is there twice: join the expressions with \|\|"):
        tm.Workflow("w", triggers=both).check()


async def test_an_expression_that_fails_is_tried_again_and_the_fifth_failure_is_final(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """graphs.md: error holds and retries, the fifth dead-letters; others continue."""
    seen: list[Any] = []
    others: list[Any] = []
    load = [*pair().load, follower(seen, when="payload.b > 1"), follower(others, name="other")]
    async with tm.testing.node(load=load) as node:
        await node.push("a", 1)
        await node.push("b", 2)
        await node.advance("14s")
        assert seen == []
        assert payloads(others) == [{"a": 1}, {"a": 1, "b": 2}]
        assert node.metrics()["subscription_errors_total"] == 4
        await node.advance("1s")
        assert payloads(seen) == [{"a": 1, "b": 2}]
        assert (node.metrics()["subscription_errors_total"], node.metrics()[TOTAL]) == (5, 1)
        first = node.reactor("r").firings()[1].id
        (event,) = node.reactor("r").events()
        assert event.action == "undelivered"
        assert event.reason == (
            f"firing {first} started no run of workflow 'w': when='payload.b > 1' failed: there is no 'b'"
        )
    (dead,) = [record for record in caplog.records if record.msg == "subscription.dead_lettered"]
    assert (dead.levelno, dead.workflow, dead.firing) == (logging.ERROR, "w", first)  # type: ignore[attr-defined]


async def test_an_answer_that_is_neither_true_nor_false_is_an_error() -> None:
    """An expression such as `payload.a` says nothing; where its type is known, it is refused when it is loaded."""
    async with tm.testing.node(load=[*single().load, follower([], when="dyn(payload.a)")]) as node:
        await node.push("a", 1)
        await node.advance("20s")
        assert "gave 1, neither true nor false" in node.reactor("r").events()[0].reason


async def test_params_that_do_not_fit_are_given_up_in_the_same_way() -> None:
    """A class that refuses the payload is no reason to stop."""

    class Strict(tm.Params):
        payload: dict[str, str]

    seen: list[Any] = []
    flow = tm.Workflow("w", params=Strict, triggers=[tm.on_firing("r")])

    @flow.task
    def note(params: Strict) -> None:
        seen.append(params)

    async with tm.testing.node(load=[*single().load, flow]) as node:
        await node.push("a", 1)
        await node.advance("20s")
        assert node.metrics()[TOTAL] == 1
        assert "invalid params" in node.reactor("r").events()[0].reason
    assert seen == []


async def test_a_crowd_behind_a_firing_that_fails_does_not_wait() -> None:
    """A broken expression must not stop a reactor."""
    sample = pair()
    async with tm.testing.node(load=[*sample.load, follower([], when="payload.b > 1")]) as node:
        for value in range(1000):
            await node.push("a", value)
            if not value % 100:
                await node.advance("0s")
        await node.advance("0s")
        assert sample.seen == [(value, None) for value in range(1000)]
        assert node.metrics()[TOTAL] > 800
        assert len(node.reactor("r").events()) == 1  # the first in a row says it all


# -- coming and going


async def test_the_order_of_loading_does_not_matter() -> None:
    """G-28, G-27: reactors and subscribers come and go on their own."""
    seen: list[Any] = []
    sample = single()
    async with tm.testing.node(load=[follower(seen)]) as node:
        assert await push_alone(node, sample, 1) == {"a": 1}
        await node.load(sample.reactor)
        await node.push("a", 2)
        await node.settle()
        await node.load(follower(seen, when="payload.a > 3"))  # a newer version
        await node.push("a", 3)
        await node.push("a", 4)
        await node.settle()
        await node.unload("workflow:w")
        await node.push("a", 5)
        await node.settle()
    assert payloads(seen) == [{"a": 1}, {"a": 2}, {"a": 4}]


async def push_alone(node: Any, sample: Sample, value: int) -> Any:
    """Load a reactor, push, unload it, and return what the firing saw."""
    await node.load(sample.reactor)
    await node.push("a", value)
    await node.settle()
    (firing,) = node.reactor("r").firings()
    await node.unload("reactor:r")
    return firing.inputs


async def test_a_tenant_hears_of_its_own_reactors_only() -> None:
    """G-30."""
    seen: list[Any] = []
    async with tm.testing.node(load=single().load) as node:
        await node.load(single().reactor, tenant="acme")
        await node.load(follower(seen, when="tenant == 'acme'"), tenant="acme")
        await node.push("a", 1)
        await node.push("a", 2, tenant="acme")
        await node.settle()
    assert payloads(seen) == [{"a": 2}]


async def test_a_reactor_has_a_fast_path_with_and_without_followers() -> None:
    """G-1: each firing is delivered as long as a workflow follows, and none after that."""
    seen: list[Any] = []
    sample = single()
    async with tm.testing.node(load=[*sample.load, follower(seen)]) as node:
        for value in (0, 1):
            await node.push("a", value)
        assert node.probe.graphs.has_fast_path("r")
        await node.settle()
        await node.unload("workflow:w")
        handle = node.handle("a")
        for value in (2, 3, 4):
            handle(value)
        assert node.probe.graphs.has_fast_path("r")
        assert node.probe.graphs.undelivered("r") == []
    assert sample.seen == [0, 1, 2, 3, 4]
    assert payloads(seen) == [{"a": 0}, {"a": 1}]


async def test_a_firing_in_a_pause_starts_nothing() -> None:
    """cloacina.md 131: a paused workflow has no fires, resuming does not catch up; and nothing has failed."""
    seen: list[Any] = []
    async with tm.testing.node(load=[*single().load, follower(seen)]) as node:
        await node.pause("w")
        await node.push("a", 1)
        await node.settle()
        await node.resume("w")
        await node.settle()
        assert seen == []
        assert node.metrics()["subscription_errors_total"] == 0
        await node.push("a", 2)
        await node.settle()
    assert payloads(seen) == [{"a": 2}]


# -- what outlives the process


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_what_was_fired_and_not_delivered_is_delivered_after_a_crash(
    store: str, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """graphs.md: the firing's record commits before the firing counts as done, so a crash in between loses nothing."""
    seen: list[Any] = []
    sample = single(durability=durability)
    async with tm.testing.node(store, load=[*sample.load, follower(seen, when="payload.a > 0")]) as node:
        with monkeypatch.context() as patch:
            patch.setattr(RunStarter, "start", never)
            await node.push("a", 1)
            await node.probe.graphs.write_checkpoint()
            fired = node.reactor("r").firings()[0].id
            assert node.probe.graphs.in_delivery("r") == [{"w"}]
        node = await node.crash()
        await node.settle()
        assert seen == [({"a": 1}, fired)]
        node = await node.crash()
        await node.settle()
        assert len(seen) == 1
        assert node.probe.graphs.undelivered("r") == []


async def never(*_: Any) -> None:
    """Fail in place of starting a run."""
    raise StoreError("down")


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_a_firing_that_was_delivered_is_not_delivered_again(store: str, durability: str) -> None:
    """graphs.md: at least once with a stable id, and effectively once, as the run is unique per firing."""
    seen: list[Any] = []
    sample = single(durability=durability)
    async with tm.testing.node(store, load=[*sample.load, follower(seen)]) as node:
        await node.push("a", 1)
        while not seen:  # and no further: that it was delivered is not in any checkpoint
            await node.advance(0)
        node = await node.crash()
        await node.advance("10s")
        assert payloads(seen) == [{"a": 1}]
        assert len(await node.runs("w")) == 1
        await node.push("a", 2)
        await node.settle()
    assert payloads(seen) == [{"a": 1}, {"a": 2}]


async def test_nothing_is_started_before_its_firing_is_stored(store: str) -> None:
    """A run must not be of a firing that a crash undoes."""
    seen: list[Any] = []
    sample = single(durability="fire")
    async with tm.testing.node(store, load=[*sample.load, follower(seen)]) as node:
        checkpoints: Any = node.database.checkpoints
        save, may_end = checkpoints.save, asyncio.Event()

        async def slow_save(*arguments: Any) -> None:
            await may_end.wait()
            await save(*arguments)

        checkpoints.save = slow_save
        await node.push("a", 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert await node.runs("w") == []
        may_end.set()
        await node.settle()
    assert payloads(seen) == [{"a": 1}]


async def test_a_firing_that_could_not_be_stored_waits_for_the_next_write(store: str) -> None:
    """G-26: only after repeated failures are runs started without."""
    seen: list[Any] = []
    async with tm.testing.node(store, load=[*single(durability="fire").load, follower(seen)]) as node:
        node.fail_store(1)
        await node.push("a", 1)
        await node.advance(0)
        assert await node.runs("w") == []
        await node.advance("1s")
        assert payloads(seen) == [{"a": 1}]


async def test_values_that_cannot_be_stored_start_runs_all_the_same() -> None:
    """G-26: firings continue."""
    seen: list[Any] = []

    @tm.passthrough
    def a(event: int) -> Any:
        return {object(): event}

    load = [tm.Reactor("r", [a], durability="fire"), follower(seen)]
    async with tm.testing.node("memory://", load=load) as node:
        await node.push("a", 1)
        await node.advance("3s")
        assert node.reactor("r").state().disconnected == ["persist"]
    assert len(seen) == 1


async def test_a_store_that_fails_is_waited_for(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """graphs.md: nothing is lost; it is no fault of the firing, so it is not given up."""
    seen: list[Any] = []
    async with tm.testing.node(store, load=[*single().load, follower(seen)]) as node:
        with monkeypatch.context() as patch:
            patch.setattr(RunStarter, "start", never)
            await node.push("a", 1)
            await node.advance("5m")
            assert (seen, node.metrics()[TOTAL]) == ([], 0)
            assert node.metrics()["subscription_errors_total"] > 5
        await node.advance("1m")
        assert payloads(seen) == [{"a": 1}]


@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_a_reactor_waits_for_workflows_that_cannot_keep_up(
    strategy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-12, G-2: its inputs wait, or the newest stays; it fires on when there is room."""
    seen: list[Any] = []
    sample = single(strategy=strategy)
    flow = tm.Workflow("w", triggers=[tm.on_firing("r")], max_active_runs=10_000)

    @flow.task
    def note(ctx: tm.Context) -> None:
        seen.append(ctx["payload"]["a"])

    async with tm.testing.node(load=[*sample.load, flow]) as node:
        with monkeypatch.context() as patch:
            patch.setattr(RunStarter, "start", never)
            for value in range(300):
                await node.push("a", value)
            await node.settle()
            assert sample.seen == list(range(OUTBOX_LIMIT))
        await node.advance("5s")
        await node.settle()
        rest = [299] if strategy == "latest" else list(range(OUTBOX_LIMIT, 300))
        assert sample.seen == [*range(OUTBOX_LIMIT), *rest]
        assert sorted(seen) == [*range(OUTBOX_LIMIT), *rest]


async def test_a_workflow_that_is_loaded_late_hears_of_what_was_left_for_it(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart may load the reactor first; only a workflow that is unloaded has left."""
    seen: list[Any] = []
    sample = single(durability="fire")
    async with tm.testing.node(store, load=[*sample.load, follower(seen)]) as node:
        with monkeypatch.context() as patch:
            patch.setattr(RunStarter, "start", never)
            await node.push("a", 1)
            await node.probe.graphs.write_checkpoint()
        del node.loaded_packages["public", "workflow:w"]
        node = await node.crash()
        await node.push("a", 2)
        await node.settle()
        assert node.probe.graphs.undelivered("r") == [{"w"}]
        await node.load(follower(seen))
        await node.settle()
    assert payloads(seen) == [{"a": 1}]


async def test_a_workflow_that_was_unloaded_hears_of_nothing_more(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its subscription ends; undelivered firings are dropped, also from the checkpoint."""
    seen: list[Any] = []
    async with tm.testing.node(store, load=[*single().load, follower(seen)]) as node:
        with monkeypatch.context() as patch:
            patch.setattr(RunStarter, "start", never)
            await node.push("a", 1)
            await node.advance("1s")
            await node.unload("workflow:w")
            assert node.probe.graphs.undelivered("r") == []
        await node.load(follower(seen))
        await node.push("a", 2)
        await node.advance("1m")
    assert payloads(seen) == [{"a": 2}]


async def test_a_reactor_that_is_unloaded_and_loaded_again_delivers_once(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-28: an undelivered firing arrives after the reload, and starts one run."""
    seen: list[Any] = []
    sample = single()
    async with tm.testing.node(store, load=[*sample.load, follower(seen)]) as node:
        with monkeypatch.context() as patch:
            patch.setattr(RunStarter, "start", never)
            await node.push("a", 1)
            await node.advance("1s")
            await node.unload("graph:g")
            await node.unload("reactor:r")
            await node.load(sample.reactor)
        await node.advance("1m")
        assert payloads(seen) == [{"a": 1}]
        assert node.probe.graphs.undelivered("r") == []


async def test_what_is_fired_while_the_node_closes_has_its_run_in_the_next_life(sqlite: str) -> None:
    """G-5: a batch flushes at orderly shutdown, and its firing counts."""

    @tm.batch(every="1h", max_size=100)
    def c(events: list[int]) -> list[int]:
        return events

    seen: list[Any] = []
    load = [tm.Reactor("r", [c], durability="none"), follower(seen)]
    async with tm.testing.node(sqlite, load=load) as node:
        await node.push("c", 1)
    async with tm.testing.node(sqlite, load=load) as node:
        await node.settle()
    assert payloads(seen) == [{"c": [1]}]
