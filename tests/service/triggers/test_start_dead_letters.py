"""Runs that a firing could not start: dead letters of their reactor, with reason and replay."""

from typing import Any

import pytest

import tidemill as tm
from tests.service.triggers.alerts import Alert, Plant, Reading, cooler, degrees, heat
from tidemill.engine.workflows.starts.starter import RunStarter
from tidemill.kernel.errors import OperationError, StoreError

TOTAL = "subscription_dead_letters_total"


class Moody:
    """A condition that fails while a test says so."""

    def __init__(self) -> None:
        self.fails = True

    def __call__(self, alert: Alert) -> bool:
        if self.fails:
            raise RuntimeError("moody")
        return alert.celsius < 1000


async def fail_start(node: Any, *celsius: float) -> list[tm.DeadLetter]:
    """Push readings whose runs cannot be started, and return the reactor's dead letters."""
    await heat(node, *celsius)
    await node.advance("1m")
    return list((await node.reactor("r").dead_letters())[::-1])


async def test_a_start_that_failed_for_good_is_a_dead_letter_and_can_be_replayed() -> None:
    """Issue: with reason and replay, which returns the run's handle; of on_output as of on_firing."""
    seen: list[Any] = []
    mood = Moody()
    async with tm.testing.node(load=[*Plant().load, cooler(seen, when=mood)]) as node:
        (dead,) = await fail_start(node, 101.0)
        (firing,) = node.reactor("r").firings()
        assert (dead.kind, dead.source, dead.workflow, dead.attempts) == ("start", "r", "cool", 5)
        assert dead.firing_id == firing.id
        assert dead.inputs == {"reading": Reading(sensor="a", celsius=101.0)}
        assert "RuntimeError: moody" in dead.error
        assert node.metrics()[TOTAL] == node.metrics()["dead_letters_total"] == 1
        mood.fails = False
        run = await node.reactor("r").replay(dead.id)
        assert (await run.wait()).state == "success"
        assert await node.reactor("r").dead_letters() == []
        assert [(params.celsius, id_) for params, id_, _ in seen] == [(101.0, firing.id)]
        with pytest.raises(tm.RequestError, match="no dead letter"):
            await node.reactor("r").replay(dead.id)


async def test_a_replay_that_fails_again_stays() -> None:
    """With the newest reason and one more attempt."""
    mood = Moody()
    async with tm.testing.node(load=[*Plant().load, cooler([], when=mood)]) as node:
        (dead,) = await fail_start(node, 101.0)
        with pytest.raises(OperationError, match="RuntimeError: moody"):
            await node.reactor("r").replay(dead.id)
        (again,) = await node.reactor("r").dead_letters()
        assert (again.id, again.attempts) == (dead.id, 6)


async def test_a_replay_follows_the_rules_of_today() -> None:
    """A condition that does not hold starts nothing; a pause, and a workflow that is gone, keep the dead letter."""
    seen: list[Any] = []
    mood = Moody()
    async with tm.testing.node(load=[*Plant().load, cooler(seen, when=mood)]) as node:
        first, second = await fail_start(node, 2000.0, 101.0)
        mood.fails = False
        assert await node.reactor("r").replay(first.id) is None
        await node.pause("cool")
        with pytest.raises(tm.RequestError, match="is paused"):
            await node.reactor("r").replay(second.id)
        await node.resume("cool")
        await node.unload("workflow:cool")
        with pytest.raises(tm.RequestError, match="no longer subscribes to reactor 'r'") as caught:
            await node.reactor("r").replay(second.id)
        assert caught.value.code == "not_subscribed"
        assert [one.id for one in await node.reactor("r").dead_letters()] == [second.id]
        await node.load(cooler(seen))
        await node.reactor("r").replay(second.id)
        await node.settle()
    assert degrees(seen) == [101.0]


async def test_starts_of_on_firing_are_dead_letters_too() -> None:
    """Each of them: only `events()` tells the first in a row."""

    @tm.passthrough
    def a(event: int) -> dict[str, Any]:
        return {"value": event}

    flow = tm.Workflow("w", triggers=[tm.on_firing("r", when="payload.a.missing > 1")])

    @flow.task
    def act() -> None: ...

    async with tm.testing.node(load=[tm.Reactor("r", [a], strategy="sequential"), flow]) as node:
        for value in range(3):
            await node.push("a", value)
        await node.advance("1m")
        dead = await node.reactor("r").dead_letters()
        assert [(one.kind, one.inputs) for one in dead] == [("start", {"a": {"value": value}}) for value in (2, 1, 0)]
        assert "there is no 'missing'" in dead[0].error
        assert len(node.reactor("r").events()) == 1


@pytest.mark.parametrize("durability", ["none", "fire", "boundary"])
async def test_a_dead_start_outlives_the_process(store: str, durability: str) -> None:
    """As every dead letter does; its replay starts one run, with the value of its node."""
    seen: list[Any] = []
    mood = Moody()
    load = [*Plant(durability=durability).load, cooler(seen, when=mood)]
    async with tm.testing.node(store, load=load) as node:
        (dead,) = await fail_start(node, 101.0)
        node = await node.crash()
        await node.advance("1m")
        assert await node.reactor("r").dead_letters() == [dead]
        mood.fails = False
        await node.reactor("r").replay(dead.id)
        await node.settle()
        node = await node.crash()
        await node.settle()
        assert await node.reactor("r").dead_letters() == []
        assert [(params.celsius, id_) for params, id_, _ in seen] == [(101.0, dead.firing_id)]


async def test_a_crash_between_the_dead_letter_and_its_checkpoint_makes_no_second_one(store: str) -> None:
    """The firing is still in the outbox of the checkpoint, and is not delivered again."""
    mood = Moody()
    load = [*Plant(durability="fire").load, cooler([], when=mood)]
    async with tm.testing.node(store, load=load) as node:
        await heat(node, 101.0)
        await node.advance("14s")
        save: Any = node.database.checkpoints.save

        async def refuse(*_: Any) -> None:
            raise StoreError("no checkpoint")

        node.database.checkpoints.save = refuse
        (dead,) = await fail_start(node)
        node.database.checkpoints.save = save
        node = await node.crash()
        await node.advance("1m")
        assert await node.reactor("r").dead_letters() == [dead]
        assert node.probe.graphs.undelivered("r") == []


async def test_a_store_that_fails_during_a_replay_keeps_the_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    mood = Moody()
    async with tm.testing.node(load=[*Plant().load, cooler([], when=mood)]) as node:
        (dead,) = await fail_start(node, 101.0)
        mood.fails = False

        async def refuse(*_: Any) -> None:
            raise StoreError("down")

        with monkeypatch.context() as patch:
            patch.setattr(RunStarter, "start", refuse)
            with pytest.raises(OperationError, match="down"):
                await node.reactor("r").replay(dead.id)
        assert await node.reactor("r").replay(dead.id) is not None
