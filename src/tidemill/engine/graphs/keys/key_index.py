"""The index of stored keys: tells a key that is in the store from a new one, without a read, in a few bytes per key.

It keeps 32 bits of each key's hash in an open-addressing table that is at most two thirds full. Two keys with the same
32 bits are rare, and then the second one costs a read that finds nothing.
"""

from array import array
from collections.abc import Iterator

from tidemill.graphs.keys import Key

_FIRST_CAPACITY = 8
_FACTOR = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: spreads hashes of neighbouring numbers
_MASK64 = 0xFFFFFFFFFFFFFFFF


class KeyIndex:
    """The keys of a reactor that have a snapshot in the store."""

    def __init__(self) -> None:
        self._table = array("I", bytes(4 * _FIRST_CAPACITY))
        self._used = 0
        self.count = 0

    @property
    def size(self) -> int:
        """The bytes of the table."""
        return len(self._table) * self._table.itemsize

    def add(self, key: Key) -> None:
        """Add a key, which was not added before."""
        self.count += 1
        fingerprint = _fingerprint(key)
        if 3 * (self._used + 1) > 2 * len(self._table):
            self._grow()
        self._put(fingerprint)

    def _put(self, fingerprint: int) -> None:
        for position in self._probe(fingerprint):
            if not self._table[position]:
                self._table[position] = fingerprint
                self._used += 1
                return
            if self._table[position] == fingerprint:
                return

    def _grow(self) -> None:
        before = self._table
        self._table, self._used = array("I", bytes(8 * len(before))), 0
        for fingerprint in before:
            if fingerprint:
                self._put(fingerprint)

    def __contains__(self, key: Key) -> bool:
        fingerprint = _fingerprint(key)
        for position in self._probe(fingerprint):
            if self._table[position] == fingerprint:
                return True
            if not self._table[position]:
                return False
        return False

    def _probe(self, fingerprint: int) -> Iterator[int]:
        mask = len(self._table) - 1
        position = fingerprint & mask
        while True:
            yield position
            position = position + 1 & mask


def _fingerprint(key: Key) -> int:
    """Return 32 bits of a key's hash, never 0, which marks a free entry. It differs between processes."""
    return (hash(key) * _FACTOR & _MASK64) >> 32 or 1
