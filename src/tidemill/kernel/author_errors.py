"""What author code raises: an error of that event or firing and no more, even if it is called a cancellation.

Author code that awaits something which somebody else cancelled raises CancelledError although nobody wants our task to
end. Only a task that was itself asked to end is really being cancelled; synchronous code never is.
"""

import asyncio

AUTHOR_ERRORS = (Exception, SystemExit, GeneratorExit, BaseExceptionGroup, asyncio.CancelledError)
"""What synchronous author code may raise. Around code that is awaited, ask `is_cut_off` too, and raise again if so."""


def is_cancelled_here(error: BaseException) -> bool:
    """Return whether this error is the end that was asked of the current task, not one of the author's."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def describe(error: BaseException) -> str:
    """Return an error as "Type: message", also if the author's error cannot be turned into text."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except AUTHOR_ERRORS:  # author code: `__str__` may raise anything
        return f"{name}: (its text cannot be read)"
