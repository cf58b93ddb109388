"""Identifiers: short, unique, and sortable by the time they were made where that matters."""

import os
from datetime import datetime
from itertools import count

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_made = count()


def incarnation() -> str:
    """Return a short random id for one life of something, such as a reactor since it was loaded."""
    return "".join(_ALPHABET[byte & 31] for byte in os.urandom(8))


def sortable(at: datetime) -> str:
    """Return a unique id that sorts by the millisecond it was made in, and within it by the order of making."""
    millis = int(at.timestamp() * 1000)
    return f"{_digits(millis, 10)}{_digits(next(_made), 6)}{incarnation()}"


def _digits(number: int, length: int) -> str:
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(5 * (length - 1), -1, -5))
