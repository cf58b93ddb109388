"""The types of values that expressions read: annotations, as their values look in JSON form."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from tidemill.annotations.variants import label, union_members


class CelType(msgspec.Struct, frozen=True, eq=False):
    """What is known of a value: its kind, and what is in it."""

    kind: str
    """The word for its values, such as "number", "list" or "record"; "any" if nothing is known, or "union"."""
    element: "CelType | None" = None
    """Of a list, or of the values of a map."""
    fields: Mapping[str, Callable[[], "CelType"]] = {}
    """Of a record; called when they are needed, since a class may contain itself."""
    name: str = ""
    """The class of a record."""
    members: tuple["CelType", ...] = ()
    """Of a union."""

    def alternatives(self) -> "tuple[CelType, ...] | None":
        """Return what a value may be, without null; None if it may be anything."""
        if self.kind == "any":
            return None
        return tuple(one for one in self.members or (self,) if one.kind != "null")

    def describe(self) -> str:
        """Return the type for people: "a number", "a list", "an Alert"."""
        words = [one.name or one.kind for one in self.members or (self,)]
        return " or ".join(f"{'an' if word[0] in 'aeiouAEIOU' else 'a'} {word}" for word in words)


ANY = CelType("any")
BOOL, NUMBER, STRING, BYTES, NULL = map(CelType, ("bool", "number", "string", "bytes", "null"))
TIMESTAMP, DURATION, TYPE = map(CelType, ("timestamp", "duration", "type"))


def list_of(element: CelType) -> CelType:
    """Return the type of a list."""
    return CelType("list", element=element)


def map_of(value: CelType) -> CelType:
    """Return the type of a map with any keys."""
    return CelType("map", element=value)


def record_of(name: str, fields: Mapping[str, CelType]) -> CelType:
    """Return the type of a map with known keys."""
    return CelType("record", name=name, fields={key: _constant(value) for key, value in fields.items()})


def union_of(types: Iterable[CelType]) -> CelType:
    """Return the type of a value that is of one of these types."""
    members = [member for one in types for member in one.members or (one,)]
    if not members or any(one.kind == "any" for one in members):
        return ANY
    return members[0] if len(members) == 1 else CelType("union", members=tuple(members))


def type_of(annotation: Any) -> CelType:
    """Return the type of an annotation's values in JSON form; "any" if msgspec does not know the annotation."""
    members = union_members(annotation)
    if len(members) > 1:
        return union_of(map(type_of, members))
    try:
        return _convert(inspect.type_info(annotation), label(annotation))
    except Exception:  # author code: an annotation may be any object
        return ANY


def _convert(info: inspect.Type, name: str = "") -> CelType:
    match info:
        case inspect.BoolType():
            return BOOL
        case inspect.IntType() | inspect.FloatType():
            return NUMBER
        case inspect.NoneType():
            return NULL
        case inspect.LiteralType(values=values):
            return union_of(_type_of_constant(one) for one in values)
        case inspect.EnumType(cls=cls):
            return union_of(_type_of_constant(one.value) for one in cls)
        case inspect.DictType(value_type=value):
            return map_of(_convert(value))
        case inspect.UnionType(types=types):
            return union_of(map(_convert, types))
        case inspect.StructType(array_like=False) | inspect.TypedDictType() | inspect.DataclassType():
            return _convert_record(info, name)
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            return list_of(_convert(info.item_type))
        case inspect.StructType() | inspect.TupleType() | inspect.NamedTupleType():
            return list_of(ANY)
        case inspect.AnyType() | inspect.RawType() | inspect.ExtType() | inspect.CustomType() | inspect.Metadata():
            return ANY
    return STRING  # texts, bytes, dates, times, durations, decimals and UUIDs


def _convert_record(info: Any, name: str) -> CelType:
    fields = {one.encode_name: _lazily(one.type) for one in info.fields}
    tag = getattr(info, "tag_field", None)
    if tag is not None:
        fields[tag] = _constant(_type_of_constant(info.tag))
    return CelType("record", name=name or label(info.cls), fields=fields)


def _lazily(info: inspect.Type) -> Callable[[], CelType]:
    return lambda: _convert(info)


def _constant(value: CelType) -> Callable[[], CelType]:
    return lambda: value


def _type_of_constant(value: Any) -> CelType:
    kinds: dict[type, CelType] = {bool: BOOL, int: NUMBER, float: NUMBER, str: STRING, type(None): NULL}
    return kinds.get(type(value), ANY)
