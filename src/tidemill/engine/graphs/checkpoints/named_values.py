"""The values of a reactor in their stored form: each separately, under the name of its accumulator."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tidemill.annotations.codec import Codec
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.graphs.definition import StateUpgrade
from tidemill.graphs.inputs import SourceBoundary
from tidemill.graphs.snapshot import NamedBoundary

Decode = Callable[[Codec, bytes, str, StateUpgrade | None], Any]
"""Decodes a value, which the text describes, or upgrades it; returns None if it does not fit the declaration."""


class NamedEncoder:
    """Encodes a reactor's values under the names of their accumulators."""

    def __init__(self, accumulators: list[RunningAccumulator]) -> None:
        self._sources = [(one.name, one.emitter.codecs.boundary) for one in accumulators]

    def encode_entry(self, index: int, value: Any) -> NamedBoundary:
        """Encode a boundary under the name of its accumulator."""
        name, codec = self._sources[index]
        return name, codec.encode(value)

    def encode_values(self, values: list[Any]) -> dict[str, bytes]:
        """Encode the values that are present."""
        return dict(self.encode_entry(index, value) for index, value in enumerate(values) if value is not None)

    def flag_names(self, mask: int) -> list[str]:
        """Return the names of the accumulators whose flags are set."""
        return [name for index, (name, _) in enumerate(self._sources) if mask >> index & 1]


class NamedDecoder:
    """Decodes a reactor's stored values for its current declaration; undeclared accumulators are skipped."""

    def __init__(self, accumulators: Sequence[RunningAccumulator], decode: Decode) -> None:
        self._decode = decode
        self._sources = {one.name: (index, one) for index, one in enumerate(accumulators)}

    def decode_entries(self, named: Iterable[NamedBoundary]) -> Iterator[SourceBoundary]:
        """Decode boundaries; those that no longer fit are left out."""
        for name, data in named:
            if name in self._sources:
                index, one = self._sources[name]
                what = f"a boundary of '{one.definition.declared_name}'"
                value = self._decode(one.emitter.codecs.boundary, data, what, one.definition.state_upgrade)
                if value is not None:
                    yield index, one.definition.trim_to_capacity(value) if one.definition.is_window else value

    def decode_values(self, named: dict[str, bytes]) -> list[Any]:
        """Decode one value for each accumulator; None for those that have none."""
        values: list[Any] = [None] * len(self._sources)
        for index, value in self.decode_entries(named.items()):
            values[index] = value
        return values

    def flag_mask(self, names: Iterable[str]) -> int:
        """Return the flags of accumulators."""
        return sum(1 << self._sources[name][0] for name in names if name in self._sources)
