"""Errors of author code, as opposed to a cancellation of Tidemill's own task; their tracebacks; and `Fail`.

Author code that awaits a cancelled future raises CancelledError although its own task is not cancelled. That is an
error of its event or firing like any other. Only a task that was itself asked to end is cancelled; synchronous code
never is.
"""

import asyncio
import traceback
from pathlib import Path

from tidemill.kernel.namespaces import plain_text

AUTHOR_ERRORS = (Exception, SystemExit, GeneratorExit, BaseExceptionGroup, asyncio.CancelledError)
"""The errors of synchronous author code. Around awaited code, check `is_cancelled_here` too, and raise again if so."""


class Fail(Exception):  # noqa: N818 - the word that authors know
    """Raise it in a task or a source to fail without a retry; the message is the reason."""


def is_cancelled_here(error: BaseException) -> bool:
    """Return whether this error is a requested cancellation of the current task, not an error of author code."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def describe(error: BaseException) -> str:
    """Return an error as "Type: message", even if the error cannot be turned into text."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except AUTHOR_ERRORS:  # author code: `__str__` may raise anything
        return f"{name}: (its text cannot be read)"


TRACEBACK_LIMIT = 64 * 1024
"""Bytes of a traceback that is kept or sent."""

_TIDEMILL_FOLDER = str(Path(__file__).parents[1])


def format_traceback(error: BaseException) -> str:
    """Return the traceback of an error with its causes, even if the error cannot be turned into text."""
    try:
        captured = traceback.TracebackException.from_exception(error)
        _strip_own_frames(captured, set())
        return plain_text("".join(captured.format()))
    except AUTHOR_ERRORS:  # author code: formatting an exception may raise
        return describe(error)


def shorten(text: str, limit: int) -> str:
    """Return a text of at most `limit` bytes: a quarter from its beginning, and the rest from its end."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return encoded.decode()
    note = f"\n[... {len(encoded)} bytes in all ...]\n"
    room = limit - len(note)
    head, tail = encoded[: room // 4], encoded[-(room - room // 4) :]
    return head.decode(errors="ignore") + note + tail.decode(errors="ignore")


def _strip_own_frames(captured: traceback.TracebackException | None, seen: set[int]) -> None:
    """Remove Tidemill's frames from an error and from its causes."""
    if captured is None or id(captured) in seen:
        return
    seen.add(id(captured))
    kept = [frame for frame in captured.stack if not frame.filename.startswith(_TIDEMILL_FOLDER)]
    captured.stack = traceback.StackSummary.from_list(kept)
    _strip_own_frames(captured.__cause__, seen)
    _strip_own_frames(captured.__context__, seen)
    for one in captured.exceptions or ():
        _strip_own_frames(one, seen)
