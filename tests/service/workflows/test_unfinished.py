"""Runs whose code has changed: those that have not begun take the newest version, the others follow the policy."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import START, Gate, states
from tests.service.workflows.pairs import Pair, until
from tidemill.engine.workflows.client.audit import audit_runs

LATER = START + timedelta(hours=1)


def old(gate: Gate | None = None, **options: Any) -> tm.Workflow:
    """Return the first version: its second task waits at a gate, or fails and waits for a retry."""
    flow = tm.Workflow("daily", **options)

    @flow.task
    async def first() -> str:
        return "old"

    @flow.task(retry=tm.Retry(5, delay="3h"))
    async def second(first: str) -> str:
        if gate is None:
            raise ConnectionError("a mistake")
        await gate.pass_through()
        return f"{first}, old"

    @flow.task
    async def third(second: str) -> str:
        return f"{second}, old"

    return flow


def new(**options: Any) -> tm.Workflow:
    """Return the fixed version."""
    flow = tm.Workflow("daily", **options)

    @flow.task
    async def first() -> str:
        return "new"

    @flow.task
    async def second(first: str) -> str:
        return f"{first}, new"

    @flow.task
    async def third(second: str) -> str:
        return f"{second}, new"

    return flow


def renamed(**options: Any) -> tm.Workflow:
    """Return a version that lacks the task which has succeeded."""
    flow = tm.Workflow("daily", **options)

    @flow.task
    async def begin() -> str:
        return "new"

    @flow.task
    async def second(begin: str) -> str:
        return f"{begin}, new"

    return flow


async def begin_old(sqlite: str, runs: int = 1, **options: Any) -> list[str]:
    """Begin runs of the first version on a node that then ends; its second task waits for a retry."""
    async with tm.testing.node(sqlite, load=[old(**options)], start=START) as node:
        started = [await node.start("daily") for _ in range(runs)]
        await node.settle()
        assert states(await started[0].state()) == {"first": "success", "second": "up_for_retry", "third": "none"}
    return [run.id for run in started]


# -- runs that have not begun


@pytest.mark.parametrize("policy", ["pin", "upgrade", "cancel"])
async def test_a_queued_run_takes_the_newest_version_when_it_begins(store: str | None, policy: Any) -> None:
    """api.md, unfinished: whatever it is, a run that has not begun needs no old code."""
    gate = Gate()
    async with tm.testing.node(store, load=[old(gate, max_active_runs=1)]) as node:
        going, queued = await node.start("daily"), await node.start("daily")
        await node.advance("1s")
        await node.load(new(max_active_runs=1, unfinished=policy))
        await node.advance("2s")
        gate.is_open.set()
        await node.advance("2s")
        assert (await queued.state()).outputs["third"] == "new, new, new"
        assert (await going.state()).state == ("cancelled" if policy == "cancel" else "success")
        (record,) = await node.probe.workflows.store.runs.load([queued.id])
        assert record.run.version == new().wired().spec.version
        assert (await audit_runs(node.probe.workflows.store, node.clock.now())).findings == []


async def test_a_queued_run_of_another_process_takes_the_newest_version(sqlite: str) -> None:
    """The same after a restart: what its version was made of does not matter, new tasks included."""
    begun = await begin_old(sqlite, 2, max_active_runs=1)
    async with tm.testing.node(sqlite, load=[renamed(max_active_runs=1)], start=LATER) as node:
        await node.run_handle(begun[0]).cancel()
        await node.settle()
        assert (await node.run_handle(begun[1]).state()).outputs == {"begin": "new", "second": "new, new"}


async def test_a_begin_with_the_newest_version_that_cannot_be_written_is_repeated(sqlite: str) -> None:
    """The run is read again, and takes the version then."""
    begun = await begin_old(sqlite, 2, max_active_runs=1)
    async with tm.testing.node(sqlite, load=[renamed(max_active_runs=1)], start=LATER) as node:
        await node.run_handle(begun[0]).cancel()
        node.fail_store(2)
        await node.advance("10s")
        assert (await node.run_handle(begun[1]).state()).outputs == {"begin": "new", "second": "new, new"}


# -- runs that have begun


async def test_a_pinned_run_waits_and_says_so(sqlite: str, caplog: pytest.LogCaptureFixture) -> None:
    """unfinished="pin", the default: with the command that goes on, once in the log, in `why`, and for `doctor`."""
    (run,) = await begin_old(sqlite)
    async with tm.testing.node(sqlite, load=[new()], start=LATER) as node:
        await node.advance("5h")
        handle, after = node.run_handle(run), new().wired().spec.version
        before = old().wired().spec.version
        note = (
            f"run {run} waits for version {before} of 'daily', which no node has the code of: "
            f"`tidemill runs retry {run} --latest` continues it with version {after}, "
            f"`tidemill runs cancel {run}` ends it"
        )
        assert (await handle.why("second"))[0] == note
        assert states(await handle.state())["second"] == "scheduled"
        logged = [record for record in caplog.records if record.msg == "run.code_missing"]
        assert [(record.levelno, vars(record)["run"], vars(record)["reason"]) for record in logged] == [
            (logging.WARNING, run, note)
        ]
        found = (await audit_runs(node.probe.workflows.store, node.clock.now())).findings
        assert [(one.severity, note in one.sentence) for one in found][:1] == [("wrong", True)]
        await handle.retry(latest=True)
        await node.settle()
        assert (await handle.state()).outputs == {"first": "old", "second": "old, new", "third": "old, new, new"}
        assert (await audit_runs(node.probe.workflows.store, node.clock.now())).findings == []


async def test_a_run_without_code_is_noted_while_no_node_is_running(sqlite: str) -> None:
    """For `doctor`: the next node may have the code, so it is no problem yet."""
    (run,) = await begin_old(sqlite)
    async with tm.testing.node(sqlite, load=[new()], start=LATER) as node:
        store = node.probe.workflows.store
        await node.probe.workflows.store.owners.delete([node.probe.workflows.owner.id])
        found = (await audit_runs(store, node.clock.now())).findings
        assert [one.severity for one in found if f"run {run} waits for version" in one.sentence] == ["note"]


async def test_what_queues_behind_a_run_without_code_says_so(sqlite: str) -> None:
    """With max_active_runs=1, everything waits for it: `why` names the run that is in the way, and the command."""
    first, second = await begin_old(sqlite, 2, max_active_runs=1)
    async with tm.testing.node(sqlite, load=[new(max_active_runs=1)], start=LATER) as node:
        await node.advance("2s")
        reasons = await node.run_handle(second).why("first")
        assert reasons[0] == "the run is queued: 1 other run of 'daily' is running, at most 1 may"
        assert reasons[1].startswith(f"run {first} waits for version {old().wired().spec.version} of 'daily'")
        assert f"`tidemill runs retry {first} --latest`" in reasons[1]


async def test_an_upgraded_run_continues_with_the_newest_version(sqlite: str) -> None:
    """unfinished="upgrade": what has succeeded stays, what waits is tried with the new code immediately."""
    (run,) = await begin_old(sqlite)
    async with tm.testing.node(sqlite, load=[new(unfinished="upgrade")], start=LATER) as node:
        await node.advance("2s")
        result = await node.run_handle(run).state()
        assert result.outputs == {"first": "old", "second": "old, new", "third": "old, new, new"}
        assert result.tasks["second"].attempts == 2
        assert (await audit_runs(node.probe.workflows.store, node.clock.now())).findings == []


async def test_a_run_whose_ended_tasks_are_gone_is_not_upgraded(sqlite: str) -> None:
    """unfinished="upgrade": its results would be lost, so an operator has to decide, and sees what is missing."""
    (run,) = await begin_old(sqlite)
    async with tm.testing.node(sqlite, load=[renamed(unfinished="upgrade")], start=LATER) as node:
        await node.advance("2s")
        handle = node.run_handle(run)
        assert "without 'first', which that version does not have" in (await handle.why("second"))[0]
        assert (await handle.retry(latest=True)).reruns == ["begin", "second"]
        await node.settle()
        assert (await handle.state()).outputs == {"begin": "new", "second": "new, new"}


async def test_a_cancelled_run_says_why(sqlite: str) -> None:
    """unfinished="cancel": and what queued behind it begins."""
    first, second = await begin_old(sqlite, 2, max_active_runs=1)
    async with tm.testing.node(sqlite, load=[new(max_active_runs=1, unfinished="cancel")], start=LATER) as node:
        await node.advance("2s")
        result = await node.run_handle(first).state()
        assert (result.state, result.reason.startswith("its code has changed to version")) == ("cancelled", True)
        assert (await node.run_handle(second).state()).ok


async def test_the_setting_decides_for_workflows_that_do_not(sqlite: str) -> None:
    """Settings: a workflow's own policy wins."""
    (run,) = await begin_old(sqlite)
    settings = {"unfinished": "upgrade"}
    async with tm.testing.node(sqlite, load=[new(unfinished="pin")], start=LATER, settings=settings) as node:
        await node.advance("2s")
        assert (await node.run_handle(run).state()).state == "running"
        await node.load(new())
        await node.advance("2s")
        assert (await node.run_handle(run).state()).ok


async def test_a_hot_swap_upgrades_what_waits_immediately(store: str | None) -> None:
    """unfinished="upgrade": also on an idle node, whose next tick is far away."""
    async with tm.testing.node(store, load=[old()]) as node:
        run = await node.start("daily")
        await node.advance("10m")
        await node.load(new(unfinished="upgrade"))
        await node.settle()
        assert (await run.state()).outputs["third"] == "old, new, new"


async def test_a_running_task_ends_on_the_code_it_began_with(store: str | None) -> None:
    """P-6: an upgrade waits for it; only what comes after it runs the new code."""
    gate = Gate()
    async with tm.testing.node(store, load=[old(gate)]) as node:
        run = await node.start("daily")
        await node.advance("1s")
        await node.load(new(unfinished="upgrade"))
        await node.advance("3s")
        assert states(await run.state())["second"] == "running"
        gate.is_open.set()
        await node.settle()
        result = await run.state()
    assert result.ok
    assert result.outputs["second"] == "old, old"


async def test_a_run_of_a_version_that_another_node_has_is_left_to_it(
    make_pair: Callable[..., Awaitable[Pair]],
) -> None:
    """While nodes are replaced one by one, the old version is current on some of them: no run of it is cancelled."""
    gate = Gate()
    leader, follower = await make_pair(old(gate))
    run = await leader.start("daily")

    async def is_running() -> bool:
        return gate.inside == 1

    async def is_cancelled() -> bool:
        return (await run.state()).state == "cancelled"

    await until(is_running)
    await leader.load(new(unfinished="cancel"))
    ticks = leader.metrics()["scheduler_ticks_total"]

    async def has_ticked() -> bool:
        return leader.metrics()["scheduler_ticks_total"] > ticks + 3

    await until(has_ticked)
    assert (await run.state()).state == "running"
    await follower.load(new(unfinished="cancel"))
    await until(is_cancelled)


@pytest.mark.parametrize("wrong", ["upgarde", 7, True])
def test_an_unknown_policy_is_a_definition_error(wrong: Any) -> None:
    """Errors: with the words that there are."""
    with pytest.raises(tm.DefinitionError, match='unfinished= is one of "pin", "upgrade", "cancel", not'):
        tm.Workflow("daily", unfinished=wrong)
    assert tm.Workflow("daily").unfinished == "pin"
