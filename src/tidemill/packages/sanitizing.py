"""What packages say, made fit to be shown: an error has the words of its author, who may have put anything into it."""

import re

from msgspec.structs import replace

from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import DefinitionError, Location, Problem, TidemillError

_INDENT = " " * 4
_LAST_PRINTED_LABEL = "; the last that it printed:"
_VARYING_PATTERN = re.compile(r"0x[0-9a-fA-F]+|\d+")


def printable(line: str) -> str:
    """Return a line in which nothing moves a cursor, rings a bell, or writes backwards."""
    return line if line.isprintable() else "".join(one if one.isprintable() else "·" for one in line)


def sanitize(text: str) -> str:
    """Return a text that cannot pass for another: all but its first line are indented, and all of it is visible."""
    first, *more = text.splitlines() or [""]
    lines = (printable(line.rstrip()) for line in more if line.strip())
    return "\n".join([printable(first), *(line if line.startswith(_INDENT) else f"{_INDENT}{line}" for line in lines)])


def sanitize_problem(problem: Problem) -> Problem:
    """Return a problem with harmless words."""
    place = problem.location
    location = None if place is None else Location(printable(place.file), place.line)
    return replace(problem, message=sanitize(problem.message), location=location)


def sanitize_error(error: Exception) -> tuple[str, tuple[Problem, ...]]:
    """Return what an error says, and its problems if it is about what a package declares."""
    if isinstance(error, DefinitionError):
        problems = tuple(map(sanitize_problem, error.problems))
        return str(DefinitionError(problems, printable(error.subject))), problems
    return sanitize(str(error) if isinstance(error, TidemillError) else describe(error)), ()


def append_last_lines(message: str, lines: list[str]) -> str:
    """Return a message with the last lines that a package printed."""
    return (
        "".join([message, _LAST_PRINTED_LABEL, *(f"\n{_INDENT}{printable(line)}" for line in lines)])
        if lines
        else message
    )


def fingerprint(reason: str) -> str:
    """Return what tells a reason from others: numbers, such as addresses, and what was printed differ by themselves."""
    return _VARYING_PATTERN.sub("#", reason.partition(_LAST_PRINTED_LABEL)[0])
