"""Whatever goes wrong between the author's function and its end, the attempt ends, and its place is free."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.ending_flows import endings
from tests.contract.executor_bench import Bench, bench_of
from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.executors.runner import TaskCall
from tidemill.workflows.attempt_results import AttemptResult, Succeeded


@pytest.fixture(params=["in_process", "subprocess"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """Each executor, open, with a single place."""
    async with bench_of(request.param, tmp_path, concurrency=1) as bench:
        bench.workflows["endings"] = endings
        yield bench


async def check_place(bench: Bench) -> None:
    """Check that the one place is free, and that something runs at it."""
    assert bench.executor.running() == set()
    assert bench.executor.free_slots() == 1
    assert isinstance(await bench.run("works", workflow="endings"), Succeeded)


@pytest.mark.parametrize(
    ("task", "said"),
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
async def test_an_end_that_cannot_be_told_is_a_failure(bench: Bench, task: str, said: str) -> None:
    """W-5: a poison attempt is set aside with its reason; all others advance."""
    failure = await bench.failure(task, workflow="endings")
    assert f"{failure.error.type}: {failure.error.message}".startswith(said)
    await check_place(bench)


async def test_code_of_ours_that_raises_costs_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W-5: on a thread and on the loop."""

    def broken(self: TaskCall, order: AttemptRequest, around: Any) -> AttemptResult:
        raise RuntimeError(f"{order.key.task} is broken")

    async def broken_async(self: TaskCall, order: AttemptRequest, around: Any) -> AttemptResult:
        return broken(self, order, around)

    async with bench_of("in_process", tmp_path, concurrency=1) as bench:
        bench.workflows["endings"] = endings
        with monkeypatch.context() as patched:
            patched.setattr(TaskCall, "run", broken)
            patched.setattr(TaskCall, "run_async", broken_async)
            for task in ("works", "silences_on_a_loop"):
                failure = await bench.failure(task, workflow="endings")
                assert str(failure.error) == f"RuntimeError: {task} is broken"
        await check_place(bench)
