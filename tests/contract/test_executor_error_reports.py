"""Errors that are hard to report still end the attempt and free its slot."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.executor_harness import ExecutorHarness, open_harness
from tests.contract.hard_to_report_workflows import endings
from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.executors.runner import TaskCall
from tidemill.workflows.attempt_results import AttemptResult, Succeeded


@pytest.fixture(params=["in_process", "subprocess", "worker"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ExecutorHarness]:
    """Each executor, opened, with a single slot."""
    async with open_harness(request.param, tmp_path, concurrency=1) as harness:
        harness.workflows["endings"] = endings
        yield harness


async def check_slot_is_free(harness: ExecutorHarness) -> None:
    """Check that the single slot is free and usable."""
    assert harness.executor.running() == set()
    assert harness.executor.free_slots() == 1
    assert isinstance(await harness.run("works", workflow="endings"), Succeeded)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("silences", "KeyboardInterrupt: "),
        ("silences_on_a_loop", "KeyboardInterrupt: "),
        ("has_no_words", "Error: it ended with an error that cannot be shown"),
        ("has_no_words_on_a_loop", "Error: it ended with an error that cannot be shown"),
        ("leaves_the_calendar", "OverflowError: "),
        ("leaves_the_calendar_on_a_loop", "OverflowError: "),
        ("waits_for_ever", "ValueError: inf is not a duration: it is finite, and at most a hundred years, '36500d'"),
    ],
)
async def test_a_result_that_cannot_be_reported_is_a_failure(harness: ExecutorHarness, task: str, text: str) -> None:
    """W-5: a poison attempt is set aside with its reason; all others advance."""
    failure = await harness.failure(task, workflow="endings")
    assert f"{failure.error.type}: {failure.error.message}".startswith(text)
    await check_slot_is_free(harness)


async def test_an_error_in_the_runner_costs_no_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W-5: on a thread and on the loop."""

    def broken(self: TaskCall, request: AttemptRequest, environment: Any) -> AttemptResult:
        raise RuntimeError(f"{request.key.task} is broken")

    async def broken_async(self: TaskCall, request: AttemptRequest, environment: Any) -> AttemptResult:
        return broken(self, request, environment)

    async with open_harness("in_process", tmp_path, concurrency=1) as harness:
        harness.workflows["endings"] = endings
        with monkeypatch.context() as patched:
            patched.setattr(TaskCall, "run", broken)
            patched.setattr(TaskCall, "run_async", broken_async)
            for task in ("works", "silences_on_a_loop"):
                failure = await harness.failure(task, workflow="endings")
                assert str(failure.error) == f"RuntimeError: {task} is broken"
        await check_slot_is_free(harness)
