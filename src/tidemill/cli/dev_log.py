"""What a node logs, for somebody who looks at the terminal: runs that begin and end, tasks that say something, and
whatever goes wrong."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

TELLING = {"tidemill": logging.WARNING, "tidemill.engine.workflows.desk": logging.INFO, "tidemill.task": logging.INFO}
"""How loud each logger has to be to be heard: elsewhere only warnings matter to people."""

Hear = Callable[[logging.LogRecord], None]


class _Listener(logging.Handler):
    """Brings records to the loop, whatever thread they come from."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hear: Hear) -> None:
        super().__init__()
        self._loop = loop
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):  # the loop is closed: a thread that nobody waited for has the last word
            self._loop.call_soon_threadsafe(self._hear, record)


@contextmanager
def listening(loop: asyncio.AbstractEventLoop, hear: Hear) -> Iterator[None]:
    """Hear what is logged for a while."""
    listener = _Listener(loop, hear)
    ours = logging.getLogger("tidemill")
    before = {name: logging.getLogger(name).level for name in TELLING}
    for name, level in TELLING.items():
        logging.getLogger(name).setLevel(level)
    ours.addHandler(listener)
    try:
        yield
    finally:
        ours.removeHandler(listener)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
