"""Letting values in: an instance of the declared class passes untouched, all else is converted or refused."""

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from tidemill.graphs.variants import label, variants

Decode = Callable[[bytes], Any]


class MisfitError(ValueError):
    """A value does not fit what was declared."""


class Admission:
    """The border for values of one annotation."""

    __slots__ = ("_convertible", "annotation", "classes", "expected")

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        found = variants(annotation)
        self.classes = None if found is None else tuple(one.cls for one in found)
        plain = self.classes is not None and len(self.classes) == 1 and not get_args(annotation)
        self.expected = self.classes[0] if plain and self.classes else None
        self._convertible = _is_convertible(annotation)

    def admit(self, value: Any) -> Any:
        """Return the value, converted if need be, or raise MisfitError."""
        if self.classes is None or value.__class__ is self.expected:
            return value
        if isinstance(value, self.classes) and (not get_args(self.annotation) or not self._convertible):
            return value
        if not self._convertible:
            raise MisfitError(f"expected {label(self.annotation)}, got {type(value).__name__}")
        try:
            return msgspec.convert(value, self.annotation, strict=True)
        except msgspec.ValidationError as error:
            raise MisfitError(f"expected {label(self.annotation)}: {error}") from error

    def decode(self, data: bytes, form: str = "json") -> Any:
        """Decode bytes into what was declared, or raise MisfitError."""
        if self.expected is bytes:
            return data
        codec = msgspec.msgpack if form == "msgpack" else msgspec.json
        try:
            if self._convertible and self.classes is not None:
                return codec.decode(data, type=self.annotation)
            return self.admit(codec.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MisfitError(f"expected {label(self.annotation)}: {error}") from error


def _is_convertible(annotation: Any) -> bool:
    """Return whether msgspec knows how to make values of an annotation."""
    try:
        msgspec.json.Decoder(annotation)
    except TypeError:
        return False
    return True
