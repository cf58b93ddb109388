"""The process of an attempt looks as if it had been started for it alone."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.contract.executor_harness import ExecutorHarness, open_harness
from tidemill.workflows.attempt_results import Succeeded

Write = Callable[[int], None]

NAME = "名" * 200
"""Longer, in bytes, than the fork server's first read."""


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ExecutorHarness]:
    """The executor, opened."""
    async with open_harness("subprocess", tmp_path) as harness:
        yield harness


async def test_a_program_that_a_task_executes_inherits_no_descriptors(harness: ExecutorHarness) -> None:
    """Executors: even a program that does not close inherited ones."""
    assert await harness.value("descriptors_of_a_program") == ["0", "1", "2", "3"]  # the last one lists the others


async def test_the_environment_is_that_of_the_node(harness: ExecutorHarness) -> None:
    """Variables for the fork server are not passed to tasks."""
    child_environment, node_environment = await harness.value("environment"), dict(os.environ)
    for environment in (child_environment, node_environment):
        environment.pop("PYTEST_CURRENT_TEST", None)
    assert child_environment == node_environment


async def test_every_process_has_its_own_random_numbers(harness: ExecutorHarness) -> None:
    """Children forked from the same memory do not share a random state."""
    assert len({await harness.value("draws_a_random_number") for _ in range(3)}) == 3


async def test_a_task_may_fork_with_threads(harness: ExecutorHarness) -> None:
    """Python's at-fork hooks are deferred for the fork server's children, not for their children."""
    assert await harness.value("forks_with_threads") == 1


CODE = f"""
import sys, threading
from tidemill.workflows.workflow import Workflow
threaded = Workflow("threaded")
lock = id(threading._active_limbo_lock)  # the at-fork hook of `threading` replaces it

if "pytest" not in sys.modules:
    for _ in range({{threads}}):
        threading.Thread(target=threading.Event().wait, daemon=True).start()

@threaded.task
def has_run_hooks() -> bool:
    return id(threading._active_limbo_lock) != lock

@threaded.task
def count_threads() -> int:
    return threading.active_count()

@threaded.task
def {NAME}() -> int:
    return 1
"""


@pytest.fixture
def write(harness: ExecutorHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module that starts a number of threads when another process imports it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(threads: int) -> None:
        (tmp_path / "threaded_flow.py").write_text(CODE.format(threads=threads), encoding="utf-8")
        monkeypatch.delitem(sys.modules, "threaded_flow", raising=False)
        harness.workflows["threaded"] = import_module("threaded_flow").threaded

    return write


@pytest.mark.parametrize("threads", [0, 1, 2])
async def test_at_fork_hooks_run_if_the_fork_server_has_threads(
    harness: ExecutorHarness, write: Write, threads: int
) -> None:
    """docs/design, 0018: only then, because they cost a third of a start."""
    write(threads)
    assert await harness.value("has_run_hooks", workflow="threaded", params={}) is (threads > 0)
    assert await harness.value("count_threads", workflow="threaded", params={}) == 1


async def test_a_spawn_message_may_arrive_in_parts(harness: ExecutorHarness, write: Write) -> None:
    """With its descriptors, and followed by others."""
    write(0)
    requests = [harness.request(NAME, workflow="threaded", params={}) for _ in range(5)]
    for request in requests:
        await harness.executor.submit(request)
    for request in requests:
        assert isinstance(await harness.listener.wait_for_ending(request.key), Succeeded)
