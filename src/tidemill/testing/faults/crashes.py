"""Crashes: engine parts that stop as kill -9 would stop them."""

from functools import partial

from tidemill.engine.graphs.scheduler import GraphScheduler


def crash_graphs(scheduler: GraphScheduler) -> None:
    """Leave all graphs as a kill of the process would: nothing fires, nothing is delivered, handles fail."""
    scheduler.is_closed = True
    for reactor in scheduler.reactors:
        reactor.stop_firing()
    for one in scheduler.accumulators:
        one.redirect_handles(partial(scheduler.accumulator, one.tenant, one.name))
