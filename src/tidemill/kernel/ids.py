"""Identifiers: short, unique, and sortable by creation time where that matters."""

import hashlib
import os
from datetime import datetime
from itertools import count

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LETTER_OF_BYTE = (_ALPHABET * 8).encode()
_PAIRS = [one + other for one in _ALPHABET for other in _ALPHABET]
_sequence = count()


def new_instance_id() -> str:
    """Return a short random id for one instance of something, such as a reactor since it was loaded."""
    return _letters(os.urandom(8))


def new_sortable_id(at: datetime) -> str:
    """Return a unique id that sorts by the millisecond of its creation, and within it by the order of calls."""
    millis = int(at.timestamp() * 1000)
    return f"{_encode_base32(millis, 10)}{_encode_base32(next(_sequence), 6)}{_letters(os.urandom(8))}"


def derive_sortable_id(at: datetime, *names: str) -> str:
    """Return the id of something that starts at a time, the same for the same names; it sorts by the millisecond."""
    digest = hashlib.sha256("\0".join((at.isoformat(), *names)).encode()).digest()
    return f"{_encode_base32(int(at.timestamp() * 1000), 10)}{_letters(digest[:14])}"


def _letters(random: bytes) -> str:
    return random.translate(_LETTER_OF_BYTE).decode()


def _encode_base32(number: int, length: int) -> str:
    """Return the last letters of a number, an even number of them."""
    letters = ""
    for shift in range(0, 5 * length, 10):
        letters = _PAIRS[(number >> shift) & 1023] + letters
    return letters
