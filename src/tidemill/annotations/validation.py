"""Letting values in: an instance of the declared class passes untouched, all else is converted or refused.

What can be converted is plain data, and values of the declared class itself, as another package has it.
"""

from typing import Annotated, Any, get_origin, is_typeddict

import msgspec

from tidemill.annotations.class_conversion import ClassConverter
from tidemill.annotations.variants import expand_variants, label, union_members


class TypeMismatchError(ValueError):
    """A value does not fit what was declared."""


class TypeValidator:
    """The border for values of one annotation."""

    __slots__ = ("_converter", "_exact_classes", "_is_convertible", "annotation", "classes", "exact_class")

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        found = expand_variants(annotation)
        self.classes = None if found is None else tuple(one.cls for one in found)
        parts = union_members(annotation) if get_origin(annotation) is not Annotated else ()
        self._exact_classes = tuple(part for part in parts if _is_exact_class(part))
        self.exact_class = (
            self._exact_classes[0] if found is not None and self._exact_classes == (annotation,) else None
        )
        self._is_convertible = _is_convertible(annotation)
        self._converter: ClassConverter | None = None

    def validate(self, value: Any) -> Any:
        """Return the value, converted if need be, or raise MisfitError."""
        if self.classes is None or value.__class__ is self.exact_class or isinstance(value, self._exact_classes):
            return value
        if not self._is_convertible:
            if isinstance(value, self.classes):
                return value
            return self._convert_or_raise(
                value, TypeMismatchError(f"expected {label(self.annotation)}, got {type(value).__name__}")
            )
        try:
            return msgspec.convert(value, self.annotation, strict=True)
        except Exception as error:  # author code: a class may refuse a value in its own way
            misfit = TypeMismatchError(f"expected {label(self.annotation)}: {error}")
            misfit.__cause__ = error
            return self._convert_or_raise(value, misfit)

    def _convert_or_raise(self, value: Any, mismatch: TypeMismatchError) -> Any:
        """Return a value of what is declared, as another package has it, as one of this; else raise the error."""
        if self._converter is None:
            self._converter = ClassConverter(self.annotation)
        try:
            rebuilt = self._converter(value)
            if rebuilt is not value:
                return msgspec.convert(rebuilt, self.annotation, strict=True) if self._is_convertible else rebuilt
        except Exception:  # author code: as above
            raise mismatch from mismatch.__cause__
        raise mismatch

    def decode(self, data: bytes, form: str = "json") -> Any:
        """Decode bytes into what was declared, or raise MisfitError."""
        if self.exact_class is bytes:
            return data
        codec = msgspec.msgpack if form == "msgpack" else msgspec.json
        try:
            if self._is_convertible and self.classes is not None:
                return codec.decode(data, type=self.annotation)
            return self.validate(codec.decode(data))
        except TypeMismatchError:
            raise
        except Exception as error:  # author code: as above
            raise TypeMismatchError(f"expected {label(self.annotation)}: {error}") from error


def _is_exact_class(annotation: Any) -> bool:
    """Return whether an instance of the annotation, a class, needs no further look."""
    return isinstance(annotation, type) and get_origin(annotation) is None and not is_typeddict(annotation)


def _is_convertible(annotation: Any) -> bool:
    """Return whether msgspec knows how to make values of an annotation."""
    try:
        msgspec.json.Decoder(annotation)
    except TypeError:
        return False
    return True
