"""What tests may look at inside reactors and accumulators."""

from tidemill.engine.graphs.scheduler import GraphScheduler


class GraphProbe:
    """Shows parts of reactors and accumulators that the public API does not."""

    def __init__(self, scheduler: GraphScheduler) -> None:
        self._scheduler = scheduler
