"""Sanitizes text that comes from packages before it is shown: an author can put anything into an error message."""

import re

from msgspec.structs import replace

from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import DefinitionError, Location, Problem, TidemillError

_INDENT = " " * 4
_LAST_PRINTED_LABEL = "; the last that it printed:"
_VARYING_PATTERN = re.compile(r"0x[0-9a-fA-F]+|\d+")


def printable(line: str) -> str:
    """Return a line without control characters or other characters that cannot be printed."""
    return line if line.isprintable() else "".join(one if one.isprintable() else "·" for one in line)


def sanitize(text: str) -> str:
    """Return a text whose lines cannot be mistaken for other output: all but the first are indented."""
    first, *more = text.splitlines() or [""]
    lines = (printable(line.rstrip()) for line in more if line.strip())
    return "\n".join([printable(first), *(line if line.startswith(_INDENT) else f"{_INDENT}{line}" for line in lines)])


def sanitize_problem(problem: Problem) -> Problem:
    """Return a problem with a sanitized message and location."""
    at = problem.location
    location = None if at is None else Location(printable(at.file), at.line)
    return replace(problem, message=sanitize(problem.message), location=location)


def sanitize_error(error: Exception) -> tuple[str, tuple[Problem, ...]]:
    """Return the sanitized message of an error, and the problems of a DefinitionError."""
    if isinstance(error, DefinitionError):
        problems = tuple(map(sanitize_problem, error.problems))
        return str(DefinitionError(problems, printable(error.subject))), problems
    return sanitize(str(error) if isinstance(error, TidemillError) else describe(error)), ()


def append_last_lines(message: str, lines: list[str]) -> str:
    """Append the last lines that a package printed to a message."""
    return (
        "".join([message, _LAST_PRINTED_LABEL, *(f"\n{_INDENT}{printable(line)}" for line in lines)])
        if lines
        else message
    )


def fingerprint(reason: str) -> str:
    """Return a reason without the parts that vary between attempts: numbers, addresses and printed output."""
    return _VARYING_PATTERN.sub("#", reason.partition(_LAST_PRINTED_LABEL)[0])
