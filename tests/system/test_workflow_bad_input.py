"""Tasks that do everything wrong, in processes of their own on a real node: each end is reported, others go on."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.system.workflow_nodes import Fleet, all_ended, all_runs, check_everything, fleet_on, opened, until
from tidemill.storage.store import Store
from tidemill.workflows.records import AttemptRow, TaskRow

ALL = ["load", "patient", "gushing", "exiting", "dying", "stubborn"]
MEMORY = 100 * 1024  # kilobytes by which a gigabyte of output may make a node grow
LIMIT = 1.0  # seconds that children may outlive their node


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Nodes on a SQLite file."""
    async with fleet_on(f"sqlite:///{tmp_path / 'tidemill.db'}", tmp_path) as fleet:
        yield fleet


def peak(pid: int) -> int:
    """Return the most memory that a process ever had, in kilobytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def ending(store: Store, workflow: str) -> tuple[str, TaskRow, AttemptRow]:
    """Return how the only run of a workflow ended: its state, its only task, that one's only attempt."""
    [run] = [run for run in await all_runs(store) if run.workflow == workflow]
    [record] = await store.runs.load([run.id])
    [task], [attempt] = record.tasks, await store.runs.read_attempts(run.id)
    return run.state, task, attempt


async def test_whatever_a_task_does_its_end_is_reported_truly_and_others_go_on(fleet: Fleet) -> None:
    """W-16, F36, F38, F44: a gigabyte of output, os._exit, a kill from outside, one that ignores SIGTERM."""
    node = await fleet.add(workflows=ALL, executor="subprocess")
    await node.start("load")
    async with opened(fleet.address) as store:
        await all_ended(store)
        before = peak(node.pid)
        for workflow in ("gushing", "stubborn", "exiting", "dying"):
            await node.start(workflow)
        began = time.monotonic()
        others = await node.start("load", 5)
        await until(lambda: totals(fleet) == 6, "others go on meanwhile")
        states = {run.id: run.state for run in await all_runs(store)}
        print(f"others ended after {time.monotonic() - began:.3f} s: {sum(states[one] == 'success' for one in others)}")
        await all_ended(store)
        print(f"all ended after {time.monotonic() - began:.3f} s; the node grew by {peak(node.pid) - before} kB")
        assert peak(node.pid) - before < MEMORY
        await check_endings(store)
    await fleet.stop()


def totals(fleet: Fleet) -> int:
    """Return how many runs of the load have come to their end, by the journal."""
    return sum(note.what == "end" and "/total" in note.token for note in fleet.notes())


async def check_endings(store: Store) -> None:
    """Each ends in a state that tells the truth, with the reason on the attempt."""
    state, task, attempt = await ending(store, "gushing")
    assert (state, task.state, attempt.outcome) == ("success", "success", "success")

    state, task, attempt = await ending(store, "exiting")
    assert (state, task.state, attempt.outcome, attempt.exit) == ("failed", "failed", "failed", 3)
    assert attempt.error is not None
    assert "exit code 3" in attempt.error.message
    assert "exit code 3" in task.reason

    state, task, attempt = await ending(store, "dying")
    assert (state, task.state, attempt.outcome, attempt.exit) == ("failed", "failed", "failed", -9)
    assert attempt.error is not None
    assert "SIGKILL, perhaps out of memory" in attempt.error.message
    assert "out of memory" in task.reason

    state, task, attempt = await ending(store, "stubborn")
    assert (state, task.state, attempt.outcome, attempt.exit) == ("failed", "failed", "timeout", -9)
    assert attempt.error is not None
    assert "500ms" in attempt.error.message or "0.5 s" in attempt.error.message, attempt.error
    for run in await all_runs(store):
        assert run.state == "success" or run.workflow in ("exiting", "dying", "stubborn"), run


async def test_kill_9_of_a_node_with_live_children(fleet: Fleet) -> None:
    """W-12, F33: children are gone within a second; at the next start what they did is begun again, once."""
    node = await fleet.add(executor="subprocess")
    runs = await node.start("patient", 4)
    await until(lambda: len(fleet.notes()) == 4, "all children are at it")
    children = [note.pid for note in fleet.notes()]
    assert node.pid not in children
    killed = await fleet.kill(node)
    await until(lambda: all(is_gone(pid) for pid in children), "the children are gone", LIMIT)
    print(f"children gone {time.monotonic() - killed:.3f} s after the kill")
    node = await fleet.add(executor="subprocess")
    async with opened(fleet.address) as store:
        await all_ended(store)
        print(f"resumed and ended {time.monotonic() - node.said[0]['at']:.3f} s after the next start")
        for run in runs:
            outcomes = [row.outcome for row in await store.runs.read_attempts(run)]
            assert outcomes == ["lost", "success"]
    await fleet.stop()
    assert all(record.run.state == "success" for record in await check_everything(fleet))


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; one that only waits to be reaped has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
