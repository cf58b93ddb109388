"""The task scope: errors are logged and stop no other task, and no task outlives the scope."""

import asyncio
import logging

import pytest

from tidemill.engine.tasks import TaskScope
from tidemill.kernel.errors import OperationError


async def fail() -> None:
    """Raise immediately."""
    raise ValueError("broken")


async def opened() -> TaskScope:
    """Return an open scope."""
    scope = TaskScope()
    await scope.open()
    return scope


async def test_a_failed_task_is_logged_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Its error is a bug of the node."""
    scope = await opened()
    other = scope.start("other", asyncio.Event().wait())
    await asyncio.wait({scope.start("broken", fail())})
    assert [(record.message, record.levelno) for record in caplog.records] == [("task failed", logging.ERROR)]
    assert not other.done()
    await scope.close()
    assert (other.cancelled(), len(scope)) == (True, 0)


async def test_a_cancelled_task_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Also one that is cancelled before its first step."""
    scope = await opened()
    scope.start("waiting", asyncio.Event().wait())
    scope.start("never begun", fail()).cancel()
    await scope.close()
    assert caplog.records == []


async def test_a_scope_that_is_not_open_refuses_tasks() -> None:
    """Before it is opened, and after everything has ended."""
    scope = TaskScope()
    with pytest.raises(RuntimeError, match="not open"):
        scope.start("early", fail())
    await scope.open()
    await scope.close()
    with pytest.raises(RuntimeError, match="not open"):
        scope.start("late", fail())


async def test_shielded_work_passes_its_result_and_its_error_on() -> None:
    """They are the caller's."""
    scope = await opened()
    assert await scope.run_shielded("sum", asyncio.sleep(0, 3)) == 3
    with pytest.raises(ValueError, match="broken"):
        await scope.run_shielded("broken", fail())
    await scope.close()


async def test_shielded_work_continues_without_its_caller() -> None:
    """A cancelled caller does not cancel the work."""
    scope, gate, done = await opened(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await gate.wait()
        done.set()

    async with asyncio.TaskGroup() as tasks:
        caller = tasks.create_task(scope.run_shielded("work", work()))
        await asyncio.sleep(0)
        caller.cancel()
    gate.set()
    async with asyncio.timeout(5):
        await done.wait()
    await scope.close()


async def test_closing_fails_the_callers_of_shielded_work() -> None:
    """They must not wait for work that was cancelled."""
    scope = await opened()
    async with asyncio.TaskGroup() as tasks:
        caller = tasks.create_task(_error_of(scope))
        await asyncio.sleep(0)
        await scope.close()
    assert caller.result() == "work: stopped before it was done"


async def _error_of(scope: TaskScope) -> str:
    try:
        await scope.run_shielded("work", asyncio.Event().wait())
    except OperationError as error:
        return str(error)
    return ""
