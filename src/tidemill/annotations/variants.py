"""The run-time classes of annotations, by which values are routed.

A union is a set of variants. Each variant has one class, by which the compiled graph decides where a value goes;
`list[int]` and `list[str]` are both `list` at run time, so routing cannot distinguish them.
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

from tidemill.annotations.signatures import Parameter, raw_annotations
from tidemill.kernel.namespaces import plain_name, plain_text

NoneType = type(None)


class Variant(msgspec.Struct, frozen=True):
    """One member of a union: the annotation, and the class its values have."""

    annotation: Any
    cls: type

    @property
    def label(self) -> str:
        """The name that authors know it by."""
        return label(self.annotation)


def label(annotation: Any) -> str:
    """Return an annotation as its author wrote it, as far as that is known."""
    if annotation is NoneType or annotation is None:
        return "None"
    if (parts := union_members(annotation)) != (annotation,):
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
    """Return the variants of an annotation, or None if it admits anything."""
    variants: list[Variant] = []
    for member in union_members(annotation):
        classes = runtime_classes(member)
        if classes is None:
            return None
        variants.extend(Variant(member, cls) for cls in classes)
    return tuple(variants)


def runtime_classes(annotation: Any) -> tuple[type, ...] | None:
    """Return the classes of the values of a single (not union) annotation, or None for any."""
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
    """Return whether an annotation explicitly admits None."""
    return any(member is None or member is NoneType for member in union_members(annotation))


def is_required(parameter: Parameter) -> bool:
    """Return whether a parameter needs a value: it has no default and does not admit None."""
    return not (parameter.has_default or accepts_none(parameter.annotation))


def strip_none(annotation: Any) -> Any:
    """Return an annotation without its None member."""
    rest = [member for member in union_members(annotation) if member is not None and member is not NoneType]
    return reduce(or_, rest) if rest else NoneType


def admits(wanted: Any, given: Variant, *, match_by_shape: bool = True) -> bool:
    """Return whether a parameter annotated `wanted` takes values of the variant `given`.

    With `match_by_shape`, two loaded copies of a class count as one: same name, same fields.
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
    variants = expand_variants(given)
    return variants is not None and all(admits(wanted, variant) for variant in variants)


def _is_assignable(given: type, wanted: type) -> bool:
    return issubclass(given, wanted) or (wanted is float and given is int)


def full_name(cls: type) -> str:
    """Return the qualified name of a class with the plain name of its module."""
    return f"{plain_name(cls.__module__)}.{cls.__qualname__}"


def is_same_declaration(one: type, other: type) -> bool:
    """Return whether two classes count as one: equal names and equal fields, recursively."""
    return are_namesakes(one, other) and find_difference(one, other) is None


def are_namesakes(one: type, other: type) -> bool:
    """Return whether two classes have one name: with their modules, or, for structs of two packages, without."""
    if one.__qualname__ != other.__qualname__:
        return False
    if plain_name(one.__module__) == plain_name(other.__module__):
        return True
    is_foreign = _package_of(one) != _package_of(other)
    return is_foreign and issubclass(one, msgspec.Struct) and issubclass(other, msgspec.Struct)


def _package_of(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def tell_apart(one: Any, other: Any) -> tuple[str, str]:
    """Return two annotations as their authors wrote them; with the modules of classes that have one name."""
    if label(one) != label(other) or not (is_class(one) and is_class(other)):
        return label(one), label(other)
    return full_name(one), full_name(other)


def find_difference(here: type, there: type, visited: set[tuple[type, type]] | None = None) -> str | None:
    """Return the first difference between two classes of one name, None if they are the same declaration.

    Each pair of compared classes is added to `visited`.
    """
    visited = set() if visited is None else visited
    if here is there or (here, there) in visited:
        return None
    visited.add((here, there))
    if issubclass(here, Enum) and issubclass(there, Enum):
        return None if _enum_members(here) == _enum_members(there) else "the members differ"
    ours, theirs = _field_hints(here), _field_hints(there)
    for name in dict.fromkeys([*theirs, *ours]):
        if name not in ours or name not in theirs:
            return f"field '{name}' is only {'there' if name in theirs else 'here'}"
        if (difference := _annotation_difference(ours[name], theirs[name], visited)) is not None:
            return f"field '{name}' {difference}"
    return None if list(ours) == list(theirs) else "the fields have another order"


def _enum_members(cls: type[Enum]) -> list[tuple[str, Any]]:
    return [(one.name, one.value) for one in cls]


def _field_hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except Exception:  # author code: annotations may hold any expression
        return raw_annotations(cls)


def _annotation_difference(here: Any, there: Any, visited: set[tuple[type, type]]) -> str | None:
    """Return the difference between two annotations, None if they differ only in copies of the same classes."""
    here, there = (_resolve_alias(one) for one in (here, there))
    if here == there:
        return None
    if is_class(here) and is_class(there) and are_namesakes(here, there):
        difference = find_difference(here, there, visited)
        return None if difference is None else f"is a {label(here)}, in which {difference}"
    (kind, ours), (other_kind, theirs) = _split_annotation(here), _split_annotation(there)
    if ours and kind == other_kind and len(ours) == len(theirs):
        differences = (_annotation_difference(*pair, visited) for pair in zip(ours, theirs, strict=True))
        return next((difference for difference in differences if difference), None)
    names = [full_name(one) if is_class(one) else plain_text(str(one)) for one in (there, here)]
    if names[0] == names[1]:  # for example a type variable, or a name that could not be resolved
        return None
    return f"is {names[0]} there and {names[1]} here".replace("builtins.", "").replace("typing.", "")


def is_class(annotation: Any) -> bool:
    """Return whether an annotation is a bare class: `list`, but not `list[int]`."""
    return isinstance(annotation, type) and get_origin(annotation) is None


def _resolve_alias(annotation: Any) -> Any:
    """Return the type that an alias or a NewType stands for."""
    while isinstance(annotation, NewType):
        annotation = annotation.__supertype__
    members = union_members(annotation)
    return members[0] if len(members) == 1 else annotation


def _split_annotation(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the kind and the parts of an annotation: a union and its members, or a generic and its arguments."""
    members = union_members(annotation)
    return (Union, members) if len(members) > 1 else (get_origin(members[0]), get_args(members[0]))


def find_clashes(variants: Iterable[Variant]) -> list[tuple[Variant, Variant]]:
    """Return the pairs of variants that are one class at run time, and so cannot be distinguished."""
    first: dict[type, Variant] = {}
    pairs = []
    for variant in variants:
        other = first.setdefault(variant.cls, variant)
        if other is not variant and other.annotation != variant.annotation:
            pairs.append((other, variant))
    return pairs
