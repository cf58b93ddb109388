"""Annotations as the classes that values have at run time: what routing can tell apart.

A union is a set of variants. Each variant has one class, by which the compiled graph decides where a value goes;
`list[int]` and `list[str]` are both `list` then, so they cannot be told apart.
"""

import types
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from tidemill.kernel.namespaces import plain_name, plain_text

NoneType = type(None)


class Variant(msgspec.Struct, frozen=True):
    """One member of a union: the annotation, and the class its values have."""

    annotation: Any
    cls: type

    @property
    def label(self) -> str:
        """The name that people know it by."""
        return label(self.annotation)


def label(annotation: Any) -> str:
    """Return an annotation the way its author wrote it, as nearly as can be told."""
    if annotation is NoneType or annotation is None:
        return "None"
    if len(parts := members(annotation)) > 1:
        return " | ".join(map(label, parts))
    if get_origin(annotation) is None and isinstance(annotation, type):
        return annotation.__qualname__.rpartition(".<locals>.")[2]
    return plain_text(str(annotation)).replace("typing.", "")


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, in order, or the annotation itself."""
    if get_origin(annotation) is Annotated:
        return members(get_args(annotation)[0])
    if type(annotation).__name__ == "TypeAliasType":  # `type X = A | B`, since Python 3.12
        return members(annotation.__value__)
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for part in get_args(annotation) for member in members(part))
    return (annotation,)


def variants(annotation: Any) -> tuple[Variant, ...] | None:
    """Return what values of this annotation can be, or None when that is anything."""
    found: list[Variant] = []
    for member in members(annotation):
        classes = runtime_classes(member)
        if classes is None:
            return None
        found.extend(Variant(member, cls) for cls in classes)
    return tuple(found)


def runtime_classes(annotation: Any) -> tuple[type, ...] | None:
    """Return the classes that values of a single (not union) annotation have, or None for any."""
    if annotation is None:
        return (NoneType,)
    if annotation is Any or annotation is object or isinstance(annotation, TypeVar):
        return None
    if getattr(annotation, "_is_protocol", False):  # any class may have the methods
        return None
    if isinstance(annotation, NewType):
        return runtime_classes(annotation.__supertype__)
    if get_origin(annotation) is Literal:
        return tuple(dict.fromkeys(type(value) for value in get_args(annotation)))
    if is_typeddict(annotation):
        return (dict,)
    origin = get_origin(annotation) or annotation
    return (origin,) if isinstance(origin, type) else None


def accepts_none(annotation: Any) -> bool:
    """Return whether an annotation says in so many words that None may come."""
    return any(member is None or member is NoneType for member in members(annotation))


def without_none(annotation: Any) -> Any:
    """Return an annotation without its None member."""
    rest = [member for member in members(annotation) if member is not None and member is not NoneType]
    return reduce(or_, rest) if rest else NoneType


def admits(wanted: Any, given: Variant, *, loosely: bool = True) -> bool:
    """Return whether a parameter annotated `wanted` takes values of the variant `given`.

    Loosely, a class that was loaded twice counts as one: same name, same fields.
    """
    return any(_admits_member(member, given, loosely) for member in members(wanted))


def _admits_member(wanted: Any, given: Variant, loosely: bool) -> bool:
    classes = runtime_classes(wanted)
    if classes is None:
        return True
    if not any(_is_kind_of(given.cls, cls) or (loosely and same_shape(given.cls, cls)) for cls in classes):
        return False
    wanted_args, given_args = get_args(wanted), get_args(given.annotation)
    if get_origin(wanted) is Literal or get_origin(given.annotation) is Literal:
        # Part of a Literal cannot be routed: its values are of one class.
        return get_origin(wanted) is not get_origin(given.annotation) or set(given_args) <= set(wanted_args)
    if not wanted_args or not given_args or len(wanted_args) != len(given_args):
        return True
    return all(_same_argument(one, other) for one, other in zip(wanted_args, given_args, strict=True))


def _same_argument(wanted: Any, given: Any) -> bool:
    if wanted == given or Any in (wanted, given):
        return True
    found = variants(given)
    return found is not None and all(admits(wanted, variant) for variant in found)


def _is_kind_of(given: type, wanted: type) -> bool:
    return issubclass(given, wanted) or (wanted is float and given is int)


def same_shape(one: type, other: type) -> bool:
    """Return whether two classes are the same declaration, loaded twice: equal name and equal fields."""
    if one.__qualname__ != other.__qualname__ or plain_name(one.__module__) != plain_name(other.__module__):
        return False
    return _fields(one) == _fields(other)


def _fields(cls: type) -> list[tuple[str, str]]:
    try:
        hints = get_type_hints(cls)
    except Exception:  # author code: annotations may hold any expression
        hints = dict(getattr(cls, "__annotations__", {}))
    return [(name, label(note)) for name, note in hints.items()]


def clashes(found: Iterable[Variant]) -> list[tuple[Variant, Variant]]:
    """Return the pairs of variants that are one class at run time, and so cannot be told apart."""
    first: dict[type, Variant] = {}
    pairs = []
    for variant in found:
        other = first.setdefault(variant.cls, variant)
        if other is not variant and other.annotation != variant.annotation:
            pairs.append((other, variant))
    return pairs
