"""Tasks whose errors are hard to report, for the executor contract, in a module that another process can import."""

from typing import NoReturn

import tidemill as tm
from tidemill.workflows.context import Deferral
from tidemill.workflows.workflow import Workflow

endings = Workflow("endings")


class InterruptingError(Exception):
    """An error that raises a BaseException when it is formatted."""

    def __str__(self) -> NoReturn:
        raise KeyboardInterrupt


class Nameless(type):
    """A metaclass of classes without a name."""

    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]
        raise KeyboardInterrupt


class NamelessError(BaseException, metaclass=Nameless):
    """An error that cannot be described at all."""


class PoisonedError(Exception):
    """An error that raises NamelessError when it is formatted."""

    def __str__(self) -> NoReturn:
        raise NamelessError


@endings.task
def silences() -> None:
    raise InterruptingError


@endings.task
async def silences_on_a_loop() -> None:
    raise InterruptingError


@endings.task
def has_no_words() -> None:
    raise PoisonedError


@endings.task
async def has_no_words_on_a_loop() -> None:
    raise PoisonedError


@endings.task
def leaves_the_calendar() -> None:
    raise Deferral(delay=1e300)


@endings.task
async def leaves_the_calendar_on_a_loop() -> None:
    raise Deferral(delay=1e300)


@endings.task
def waits_for_ever(ctx: tm.Context) -> None:
    ctx.defer(for_=float("inf"))


@endings.task
def works() -> int:
    return 1
