"""The heartbeat thread of a node: it renews leases while a task blocks the loop, and costs little while none does."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tidemill as tm
from tests.service.workflows.pairs import Gates, until
from tidemill.engine.workflows.worker.heartbeats import THREAD_NAME, HeartbeatThread
from tidemill.kernel.errors import StoreError
from tidemill.kernel.settings import Settings
from tidemill.node import make_store
from tidemill.storage.store import Store
from tidemill.telemetry.events import HEARTBEAT_FAILED, LOOP_BLOCKED
from tidemill.testing.probes.workflows import WorkflowProbe

SETTINGS = {"heartbeat_interval": "400ms", "heartbeat_timeout": "90s"}
QUICK = Settings.read({"heartbeat_interval": "20ms"}, environment={})
PATIENCE = 10.0  # seconds
ROUNDS = 4


class Spares:
    """Makes the stores of a heartbeat thread, counts them and their heartbeats, and makes the first ones fail."""

    def __init__(self, failures: int = 0) -> None:
        self.made: list[Store] = []
        self.beats: list[set[str]] = []
        self.closed = 0
        self._failures = failures

    def watch(self, node: tm.Node) -> HeartbeatThread:
        """Make the stores of a node's heartbeat thread from now on."""
        thread = WorkflowProbe.of(node).heartbeats.thread
        assert thread is not None
        make, thread.make_store = thread.make_store, lambda: self._make(make)
        return thread

    def _make(self, make: Callable[[], Store]) -> Store:
        store = make()
        self.made.append(store)
        beat, close = store.runs.renew_leases, store.close

        async def counted_close() -> None:
            await close()
            self.closed += 1

        async def counted_beat(owner: str, attempts: Any, lease: float) -> Any:
            if len(self.beats) < self._failures:
                self.beats.append(set())
                raise StoreError("it is away")
            self.beats.append({str(key) for key in await beat(owner, attempts, lease)})

        cast(Any, store.runs).renew_leases = counted_beat
        cast(Any, store).close = counted_close
        return store


def wait(is_so: Callable[[], bool]) -> None:
    """Block the caller until a condition holds."""
    pause, waited = threading.Event(), 0.0
    while not is_so():
        pause.wait(0.005)
        waited += 0.005
        assert waited < PATIENCE, "it never came about"


def hogging(is_enough: Callable[[], bool]) -> tm.Workflow:
    """Return a workflow whose only task blocks the loop until something holds."""
    flow = tm.Workflow("hogging")

    @flow.task
    async def hog(ctx: tm.Context) -> str:
        wait(is_enough)
        return ctx.token

    return flow


def lifelines() -> list[threading.Thread]:
    """Return the threads of all lifelines."""
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


async def test_what_is_held_is_beaten_for_while_the_loop_is_blocked(
    sqlite: str, caplog: pytest.LogCaptureFixture
) -> None:
    """W-11: the thread renews the leases, logs once which task blocks, and closes the store when it yields."""
    spares = Spares()
    flow = hogging(lambda: len(spares.beats) >= ROUNDS)
    async with tm.Node(sqlite, load=[flow], settings=SETTINGS) as node:
        spares.watch(node)
        token = (await (await node.start("hogging")).wait(PATIENCE)).outputs["hog"]
        assert all(beat == {token} for beat in spares.beats)
        said = [record for record in caplog.records if record.msg == LOOP_BLOCKED]
        assert [vars(record)["task"] for record in said] == [token]

        async def has_let_go() -> bool:
            return (len(spares.made), spares.closed) == (1, 1)

        await until(has_let_go)
    assert lifelines() == []


async def test_a_loop_that_turns_needs_no_other_connection(sqlite: str) -> None:
    """W-11: as long as the loop answers, the thread opens nothing; and it is there only once something was held."""
    gates, spares, asked = Gates("wait"), Spares(), []
    async with tm.Node(sqlite, load=[gates.flow], settings=SETTINGS | {"heartbeat_interval": "1s"}) as node:
        thread = spares.watch(node)
        tell = thread.call_on_loop

        def counted(news: Callable[[], None]) -> bool:
            asked.append(news)
            return tell(news)

        cast(Any, thread).call_on_loop = counted

        async def has_asked() -> bool:
            return len(asked) >= 3  # so that the first two were answered

        assert lifelines() == []
        run = await node.start("flow")
        await until(has_asked)
        assert spares.made == []
        assert len(lifelines()) == 1
        gates.open()
        assert (await run.wait(PATIENCE)).ok
    assert lifelines() == []


async def test_a_store_that_fails_is_tried_again(sqlite: str, caplog: pytest.LogCaptureFixture) -> None:
    """W-11: a beat that the store did not take is said and counted, and the next is made on new connections."""
    spares = Spares(failures=2)
    flow = hogging(lambda: len(spares.beats) > 2)
    caplog.set_level(logging.WARNING)
    async with tm.Node(sqlite, load=[flow], settings=SETTINGS) as node:
        spares.watch(node)
        token = (await (await node.start("hogging")).wait(PATIENCE)).outputs["hog"]
        assert spares.beats == [set(), set(), {token}]
        assert len(spares.made) == 3
        assert [record.msg for record in caplog.records].count(HEARTBEAT_FAILED) == 2
        assert node.metrics()["heartbeat_errors_total"] == 2


async def test_the_file_is_the_same_wherever_the_process_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W-11: a task that changes the folder of the process does not lead the thread to another file."""
    spares, elsewhere = Spares(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    node = tm.Node("sqlite:///tidemill.db", settings=SETTINGS)
    monkeypatch.chdir(elsewhere)
    thread = spares.watch(node)
    store = thread.make_store()
    await store.open()
    await store.close()
    assert list(elsewhere.iterdir()) == []
    assert (tmp_path / "tidemill.db").exists()


# -- a heartbeat thread by itself


def alone(held: dict[Any, Any], rounds: list[int], made: list[int]) -> HeartbeatThread:
    """Return a heartbeat thread without a node; it records when it reads the claims, and when it makes a store."""

    def make() -> Store:
        made.append(len(rounds))
        return make_store("sqlite:///nowhere/at/all")

    runtime: Any = SimpleNamespace(owner=SimpleNamespace(id="owner"), metrics=None, settings=QUICK)
    thread = HeartbeatThread(runtime, cast(Any, SimpleNamespace(claimed=held)), make)
    look = thread.claimed_keys

    def counted() -> Any:
        rounds.append(len(rounds))
        return look()

    cast(Any, thread).claimed_keys = counted
    return thread


async def test_nothing_is_opened_when_nothing_is_held() -> None:
    """W-11: a blocked loop without attempts has nothing to be kept alive."""
    rounds: list[int] = []
    made: list[int] = []
    thread = alone({}, rounds, made)
    thread.start()
    wait(lambda: len(rounds) >= ROUNDS)
    await thread.close(PATIENCE)
    assert (made, lifelines()) == ([], [])


def test_a_loop_that_was_left_is_not_kept_alive() -> None:
    """W-11: what a loop holds that does not run any more is as dead as with its process; the thread goes, too."""
    rounds: list[int] = []
    made: list[int] = []
    thread = alone({"attempt": None}, rounds, made)

    async def begin() -> None:
        thread.start()

    with asyncio.Runner() as runner:
        runner.run(begin())
        left = len(rounds)
        wait(lambda: len(rounds) >= left + ROUNDS)
        [thread] = lifelines()
    thread.join(PATIENCE)  # type: ignore[attr-defined]
    assert (made, lifelines()) == ([], [])
