"""Validates values against annotations: an instance of the declared class passes, others are converted or rejected.

Plain data is converted, and so is a value of another package's copy of the declared class.
"""

from typing import Annotated, Any, get_origin, is_typeddict

import msgspec

from tidemill.annotations.class_conversion import ClassConverter
from tidemill.annotations.variants import expand_variants, label, tell_apart, union_members


class TypeMismatchError(ValueError):
    """A value does not fit its annotation."""


class TypeValidator:
    """Validates and converts values for one annotation."""

    __slots__ = ("_converter", "_exact_classes", "_is_convertible", "annotation", "classes", "exact_class")

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        variants = expand_variants(annotation)
        self.classes = None if variants is None else tuple(variant.cls for variant in variants)
        parts = union_members(annotation) if get_origin(annotation) is not Annotated else ()
        self._exact_classes = tuple(part for part in parts if _is_exact_class(part))
        is_exact = variants is not None and self._exact_classes == (annotation,)
        self.exact_class = self._exact_classes[0] if is_exact else None
        self._is_convertible = _is_convertible(annotation)
        self._converter: ClassConverter | None = None

    def validate(self, value: Any) -> Any:
        """Return the value, converted if needed; TypeMismatchError if it does not fit."""
        if self.classes is None or value.__class__ is self.exact_class or isinstance(value, self._exact_classes):
            return value
        if not self._is_convertible:
            if isinstance(value, self.classes):
                return value
            expected, given = tell_apart(self.annotation, type(value))
            mismatch = TypeMismatchError(f"expected {expected}, got {given}")
            return self._convert_or_raise(value, mismatch)
        try:
            return msgspec.convert(value, self.annotation, strict=True)
        except Exception as error:  # author code: a class may raise anything for an invalid value
            mismatch = TypeMismatchError(f"expected {label(self.annotation)}: {error}")
            mismatch.__cause__ = error
            return self._convert_or_raise(value, mismatch)

    def _convert_or_raise(self, value: Any, mismatch: TypeMismatchError) -> Any:
        """Convert a value of another package's copy of the declared class; raise the error for any other value."""
        if self._converter is None:
            self._converter = ClassConverter(self.annotation)
        try:
            converted = self._converter(value)
            if converted is not value:
                return msgspec.convert(converted, self.annotation, strict=True) if self._is_convertible else converted
        except Exception:  # author code: as above
            raise mismatch from mismatch.__cause__
        raise mismatch

    def decode(self, data: bytes, form: str = "json") -> Any:
        """Decode bytes into a value of the annotation; TypeMismatchError if they do not fit."""
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
    """Return whether an annotation is a class whose instances need no further validation."""
    return isinstance(annotation, type) and get_origin(annotation) is None and not is_typeddict(annotation)


def _is_convertible(annotation: Any) -> bool:
    """Return whether msgspec can convert values to an annotation."""
    try:
        msgspec.json.Decoder(annotation)
    except TypeError:
        return False
    return True
