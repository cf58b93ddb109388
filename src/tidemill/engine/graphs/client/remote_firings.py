"""Firings of another node, for programs: as a local firing has them, with plain values instead of typed ones."""

from typing import Any

from tidemill.graphs.key_forms import key_from_json
from tidemill.graphs.result import Firing, GraphResult, PlainNodeError, plain_result
from tidemill.graphs.views import FiringView, GraphResultView, ReplayResult


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
    failure = view.error
    error = None if failure is None else PlainNodeError(failure.node, failure.message, failure.traceback)
    return plain_result(view.outputs, view.ran, view.skipped, error)
