"""The event loop of a command, and the garbage collector around it."""

import gc
from collections.abc import Iterator

import pytest

from tidemill.cli.event_loop import postpone_collection, run_async


@pytest.fixture(autouse=True)
def restored_collector() -> Iterator[None]:
    """Leave the garbage collector as it was."""
    was_enabled = gc.isenabled()
    yield
    gc.unfreeze()
    (gc.enable if was_enabled else gc.disable)()


async def is_collecting() -> bool:
    return gc.isenabled()


def test_nothing_is_collected_until_a_command_runs() -> None:
    """Imports are quicker without the collector, and what they leave is never looked at again."""
    gc.enable()
    postpone_collection()
    assert not gc.isenabled()
    assert run_async(is_collecting())
    assert gc.get_freeze_count() > 0


def test_a_collector_that_was_not_postponed_is_left_alone() -> None:
    """Tests and programs call commands, too: their objects must not be frozen."""
    gc.enable()
    frozen = gc.get_freeze_count()
    assert run_async(is_collecting())
    assert gc.get_freeze_count() == frozen
