"""How commands end: their exit codes, and what becomes of one that cannot do what it was asked."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from tidemill.cli.output import Format, print_error, print_text, show_json
from tidemill.kernel.errors import DefinitionError, Problem, TidemillError

EXIT_FAILED = 1
"""Of a command that did what it was asked, and found something bad: a store that is not well, a run that failed."""

EXIT_ERROR = 2
"""Of a command that was called wrongly, or could not reach what it is about: it says nothing about that."""

EXIT_INTERRUPTED = 130
"""Of a command that Ctrl-C ended."""


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End a command that cannot do what it was asked with one line, and with its own exit code."""
    try:
        yield
    except TidemillError as error:
        print_error(str(error))
        raise typer.Exit(EXIT_ERROR) from error


@contextmanager
def exit_on_problems(output: Format) -> Iterator[None]:
    """End a check that found definitions unsound with every problem, in a line each; a file that fails is one too."""
    try:
        yield
    except DefinitionError as error:
        if output is Format.JSON:
            show_json(check_report(error.problems))
        else:
            for problem in error.problems:
                print_text(str(problem))
        raise typer.Exit(EXIT_FAILED) from error


def check_report(problems: Iterable[Problem] = (), **facts: Any) -> dict[str, Any]:
    """Return what a check found, for programs: whether all is sound, every problem, and what it looked at."""
    told = [
        {
            "file": one.location and one.location.file,
            "line": one.location and one.location.line,
            "message": one.message,
        }
        for one in problems
    ]
    return {"sound": not told, "problems": told, **facts}
