"""Runs the asynchronous work of a command."""

import gc
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.kernel.errors import OperationError

if TYPE_CHECKING:
    from tidemill.kernel.settings import EventLoop

Result = TypeVar("Result")


def run_async(work: Coroutine[Any, Any, Result], event_loop: "EventLoop" = "asyncio") -> Result:
    """Run a coroutine to its end, with the garbage collector on.

    Commands that end by themselves use asyncio's own loop: the import of another takes longer than it saves.
    """
    import asyncio  # here: it would take a fifth of the time of `--help`

    if not gc.isenabled():
        gc.freeze()  # modules stay until the process ends: no collection has to look at them
        gc.enable()
    if event_loop == "asyncio":
        return asyncio.run(work)
    try:
        import uvloop
    except ImportError as error:
        if event_loop == "auto":
            return asyncio.run(work)
        work.close()
        raise OperationError(f"the event loop needs its library: pip install 'tidemill[uvloop]' ({error})") from error
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def postpone_collection() -> None:
    """Turn the garbage collector off until `run_async`: imports create 150,000 objects, and hardly any garbage."""
    gc.disable()
