"""Identifiers: short, unique, and sortable by the time they were made where that matters."""

import os
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def incarnation() -> str:
    """Return a short random id for one life of something, such as a reactor since it was loaded."""
    return "".join(_ALPHABET[byte & 31] for byte in os.urandom(8))


def sortable(at: datetime) -> str:
    """Return a unique id that sorts by the millisecond it was made in."""
    millis = int(at.timestamp() * 1000)
    stamp = "".join(_ALPHABET[(millis >> shift) & 31] for shift in range(45, -1, -5))
    return f"{stamp}{incarnation()}"
