"""Annotations as the classes that values have at run time: what routing can tell apart.

A union is a set of variants. Each variant has one class, by which the compiled graph decides where a value goes;
`list[int]` and `list[str]` are both `list` then, so they cannot be told apart.
"""

import types
from collections.abc import Iterable
from enum import Enum
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

from tidemill.annotations.signatures import Parameter
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
    if len(parts := union_members(annotation)) > 1:
        return " | ".join(map(label, parts))
    if get_origin(annotation) is None and isinstance(annotation, type):
        return annotation.__qualname__.rpartition(".<locals>.")[2]
    return plain_text(str(annotation)).replace("typing.", "")


def union_members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, in order, or the annotation itself."""
    if get_origin(annotation) is Annotated:
        return union_members(get_args(annotation)[0])
    if type(annotation).__name__ == "TypeAliasType":  # `type X = A | B`, since Python 3.12
        return union_members(annotation.__value__)
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for part in get_args(annotation) for member in union_members(part))
    return (annotation,)


def expand_variants(annotation: Any) -> tuple[Variant, ...] | None:
    """Return what values of this annotation can be, or None when that is anything."""
    found: list[Variant] = []
    for member in union_members(annotation):
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
    return any(member is None or member is NoneType for member in union_members(annotation))


def is_required(parameter: Parameter) -> bool:
    """Return whether a parameter must be given a value: it has no default, and takes no None."""
    return not (parameter.has_default or accepts_none(parameter.annotation))


def strip_none(annotation: Any) -> Any:
    """Return an annotation without its None member."""
    rest = [member for member in union_members(annotation) if member is not None and member is not NoneType]
    return reduce(or_, rest) if rest else NoneType


def admits(wanted: Any, given: Variant, *, match_by_shape: bool = True) -> bool:
    """Return whether a parameter annotated `wanted` takes values of the variant `given`.

    Loosely, a class that was loaded twice counts as one: same name, same fields.
    """
    return any(_admits_member(member, given, match_by_shape) for member in union_members(wanted))


def _admits_member(wanted: Any, given: Variant, match_by_shape: bool) -> bool:
    classes = runtime_classes(wanted)
    if classes is None:
        return True
    if not any(
        _is_assignable(given.cls, cls) or (match_by_shape and is_same_declaration(given.cls, cls)) for cls in classes
    ):
        return False
    wanted_args, given_args = get_args(wanted), get_args(given.annotation)
    if get_origin(wanted) is Literal or get_origin(given.annotation) is Literal:
        # Part of a Literal cannot be routed: its values are of one class.
        return get_origin(wanted) is not get_origin(given.annotation) or set(given_args) <= set(wanted_args)
    if not wanted_args or not given_args or len(wanted_args) != len(given_args):
        return True
    return all(_admits_argument(one, other) for one, other in zip(wanted_args, given_args, strict=True))


def _admits_argument(wanted: Any, given: Any) -> bool:
    if wanted == given or Any in (wanted, given):
        return True
    found = expand_variants(given)
    return found is not None and all(admits(wanted, variant) for variant in found)


def _is_assignable(given: type, wanted: type) -> bool:
    return issubclass(given, wanted) or (wanted is float and given is int)


def full_name(cls: type) -> str:
    """Return the qualified name of a class, with its module as the author writes that."""
    return f"{plain_name(cls.__module__)}.{cls.__qualname__}"


def is_same_declaration(one: type, other: type) -> bool:
    """Return whether two classes are the same declaration, loaded twice: equal name, equal fields, and so on within."""
    return full_name(one) == full_name(other) and find_difference(one, other) is None


def find_difference(here: type, there: type, visited: set[tuple[type, type]] | None = None) -> str | None:
    """Return the first thing that two classes of one name differ in, None if they are the same declaration.

    Each pair of classes that this depends on is added to `met`.
    """
    visited = set() if visited is None else visited
    if here is there or (here, there) in visited:
        return None
    visited.add((here, there))
    if issubclass(here, Enum) and issubclass(there, Enum):
        return None if _enum_members(here) == _enum_members(there) else "the members are others"
    ours, theirs = _field_hints(here), _field_hints(there)
    for name in dict.fromkeys([*theirs, *ours]):
        if name not in ours or name not in theirs:
            return f"field '{name}' is only {'there' if name in theirs else 'here'}"
        if (told := _annotation_difference(ours[name], theirs[name], visited)) is not None:
            return f"field '{name}' {told}"
    return None if list(ours) == list(theirs) else "the fields have another order"


def _enum_members(cls: type[Enum]) -> list[tuple[str, Any]]:
    return [(one.name, one.value) for one in cls]


def _field_hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except Exception:  # author code: annotations may hold any expression
        return dict(getattr(cls, "__annotations__", {}))


def _annotation_difference(here: Any, there: Any, visited: set[tuple[type, type]]) -> str | None:
    """Return in what two annotations differ, None if in no more than classes that were loaded twice."""
    here, there = (_resolve_alias(one) for one in (here, there))
    if here == there:
        return None
    if is_class(here) and is_class(there) and full_name(here) == full_name(there):
        told = find_difference(here, there, visited)
        return None if told is None else f"is a {label(here)}, in which {told}"
    (kind, ours), (other, theirs) = _split_annotation(here), _split_annotation(there)
    if ours and kind == other and len(ours) == len(theirs):
        return next(
            (told for pair in zip(ours, theirs, strict=True) if (told := _annotation_difference(*pair, visited))), None
        )
    names = [full_name(one) if is_class(one) else plain_text(str(one)) for one in (there, here)]
    if names[0] == names[1]:  # a type variable, say, or what could not be resolved
        return None
    return f"is {names[0]} there and {names[1]} here".replace("builtins.", "").replace("typing.", "")


def is_class(annotation: Any) -> bool:
    """Return whether an annotation is a class and no more: `list`, and not `list[int]`."""
    return isinstance(annotation, type) and get_origin(annotation) is None


def _resolve_alias(annotation: Any) -> Any:
    """Return what another name for a type stands for."""
    while isinstance(annotation, NewType):
        annotation = annotation.__supertype__
    found = union_members(annotation)
    return found[0] if len(found) == 1 else annotation


def _split_annotation(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what an annotation is made of: a union of its members, a generic of its arguments."""
    found = union_members(annotation)
    return (Union, found) if len(found) > 1 else (get_origin(found[0]), get_args(found[0]))


def find_clashes(found: Iterable[Variant]) -> list[tuple[Variant, Variant]]:
    """Return the pairs of variants that are one class at run time, and so cannot be told apart."""
    first: dict[type, Variant] = {}
    pairs = []
    for variant in found:
        other = first.setdefault(variant.cls, variant)
        if other is not variant and other.annotation != variant.annotation:
            pairs.append((other, variant))
    return pairs
