"""How commands end: their exit codes, and what becomes of one that cannot do what it was asked."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tidemill.cli.output import complain
from tidemill.kernel.errors import TidemillError

FAILED = 1
"""Of a command that did what it was asked, and found something bad: a store that is not well, a run that failed."""

COULD_NOT = 2
"""Of a command that was called wrongly, or could not reach what it is about: it says nothing about that."""

INTERRUPTED = 130
"""Of a command that Ctrl-C ended."""


@contextmanager
def refusing() -> Iterator[None]:
    """End a command that cannot do what it was asked with one line, and with its own exit code."""
    try:
        yield
    except TidemillError as error:
        complain(str(error))
        raise typer.Exit(COULD_NOT) from error
