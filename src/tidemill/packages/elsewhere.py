"""Graphs of other packages, as long as these are not there: a workflow may call them by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.annotations.signatures import AuthorFunction, Parameter
from tidemill.graphs.graph import Graph
from tidemill.workflows.workflow import Workflow


class Elsewhere:
    """Stands for a graph of another package: what a workflow makes of it is seen when it is loaded."""

    reactor_name = None
    is_async = False

    def __init__(self, name: str) -> None:
        self.name = name

    def inputs(self) -> Sequence[Parameter]:
        """Return nothing: what it takes is not known here."""
        return ()

    def returns(self) -> Mapping[str, Any]:
        """Return nothing: what comes of it is not known here."""
        return {}

    def functions(self) -> Sequence[AuthorFunction]:
        """Return nothing: its code is not here."""
        return ()


def left_open(workflow: Workflow, graphs: Mapping[str, Graph]) -> Workflow:
    """Return a workflow with the graphs that it calls by name; for those that are not here, something stands in."""
    return workflow.bound(lambda name: graphs.get(name) or Elsewhere(name))
