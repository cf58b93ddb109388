"""Activation: a reactor that has started fires when everything that loads together with it is there.

Until then it takes events and holds them. Each package change waits for its own end: what another change activates in
the meantime has none of its reactors, whose graphs may not be bound yet.
"""

from collections.abc import Iterable

from tidemill.engine.graphs.loaded_graphs import LoadedGraphs
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.runtime import GraphRuntime


class Activation:
    """The reactors of a node that do not fire yet."""

    def __init__(self, graphs: LoadedGraphs, runtime: GraphRuntime) -> None:
        self._graphs = graphs
        self._runtime = runtime
        self.is_held = False
        """Whether all wait, because the node is taking over: it activates everything at the end."""
        self.unfinished: set[RunningReactor] = set()
        """Reactors of changes that are not in place yet."""

    def ends_unsaved(self, reactor: RunningReactor) -> bool:
        """Return whether a reactor that does not fire yet would leave nothing of its inputs if it ended now."""
        is_saved = reactor.durability.is_durable and not reactor.is_unsaved_reset
        return reactor.is_inactive and not is_saved and not reactor.durability.is_journaled

    def finish(self, reactors: Iterable[RunningReactor]) -> bool:
        """Activate reactors whose change is in place, and all others that wait for none; return False if all wait."""
        self.unfinished.difference_update(reactors)
        if self._runtime.is_starting_up or self.is_held:
            return False
        for reactor in self._graphs.reactors:
            if reactor not in self.unfinished:
                self._activate(reactor)
        for one in self._graphs.accumulators:
            if not any(target.reactor in self.unfinished for target, _ in one.emitter.targets):
                one.activate()
        return True

    def _activate(self, reactor: RunningReactor) -> None:
        reactor.activate()
        if reactor.is_unsaved_reset:
            reactor.is_unsaved_reset = False
            reactor.firing_loop.request_checkpoint()
