"""The cost of loading: it grows with the number of declarations, not with its square."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tidemill as tm
from tidemill.packages.loading.reader import import_module

WORKFLOWS = """
flow_{n} = tm.Workflow("flow_{n}")

@flow_{n}.task
def first_{n}() -> int:
    return scale(1)

@flow_{n}.task
def second_{n}(first_{n}: int) -> int:
    return scale(first_{n})
"""
TASKS = """
@flow.task
def task_{n}() -> int:
    return scale({n})
"""
GRAPHS = """
graph_{n} = tm.Graph("graph_{n}")

@graph_{n}.node
def node_{n}(x: int) -> int:
    return x
"""
NODES = """
@graph.node
def node_{n}(x: int) -> int:
    return x
"""
REACTORS = """
@tm.passthrough
def events_{n}(event: int) -> int:
    return event

reactor_{n} = tm.Reactor("reactor_{n}", [events_{n}])
"""
ACCUMULATORS = """
@tm.passthrough
def events_{n}(event: int) -> int:
    return event

accumulators.append(events_{n})
"""
HEADER = """import tidemill as tm

def scale(value: int) -> int:
    return 2 * value
"""
KINDS = {
    "workflows": ("", WORKFLOWS, ""),
    "tasks of one workflow": ('flow = tm.Workflow("flow")', TASKS, ""),
    "graphs": ("", GRAPHS, ""),
    "nodes of one graph": ('graph = tm.Graph("graph")', NODES, ""),
    "reactors": ("", REACTORS, ""),
    "accumulators of one reactor": ("accumulators = []", ACCUMULATORS, 'reactor = tm.Reactor("reactor", accumulators)'),
}
"""What is declared many times, with what comes before and after it."""


class Lines:
    """A count of executed lines of Python."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> "Lines":
        self.count += event == "line"
        return self

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the lines that this thread executes, and every turn of a loop."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


async def work_of_loading(folder: Path, kind: str, size: int) -> int:
    """Return how many lines of Python a node executes to import, check and load so many declarations."""
    before, declaration, after = KINDS[kind]
    path = folder / f"declares_{size}.py"
    path.write_text("\n".join([HEADER, before, *(declaration.format(n=n) for n in range(size)), after]))
    lines = Lines()
    async with tm.testing.node() as node:
        with lines.counting():
            module = import_module(str(path))
            await node.load(module)
    return lines.count


@pytest.mark.parametrize("kind", KINDS)
async def test_each_declaration_costs_as_much_as_the_one_before(tmp_path: Path, kind: str) -> None:
    """Work is counted in executed lines, which do not depend on the machine: a square would double the cost."""
    small, middle, large = [await work_of_loading(tmp_path, kind, size) for size in (25, 50, 100)]
    assert middle - small > 25 * 10, "loading was not counted"
    assert (large - middle) / 50 <= 1.1 * (middle - small) / 25
