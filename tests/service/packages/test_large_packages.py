"""Large packages: the cost of a check and of a load grows with the package, not with its square."""

from pathlib import Path
from time import process_time
from typing import Any

import pytest

import tidemill as tm
from benchmarks.bench_wiring import source
from tidemill.packages.loading.reader import import_module, read_module


def test_a_thousand_tasks_are_checked_within_a_second(tmp_path: Path) -> None:
    """W-19: each task has the fingerprint of its code, and the module is parsed once for all of them."""
    (tmp_path / "thousand_tasks.py").write_text(source(1000))
    workflows = read_module(import_module(str(tmp_path / "thousand_tasks.py"))).workflows
    began = process_time()
    for workflow in workflows:
        workflow.check()
    assert process_time() - began < 1.0
    assert len(workflows) == 100


def test_a_chain_of_thousands_of_tasks_is_checked_within_a_second() -> None:
    """The tasks of one workflow are wired in a time that grows with their number."""
    workflow = tm.Workflow("chain")
    for number in range(4000):
        made: dict[str, Any] = {}
        parameter = f"task_{number - 1}: int" if number else ""
        exec(f"def task_{number}({parameter}) -> int:\n    return {number}", {}, made)
        workflow.task(made[f"task_{number}"])
    began = process_time()
    workflow.check()
    assert process_time() - began < 1.0


@pytest.mark.parametrize("tasks", [500, 1000])
async def test_a_file_of_many_workflows_is_loaded(tmp_path: Path, tasks: int) -> None:
    """P-7: the probe, which has ten seconds, checks them too."""
    (tmp_path / "many.py").write_text(source(tasks))
    async with tm.Node() as node:
        await node.load(tmp_path / "many.py")
        assert len(node.registry.workflows()) == tasks // 10
        result = await (await node.start("chain_7")).wait(timeout=30)
        assert result.outputs["chain_7_9"] == 3**10
