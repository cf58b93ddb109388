"""What author code raised, as it is kept: the author's own lines, and not more than a row can hold."""

import traceback
from pathlib import Path

from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.namespaces import plain_text
from tidemill.workflows.records import TaskError

TRACEBACK_LIMIT = 64 * 1024
MESSAGE_LIMIT = 4 * 1024

_OURS = str(Path(__file__).parents[3])


def task_error(error: BaseException) -> TaskError:
    """Return an error as it is kept."""
    kind, _, message = plain_text(describe(error)).partition(": ")
    return TaskError(kind, shorten(message, MESSAGE_LIMIT), shorten(_traceback(error), TRACEBACK_LIMIT))


def shorten(text: str, limit: int) -> str:
    """Return a text of at most so many bytes: the first part of it and, as that matters most, the end."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return encoded.decode()
    note = f"\n[... {len(encoded)} bytes in all ...]\n"
    room = limit - len(note)
    head, tail = encoded[: room // 4], encoded[-(room - room // 4) :]
    return head.decode(errors="ignore") + note + tail.decode(errors="ignore")


def _traceback(error: BaseException) -> str:
    try:
        told = traceback.TracebackException.from_exception(error)
        _forget_ours(told, set())
        return plain_text("".join(told.format()))
    except AUTHOR_ERRORS:  # author code: an error may refuse to be shown in any way
        return describe(error)


def _forget_ours(told: traceback.TracebackException | None, seen: set[int]) -> None:
    """Take our own frames out of an error, and out of those that led to it."""
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    kept = [frame for frame in told.stack if not frame.filename.startswith(_OURS)]
    told.stack = traceback.StackSummary.from_list(kept)
    _forget_ours(told.__cause__, seen)
    _forget_ours(told.__context__, seen)
    for one in told.exceptions or ():
        _forget_ours(one, seen)
