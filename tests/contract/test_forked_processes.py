"""What a task finds in the process that was forked for it: as if it had been started for it alone."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.contract.executor_bench import Bench, bench_of
from tidemill.workflows.attempt_results import Succeeded

Write = Callable[[int], None]

NAME = "名" * 200
"""Longer, in bytes, than what a fork server reads at once."""


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """The executor, open."""
    async with bench_of("subprocess", tmp_path) as bench:
        yield bench


async def test_what_a_task_executes_inherits_nothing_of_ours(bench: Bench) -> None:
    """Executors: also not by a program that does not close what it is handed."""
    assert await bench.value("descriptors_of_a_program") == ["0", "1", "2", "3"]  # the last is that of who lists them


async def test_the_environment_is_that_of_the_node(bench: Bench) -> None:
    """What a fork server is started with is not for tasks."""
    theirs, ours = await bench.value("surroundings"), dict(os.environ)
    for one in (theirs, ours):
        one.pop("PYTEST_CURRENT_TEST", None)
    assert theirs == ours


async def test_every_process_throws_its_own_dice(bench: Bench) -> None:
    """What is forked from the same memory does not have the same future."""
    assert len({await bench.value("throws_dice") for _ in range(3)}) == 3


async def test_a_task_may_fork_with_threads(bench: Bench) -> None:
    """Python's own repairs are held back from the fork server's children, not from theirs."""
    assert await bench.value("forks_with_threads") == 1


CODE = f"""
import sys, threading
from tidemill.workflows.workflow import Workflow
threaded = Workflow("threaded")
lock = id(threading._active_limbo_lock)  # `threading` makes another one when it repairs

if "pytest" not in sys.modules:
    for _ in range({{threads}}):
        threading.Thread(target=threading.Event().wait, daemon=True).start()

@threaded.task
def is_repaired() -> bool:
    return id(threading._active_limbo_lock) != lock

@threaded.task
def count_threads() -> int:
    return threading.active_count()

@threaded.task
def {NAME}() -> int:
    return 1
"""


@pytest.fixture
def write(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module that starts so many threads when it is imported elsewhere."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(threads: int) -> None:
        (tmp_path / "threaded_flow.py").write_text(CODE.format(threads=threads), encoding="utf-8")
        monkeypatch.delitem(sys.modules, "threaded_flow", raising=False)
        bench.workflows["threaded"] = import_module("threaded_flow").threaded

    return write


@pytest.mark.parametrize("threads", [0, 1, 2])
async def test_a_process_is_repaired_if_there_were_threads(bench: Bench, write: Write, threads: int) -> None:
    """docs/design, 0018: only then, for it costs a third of a start."""
    write(threads)
    assert await bench.value("is_repaired", workflow="threaded", params={}) is (threads > 0)
    assert await bench.value("count_threads", workflow="threaded", params={}) == 1


async def test_a_request_may_come_in_pieces(bench: Bench, write: Write) -> None:
    """With its descriptors, and with others behind it."""
    write(0)
    orders = [bench.order(NAME, workflow="threaded", params={}) for _ in range(5)]
    for order in orders:
        await bench.executor.submit(order)
    for order in orders:
        assert isinstance(await bench.ledger.ending(order.key), Succeeded)
