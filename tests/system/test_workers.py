"""Workers in processes of their own on PostgreSQL: killed, frozen and stopped, without a loss and without overlaps."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.proxy import proxy_to
from tests.postgres import PostgresServer
from tests.system.worker_processes import PATIENCE, WorkerProcess, Workshop, is_running, workshop_on
from tests.system.workflow_nodes import check_executions, until
from tidemill.api.handles import AsyncRun
from tidemill.storage.workflow_ports import Runs
from tidemill.testing.probes.workflows import WorkflowProbe
from tidemill.workflows.states import RunState, TaskState

AT_ONCE = 5.0  # seconds until the attempts of a dead worker of this host go on; otherwise it would be 90
SHORT_LEASE = {"heartbeat_timeout": "3s", "heartbeat_interval": "500ms"}
LOAD = 12  # runs that are started before a worker goes


@pytest.fixture
async def workshop(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Workshop]:
    """A node on an empty database."""
    async with workshop_on(await postgres.fresh_store(), tmp_path) as workshop:
        yield workshop


async def all_succeed(runs: list[AsyncRun]) -> list[int]:
    """Wait for runs, and return the number of attempts that each took."""
    results = [await run.wait(timeout=PATIENCE) for run in runs]
    assert {result.state for result in results} == {RunState.SUCCESS}
    return [result.tasks["hold"].attempts for result in results]


def stored(workshop: Workshop) -> Runs:
    """Return the runs as they are stored."""
    return WorkflowProbe.of(workshop.node).store.runs


async def begin(workshop: Workshop, count: int) -> None:
    """Wait until so many attempts have begun."""
    await until(lambda: len(workshop.begun()) == count, f"{count} attempts have begun")


async def test_kill_9_of_a_worker(workshop: Workshop) -> None:
    """W-11, W-12: its attempts are lost at once, since its host is seen; others run them, and nothing runs twice."""
    killed, other = await workshop.add(), await workshop.add()
    runs = await workshop.start(4)
    await begin(workshop, 4)
    lost = {line.token.rpartition("#")[0] for line in workshop.begun(killed)}
    assert len(lost) == 2
    await workshop.add()  # room for what the dead one ran
    moment = await killed.kill()

    def resumed() -> list[float]:
        again = [line for line in workshop.begun() if line.token.endswith("#2")]
        return [line.at for line in again if line.token.rpartition("#")[0] in lost]

    await until(lambda: len(resumed()) == 2, "the attempts of the dead worker run elsewhere", AT_ONCE)
    print(f"kill -9 of a worker: attempts go on after {max(resumed()) - moment:.3f} s")
    workshop.gate.touch()
    assert sorted(await all_succeed(runs)) == [1, 1, 2, 2]
    check_executions(workshop.executions())
    assert workshop.node.metrics()["agent_lost_tasks_total"] == 2
    assert other.process.returncode is None


async def test_a_frozen_worker_loses_its_attempts_and_ends_them(postgres: PostgresServer, tmp_path: Path) -> None:
    """W-11: its code ends before another worker runs the task; when it wakes, its reports are refused."""
    async with workshop_on(await postgres.fresh_store(), tmp_path, SHORT_LEASE) as workshop:
        frozen = await workshop.add()
        runs = await workshop.start(2)
        await begin(workshop, 2)
        children = [line.pid for line in workshop.begun(frozen)]
        frozen.signal(signal.SIGSTOP)
        successor = await workshop.add()
        await until(lambda: not any(map(is_running, children)), "the code of the frozen worker has ended")
        assert workshop.begun(successor) == []
        await until(lambda: len(workshop.begun(successor)) == 2, "another worker runs the tasks")
        frozen.signal(signal.SIGCONT)
        workshop.gate.touch()
        assert await all_succeed(runs) == [2, 2]
        assert {(await run.wait()).tasks["hold"].output for run in runs} == {str(successor.number)}
        await goes_on_working(workshop, frozen)
        attempts = [row for run in runs for row in await stored(workshop).read_attempts(run.id)]
        assert [(row.outcome, row.key.attempt) for row in attempts] == [("lost", 1), ("success", 2)] * 2


async def test_a_worker_that_is_cut_off_ends_its_code_before_another_runs_it(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """W-11: its packets vanish, its process lives, and it cannot know; when it is back, it goes on working."""
    async with (
        proxy_to(postgres.port) as (proxy, port),
        workshop_on(await postgres.fresh_store(), tmp_path, SHORT_LEASE) as workshop,
    ):
        cut_off = await workshop.add(store=workshop.address.replace(f":{postgres.port}/", f":{port}/"))
        runs = await workshop.start(2)
        await begin(workshop, 2)
        children = [line.pid for line in workshop.begun(cut_off)]
        proxy.is_stalled = True
        successor = await workshop.add()
        await until(lambda: not any(map(is_running, children)), "the code of the worker has ended")
        assert workshop.begun(successor) == []
        await until(lambda: len(workshop.begun(successor)) == 2, "another worker runs the tasks")
        proxy.is_stalled = False
        workshop.gate.touch()
        assert await all_succeed(runs) == [2, 2]
        await goes_on_working(workshop, cut_off)


async def goes_on_working(workshop: Workshop, worker: WorkerProcess) -> None:
    """Give all workers work until one of them has begun some of it."""
    before = len(workshop.begun(worker))
    async with asyncio.timeout(PATIENCE):
        while len(workshop.begun(worker)) == before:
            await all_succeed(await workshop.start(6, seconds=0.0))


def is_draining(workshop: Workshop) -> bool:
    """Return whether the first worker has logged that it waits for two tasks."""
    lines = map(json.loads, (workshop.folder / "worker 1").read_text("utf-8").splitlines())
    return any(line["event"] == "worker.draining" and line["running"] == 2 for line in lines)


async def test_sigterm_lets_running_tasks_end_and_claims_no_more(workshop: Workshop) -> None:
    """http.md: it exits with 0 when they have ended, and is listed no more."""
    worker = await workshop.add()
    runs = await workshop.start(3)
    await begin(workshop, 2)
    worker.signal(signal.SIGTERM)
    late = await workshop.start(1)
    await until(lambda: is_draining(workshop), "it says what it waits for")
    workshop.gate.touch()
    assert await worker.exit_code() == 0
    assert len(workshop.begun()) == 2
    waiting = [(await run.state()).tasks["hold"].state for run in (*runs, *late)]
    assert sorted(waiting) == [TaskState.SCHEDULED] * 2 + [TaskState.SUCCESS] * 2
    assert [one.owner.kind for one in await WorkflowProbe.of(workshop.node).client.nodes.list_all()] == ["embedded"]
    await workshop.add()
    assert await all_succeed([*runs, *late]) == [1, 1, 1, 1]


@pytest.mark.parametrize("way", ["a second signal", "a timeout"])
async def test_tasks_that_do_not_end_are_returned(workshop: Workshop, way: str) -> None:
    """http.md: no failure and no recovery is counted; another worker runs them."""
    worker = await workshop.add(*(["--drain-timeout", "200ms"] if way == "a timeout" else []))
    runs = await workshop.start(2)
    await begin(workshop, 2)
    children = [line.pid for line in workshop.begun()]
    worker.signal(signal.SIGTERM)
    if way == "a second signal":
        await until(lambda: is_draining(workshop), "it waits")
        worker.signal(signal.SIGTERM)
    assert await worker.exit_code() == 0
    assert not any(map(is_running, children))
    workshop.gate.touch()
    await workshop.add()
    await all_succeed(runs)
    rows = [record.tasks[0] for record in await stored(workshop).load([run.id for run in runs])]
    assert [(row.failures, row.recoveries) for row in rows] == [(0, 0), (0, 0)]


async def test_no_task_runs_twice_at_the_same_time(workshop: Workshop) -> None:
    """W-11, W-12, I-5: workers are killed and stopped under load, and every run succeeds all the same."""
    runs = list[AsyncRun]()
    await asyncio.gather(*(workshop.add(concurrency=4) for _ in range(3)))
    for is_killed in (True, False, True):
        runs += await workshop.start(LOAD, seconds=0.5)
        await until(lambda: bool(workshop.busy()), "a worker runs something")
        worker = workshop.busy()[-1]  # the newest: the others go on
        if is_killed:
            await worker.kill()
        else:
            worker.signal(signal.SIGTERM)
            assert await worker.exit_code() == 0
        await workshop.add(concurrency=4)
    await all_succeed(runs)
    check_executions(workshop.executions())
    lost = workshop.node.metrics()["agent_lost_tasks_total"]
    print(f"{len(workshop.workers)} workers, {len(runs)} runs, {len(workshop.begun())} attempts, {lost:.0f} lost")
    assert lost > 0, "no kill hit a running task, so this has shown nothing"
