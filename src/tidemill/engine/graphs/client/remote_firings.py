"""Firings of another node, for programs: as a local firing has them, with plain values instead of typed ones."""

from typing import Any

from tidemill.engine.graphs.client.values import FiringView, GraphResultView, NodeFailure, ReplayResult
from tidemill.graphs.key_forms import key_from_json
from tidemill.graphs.result import Firing, GraphResult, NodeError
from tidemill.graphs.result_layout import ResultLayout
from tidemill.kernel.errors import OperationError


class RemoteNodeError(NodeError):
    """The error of a graph's node in another process: its message and its traceback are text."""

    def __init__(self, node: str, message: str, traceback: str) -> None:
        OperationError.__init__(self, message)
        self.node = node
        self.cause = OperationError(message)
        self.__dict__["traceback"] = traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, str(self), self.traceback)


def to_firing(view: FiringView) -> Firing:
    """Return a firing of another node. Inputs and outputs are plain values."""
    return Firing(
        id=view.id,
        reactor=view.reactor,
        at=view.at,
        inputs=view.inputs,
        results={name: _to_result(one) for name, one in view.results.items()},
        duration=view.duration,
        manual=view.manual,
        degraded=view.degraded,
        attempt=view.attempt,
        key=key_from_json(view.key),
    )


def to_outcome(result: ReplayResult) -> Any:
    """Return what a replay on another node became: a Receipt, a Firing, or the id of a run; None for no run."""
    return result.receipt or (result.run if result.firing is None else to_firing(result.firing))


def _to_result(view: GraphResultView) -> GraphResult:
    failed = () if view.error is None else (view.error.node,)
    layout = ResultLayout(
        names=(*view.ran, *failed, *view.skipped),
        returned=(),
        routed=(),
        terminals=frozenset(view.outputs),
        guards={},
        variant_suffix="",
        task_suffix="",
    )
    finished = {name: view.outputs.get(name) for name in view.ran}
    return GraphResult(layout, (), None if view.error is None else _to_error(view.error), finished)


def _to_error(failure: NodeFailure) -> NodeError:
    return RemoteNodeError(failure.node, failure.message, failure.traceback)
