"""Errors of author code, as opposed to a cancellation of Tidemill's own task; and `Fail`, which forbids a retry.

Author code that awaits a cancelled future raises CancelledError although its own task is not cancelled. That is an
error of its event or firing like any other. Only a task that was itself asked to end is cancelled; synchronous code
never is.
"""

import asyncio

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
