"""Walks through the code: operations whose walks have become short stay so."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.bench_walks import LIMITS, Walk, recorder, walk_durable_push, walk_http_start, walk_run


@pytest.fixture(autouse=True)
def recording() -> Iterator[None]:
    """Calls are recorded, on all threads."""
    recorder.install()
    yield
    sys.setprofile(None)
    threading.setprofile(None)


def keep_within(name: str, walk: Walk) -> None:
    """Check a walk against its limits."""
    measures = (len(walk.steps), len(walk.files), walk.switches)
    assert all(one <= most for one, most in zip(measures, LIMITS[name], strict=True) if most is not None), (
        f"{name} takes {measures} calls, files and switches: at most {LIMITS[name]}; {walk.files}"
    )


async def test_a_start_over_http_crosses_few_files(tmp_path: Path) -> None:
    """What every request would find out again, such as what a route needs, is found out once."""
    walk = await walk_http_start(2, str(tmp_path))
    assert {"server/derive.py", "api/runs.py", "storage/sqlite/runs.py"} <= set(walk.files)
    keep_within("start over HTTP", walk)


async def test_a_run_of_two_tasks_takes_few_calls(tmp_path: Path) -> None:
    """What is the same for every run of a version, or for every task of a run, is found out once."""
    walk = await walk_run(3, str(tmp_path))
    assert {"workflows/run_draft.py", "storage/sqlite/apply_changes.py"} <= set(walk.files)
    keep_within("two-task run", walk)


async def test_a_durable_push_crosses_few_files(tmp_path: Path) -> None:
    """Its step is written in one row, and its receipt given, by few parts."""
    walk = await walk_durable_push(2, str(tmp_path))
    assert {"engine/graphs/durability/journal.py", "storage/sqlite/graph_tables.py"} <= set(walk.files)
    keep_within("durable push to receipt", walk)
