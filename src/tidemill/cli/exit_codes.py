"""The exit codes of commands, and how commands end that fail."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from tidemill.cli.output import Format, print_error, print_text, show_json
from tidemill.kernel.errors import DefinitionError, Problem, TidemillError

EXIT_FAILED = 1
"""The command did its work and found something bad: a store with problems, a failed run."""

EXIT_ERROR = 2
"""The command was called wrongly, or could not read what it is about."""

EXIT_INTERRUPTED = 130
"""Ctrl-C ended the command."""


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End a command that cannot do its work with a one-line error and EXIT_ERROR."""
    try:
        yield
    except TidemillError as error:
        print_error(str(error))
        raise typer.Exit(EXIT_ERROR) from error


@contextmanager
def exit_on_problems(output: Format) -> Iterator[None]:
    """End a check that found problems with one line for each, and EXIT_FAILED."""
    try:
        yield
    except DefinitionError as error:
        print_check(output, problems=error.problems)
        raise typer.Exit(EXIT_FAILED) from error


def print_check(
    output: Format, *sentences: str, problems: Sequence[Problem] = (), to_stderr: bool = False, **facts: Any
) -> None:
    """Print the result of a check: each problem, then the sentences; as JSON, the problems and the facts."""
    if output is Format.JSON:
        show_json({"sound": not problems, "problems": [_plain_problem(one) for one in problems], **facts})
        return
    for problem in problems:
        (print_error if to_stderr else print_text)(str(problem))
    for sentence in sentences:
        print_text(sentence)


def _plain_problem(problem: Problem) -> dict[str, Any]:
    location = problem.location
    return {"file": location and location.file, "line": location and location.line, "message": problem.message}
