"""Errors of author code, as opposed to a cancellation of the current task."""

import asyncio

import pytest

from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here


@pytest.mark.parametrize("error", [ValueError(), SystemExit(), asyncio.CancelledError()])
def test_an_error_of_synchronous_code_is_never_a_requested_cancellation(error: BaseException) -> None:
    """G-15: there is no task that could have been cancelled."""
    assert isinstance(error, AUTHOR_ERRORS)
    assert not is_cancelled_in_a_new_task(error)


def is_cancelled_in_a_new_task(error: BaseException) -> bool:
    """Return `is_cancelled_here` in a task that is not cancelled."""

    async def check() -> bool:
        return is_cancelled_here(error)

    return asyncio.run(check())


def test_a_keyboard_interrupt_is_not_an_author_error() -> None:
    """It ends the process."""
    assert not isinstance(KeyboardInterrupt(), AUTHOR_ERRORS)


async def test_a_requested_cancellation_is_recognised() -> None:
    """G-29: author code does not swallow the cancellation of its own task."""
    answers = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            answers.extend([is_cancelled_here(error), is_cancelled_here(ValueError())])

    async with asyncio.TaskGroup() as group:
        task = group.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
    assert answers == [True, False]
