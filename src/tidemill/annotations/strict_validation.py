"""Strict validation: rejects fields that the annotation does not declare, at any depth, with a suggestion for each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.annotations.variants import label
from tidemill.kernel.suggestions import did_you_mean

_TYPES_WITH_FIELDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)


class StrictTypeValidator(TypeValidator):
    """Validates values as `TypeValidator` does, and rejects plain data with unknown fields."""

    __slots__ = ("_type_info",)

    def __init__(self, annotation: Any) -> None:
        super().__init__(annotation)
        self._type_info = inspect.type_info(annotation) if self._is_convertible else inspect.AnyType()

    def validate(self, value: Any) -> Any:
        """Return the value, converted if needed; TypeMismatchError if it does not fit or has unknown fields."""
        self._check_fields(value)
        return super().validate(value)

    def decode(self, data: bytes, form: str = "json") -> Any:
        """Decode bytes into a value of the annotation; TypeMismatchError if they do not fit or have unknown fields."""
        decoded = super().decode(data, form)
        self._check_fields((msgspec.msgpack if form == "msgpack" else msgspec.json).decode(data))
        return decoded

    def _check_fields(self, value: Any) -> None:
        if problems := list(_find_unknown_fields(value, self._type_info, "")):
            raise TypeMismatchError(f"expected {label(self.annotation)}: {'; '.join(problems)}")


def has_fields(annotation: Any) -> bool:
    """Return whether an annotation declares fields, so that others can be rejected."""
    try:
        return any(isinstance(one, _TYPES_WITH_FIELDS) for one in _members(inspect.type_info(annotation)))
    except TypeError:  # msgspec does not know the type
        return False


def _members(info: inspect.Type) -> Sequence[inspect.Type]:
    return info.types if isinstance(info, inspect.UnionType) else (info,)


def _find_unknown_fields(value: Any, info: inspect.Type, path: str) -> Iterator[str]:
    """Yield a sentence for each field of plain data that its type does not declare."""
    if isinstance(value, Mapping):
        for one in _members(info):
            if isinstance(one, _TYPES_WITH_FIELDS) and _matches_tag(value, one):
                yield from _find_in_object(value, one, path)
            elif isinstance(one, inspect.DictType):
                for key, item in value.items():
                    yield from _find_unknown_fields(item, one.value_type, f"{path}{key}.")
    elif isinstance(value, list | tuple):
        item_types = [
            one.item_type for one in _members(info) if isinstance(one, inspect.ListType | inspect.VarTupleType)
        ]
        for index, item in enumerate(value):
            for item_type in item_types:
                yield from _find_unknown_fields(item, item_type, f"{path}{index}.")


def _matches_tag(value: Mapping[Any, Any], info: Any) -> bool:
    """Return whether an object may be of this type: in a union of classes the tag decides."""
    tag_field = getattr(info, "tag_field", None)
    return tag_field is None or value.get(tag_field) == info.tag


def _find_in_object(value: Mapping[Any, Any], info: Any, path: str) -> Iterator[str]:
    known = {field.encode_name: field.type for field in info.fields}
    tag_field = getattr(info, "tag_field", None)
    for name, item in value.items():
        if name in known:
            yield from _find_unknown_fields(item, known[name], f"{path}{name}.")
        elif name != tag_field:
            has = did_you_mean(str(name), known) or f"; {label(info.cls)} has {', '.join(known) or 'no fields'}"
            yield f"unknown field '{path}{name}'{has}"
