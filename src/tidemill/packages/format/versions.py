"""Versions of packages, and version requirements.

A version is three numbers, `1.2.0`; before a release they may be followed by `a1`, `b1` or `rc1`. Versions are ordered
by the numbers, then alpha, beta, release candidate, release. Each version has only one spelling.
"""

import operator
import re
import sys
from collections.abc import Callable

import msgspec

from tidemill.kernel.errors import RequestError, TidemillError

_STAGE_NAMES = ("a", "b", "rc", "")
_NUMBER_PATTERN = r"(0|[1-9]\d{0,8})"
_VERSION_PATTERN = re.compile(
    rf"{_NUMBER_PATTERN}\.{_NUMBER_PATTERN}\.{_NUMBER_PATTERN}(?:(a|b|rc){_NUMBER_PATTERN})?", re.ASCII
)
_SHORT_VERSION_PATTERN = re.compile(
    rf"{_NUMBER_PATTERN}(?:\.{_NUMBER_PATTERN})?(?:\.{_NUMBER_PATTERN})?(?:(a|b|rc){_NUMBER_PATTERN})?", re.ASCII
)
_CLAUSE_PATTERN = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*")
_TEXT_LENGTH_LIMIT = 200

_COMPARISONS: dict[str, Callable[["Version", "Version"], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


class Version(msgspec.Struct, frozen=True, order=True):
    """A version. Later ones are greater."""

    major: int
    minor: int = 0
    patch: int = 0
    stage: int = len(_STAGE_NAMES) - 1
    """0 for an alpha, 1 for a beta, 2 for a release candidate, 3 for the release."""

    stage_number: int = 0

    def __str__(self) -> str:
        stage = _STAGE_NAMES[self.stage]
        return f"{self.major}.{self.minor}.{self.patch}{f'{stage}{self.stage_number}' if stage else ''}"

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Parse a version; raise ValueError for any other text."""
        found = _VERSION_PATTERN.fullmatch(text[:_TEXT_LENGTH_LIMIT])
        if found is None:
            raise ValueError(
                f"{text[:_TEXT_LENGTH_LIMIT]!r} is not a version: three numbers such as '1.2.0', or "
                "'1.2.0rc1' before it"
            )
        return _version_from_match(found)


def _version_from_match(found: re.Match[str]) -> Version:
    major, minor, patch, stage, number = found.groups()
    return Version(int(major), int(minor or 0), int(patch or 0), _STAGE_NAMES.index(stage or ""), int(number or 0))


def check_not_downgrade(recorded: str | None, name: str, version: str, override_hint: str) -> None:
    """Reject a version below the recorded one; `override_hint` says how to allow it."""
    if recorded is not None and Version.parse(version) < Version.parse(recorded):
        message = (
            f"package '{name}' {version} is older than {recorded}, the recorded version; {override_hint} allows it"
        )
        raise RequestError(message, code="downgrade", status=409, version=version, recorded=recorded)


class Requirement(msgspec.Struct, frozen=True):
    """A range of versions."""

    text: str
    clauses: tuple[tuple[str, Version], ...]

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: str) -> "Requirement":
        """Parse a requirement such as ">=1.2, <2"; raise ValueError for any other text."""
        return cls(text, tuple(_parse_clause(one) for one in text[:_TEXT_LENGTH_LIMIT].split(",")))

    def admits(self, version: Version) -> bool:
        """Return whether a version is in the range; an alpha of 2.0.0 comes before 2.0.0."""
        return all(_COMPARISONS[sign](version, other) for sign, other in self.clauses)


def _parse_clause(text: str) -> tuple[str, Version]:
    found = _CLAUSE_PATTERN.fullmatch(text)
    version = _SHORT_VERSION_PATTERN.fullmatch(found[2]) if found else None
    if found is None or version is None:
        raise ValueError(f"{text!r} is not a requirement: write '>=1.2', or '>=1.2, <2' (also ==, !=, >, <=)")
    return found[1], _version_from_match(version)


def running_python() -> Version:
    """Return the version of the running Python."""
    return Version(*sys.version_info[:3])


def running_tidemill() -> Version:
    """Return the version of the running Tidemill, without the suffix of a development build."""
    from importlib import metadata  # on use: its own imports take 10 ms

    installed = metadata.version("tidemill")
    found = _SHORT_VERSION_PATTERN.match(installed)
    if found is None:
        raise TidemillError(f"this Tidemill has a version that cannot be read: {installed!r}")
    return _version_from_match(found)
