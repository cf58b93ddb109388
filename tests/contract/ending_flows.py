"""Tasks whose end is hard to tell, for the contract of executors: in a module, so that a process can import them."""

from typing import NoReturn

import tidemill as tm
from tidemill.workflows.context import Deferral
from tidemill.workflows.workflow import Workflow

endings = Workflow("endings")


class SilencingError(Exception):
    """An error that does more than raise an Exception when it is looked at."""

    def __str__(self) -> NoReturn:
        raise KeyboardInterrupt


class Nameless(type):
    """A class of classes that have no name."""

    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]
        raise KeyboardInterrupt


class NamelessError(BaseException, metaclass=Nameless):
    """An error about which nothing can be said."""


class PoisonedError(Exception):
    """An error that becomes such a one when it is looked at."""

    def __str__(self) -> NoReturn:
        raise NamelessError


@endings.task
def silences() -> None:
    raise SilencingError


@endings.task
async def silences_on_a_loop() -> None:
    raise SilencingError


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
