"""Author errors: which cancellation is the author's, and which is ours."""

import asyncio

import pytest

from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here


@pytest.mark.parametrize("error", [ValueError(), SystemExit(), asyncio.CancelledError()])
def test_what_synchronous_code_raises_is_never_an_end_that_was_asked_for(error: BaseException) -> None:
    """G-15: there is no task that could have been cancelled."""
    assert isinstance(error, AUTHOR_ERRORS)
    assert not is_cut_off_outside(error)


def is_cut_off_outside(error: BaseException) -> bool:
    """Ask inside a loop, in a task that nobody cancelled."""

    async def ask() -> bool:
        return is_cancelled_here(error)

    return asyncio.run(ask())


def test_an_interrupt_from_the_keyboard_is_nobodys_error() -> None:
    """It ends the process, as whoever pressed the key wants."""
    assert not isinstance(KeyboardInterrupt(), AUTHOR_ERRORS)


async def test_a_task_that_was_asked_to_end_is_cut_off() -> None:
    """G-29: author code does not swallow the end of what runs it."""
    seen = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            seen.extend([is_cancelled_here(error), is_cancelled_here(ValueError())])

    async with asyncio.TaskGroup() as group:
        task = group.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
    assert seen == [True, False]
