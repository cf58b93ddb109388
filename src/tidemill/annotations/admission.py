"""Letting values in: an instance of the declared class passes untouched, all else is converted or refused.

What can be converted is plain data, and values of the declared class itself, as another package has it.
"""

from typing import Annotated, Any, get_origin, is_typeddict

import msgspec

from tidemill.annotations.namesakes import Rebuilder
from tidemill.annotations.variants import label, members, variants


class MisfitError(ValueError):
    """A value does not fit what was declared."""


class Admission:
    """The border for values of one annotation."""

    __slots__ = ("_convertible", "_rebuilder", "_whole", "annotation", "classes", "expected")

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        found = variants(annotation)
        self.classes = None if found is None else tuple(one.cls for one in found)
        parts = members(annotation) if get_origin(annotation) is not Annotated else ()
        self._whole = tuple(part for part in parts if _says_all(part))
        self.expected = self._whole[0] if found is not None and self._whole == (annotation,) else None
        self._convertible = _is_convertible(annotation)
        self._rebuilder: Rebuilder | None = None

    def admit(self, value: Any) -> Any:
        """Return the value, converted if need be, or raise MisfitError."""
        if self.classes is None or value.__class__ is self.expected or isinstance(value, self._whole):
            return value
        if not self._convertible:
            if isinstance(value, self.classes):
                return value
            return self._rebuilt(value, MisfitError(f"expected {label(self.annotation)}, got {type(value).__name__}"))
        try:
            return msgspec.convert(value, self.annotation, strict=True)
        except Exception as error:  # author code: a class may refuse a value in its own way
            misfit = MisfitError(f"expected {label(self.annotation)}: {error}")
            misfit.__cause__ = error
            return self._rebuilt(value, misfit)

    def _rebuilt(self, value: Any, misfit: MisfitError) -> Any:
        """Return a value of what is declared, as another package has it, as one of this; else raise the error."""
        if self._rebuilder is None:
            self._rebuilder = Rebuilder(self.annotation)
        try:
            rebuilt = self._rebuilder(value)
            if rebuilt is not value:
                return msgspec.convert(rebuilt, self.annotation, strict=True) if self._convertible else rebuilt
        except Exception:  # author code: as above
            raise misfit from misfit.__cause__
        raise misfit

    def decode(self, data: bytes, form: str = "json") -> Any:
        """Decode bytes into what was declared, or raise MisfitError."""
        if self.expected is bytes:
            return data
        codec = msgspec.msgpack if form == "msgpack" else msgspec.json
        try:
            if self._convertible and self.classes is not None:
                return codec.decode(data, type=self.annotation)
            return self.admit(codec.decode(data))
        except MisfitError:
            raise
        except Exception as error:  # author code: as above
            raise MisfitError(f"expected {label(self.annotation)}: {error}") from error


def _says_all(annotation: Any) -> bool:
    """Return whether an instance of the annotation, a class, needs no further look."""
    return isinstance(annotation, type) and get_origin(annotation) is None and not is_typeddict(annotation)


def _is_convertible(annotation: Any) -> bool:
    """Return whether msgspec knows how to make values of an annotation."""
    try:
        msgspec.json.Decoder(annotation)
    except TypeError:
        return False
    return True
