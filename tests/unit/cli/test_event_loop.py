"""The event loop of a command, and the garbage collector around it."""

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest

import tidemill as tm
from tidemill.cli.event_loop import postpone_collection, run_async
from tidemill.kernel.settings import EventLoop


@pytest.fixture(autouse=True)
def restored_collector() -> Iterator[None]:
    """Leave the garbage collector on or off, as it was. What is frozen stays so: later tests are quicker."""
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


async def is_collecting() -> bool:
    return gc.isenabled()


def test_nothing_is_collected_until_a_command_runs() -> None:
    """Imports are quicker without the collector, and what they leave is never looked at again."""
    gc.enable()
    frozen = gc.get_freeze_count()
    postpone_collection()
    assert not gc.isenabled()
    assert run_async(is_collecting())
    assert gc.get_freeze_count() > frozen


def test_a_collector_that_was_not_postponed_is_left_alone() -> None:
    """Tests and programs call commands, too: their objects must not be frozen."""
    gc.enable()
    frozen = gc.get_freeze_count()
    assert run_async(is_collecting())
    assert gc.get_freeze_count() <= frozen  # fewer, when frozen objects of earlier tests are freed


async def loop_module() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


@pytest.mark.parametrize(("event_loop", "module"), [("auto", "uvloop"), ("uvloop", "uvloop"), ("asyncio", "asyncio")])
def test_a_node_runs_on_the_chosen_loop(event_loop: EventLoop, module: str) -> None:
    """uvloop is used where it is installed, unless the setting says otherwise."""
    assert run_async(loop_module(), event_loop) == module


def test_without_uvloop_only_those_who_ask_for_it_hear_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is missing: "auto" takes asyncio's loop, "uvloop" says what to install."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run_async(loop_module(), "auto") == "asyncio"
    with pytest.raises(tm.OperationError, match=r"pip install 'tidemill\[uvloop\]'"):
        run_async(loop_module(), "uvloop")
