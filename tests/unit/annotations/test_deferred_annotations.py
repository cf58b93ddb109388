"""Annotations that name what is declared further down, or what does not exist."""

import sys
from typing import Any

import pytest

import tidemill as tm

DEFERRED = sys.version_info >= (3, 14)
"""Whether Python evaluates annotations on demand; before, a declaration with an unknown name fails at once."""

LATER = """
import tidemill as tm

flow = tm.Workflow("flow")


@flow.task
def make() -> {later}:
    return Later(3)


@flow.task
def read(make: {later}) -> int:
    return make.value


class Later(tm.Boundary):
    value: int
"""

MISSING = """
import tidemill as tm

graph = tm.Graph("graph")


@graph.node
def decide(book: {missing}) -> int:
    return 1
"""


@pytest.mark.parametrize("later", ["Later", "'Later'"][not DEFERRED :])
def test_a_class_may_be_declared_below(later: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As text in every version, and as it is where Python evaluates annotations on demand."""
    names = declared(LATER.format(later=later), monkeypatch)
    assert names["flow"].run().outputs["read"] == 3


@pytest.mark.parametrize("missing", ["Missing", "'Missing'"][not DEFERRED :])
def test_a_name_that_does_not_exist_is_a_problem_with_its_line(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found when the graph is wired, together with all other problems."""
    names = declared(MISSING.format(missing=missing), monkeypatch)
    with pytest.raises(tm.DefinitionError, match=r"annotations of 'decide' cannot be resolved: .*Missing") as refused:
        names["graph"].check()
    location = refused.value.problems[0].location
    assert location is not None
    assert location.line == 7


def declared(source: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the source of a module, and return its names."""
    module = type(sys)("deferred_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, "deferred_example.py", "exec", dont_inherit=True), vars(module))
    return vars(module)
