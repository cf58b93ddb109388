"""Suggestions for misspelt names."""

from collections.abc import Iterable
from difflib import get_close_matches


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that resemble `name`, the nearest first, three at most."""
    return get_close_matches(name, list(known), n=3, cutoff=0.6)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" for the known name nearest to `name`, or an empty text."""
    near = close_names(name, known)
    return f" (did you mean '{near[0]}'?)" if near else ""
