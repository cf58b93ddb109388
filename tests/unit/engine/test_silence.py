"""Silence of other nodes, as one of them measures it."""

from tidemill.engine.silence import SilenceWatch
from tidemill.kernel.clock import VirtualClock


def test_silence_lasts_from_the_last_renewal_on() -> None:
    """W-9: by the monotonic clock of the node that watches."""
    clock = VirtualClock()
    watch = SilenceWatch(clock)
    assert not watch.lasts("node", "first", 3.0)
    clock.advance_to(3.0)
    assert watch.lasts("node", "first", 3.0)
    assert not watch.lasts("node", "second", 3.0)


def test_a_name_that_is_forgotten_begins_again() -> None:
    """Nodes come and go by the thousand: what was known of one that is gone must not stay."""
    clock = VirtualClock()
    watch = SilenceWatch(clock)
    watch.lasts("node", "first", 3.0)
    clock.advance_to(3.0)
    watch.forget(["node", "unknown"])
    assert not watch.lasts("node", "first", 3.0)
