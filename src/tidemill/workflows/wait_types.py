"""Describes what fits as an answer: an annotation as JSON Schema."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from tidemill.annotations.variants import NoneType, Variant, expand_variants, is_class, union_members
from tidemill.workflows.waits import WaitType

Schema = dict[str, Any]


def describe_type(annotation: Any) -> WaitType:
    """Return the description of an annotation; TypeError if JSON cannot hold its values."""
    members = chosen_members(annotation)
    if not members:
        schema = msgspec.json.schema(annotation)
        _add_formats(inspect.type_info(annotation), schema, schema.get("$defs", {}), set())
        return WaitType(schema)
    schemas, parts = msgspec.json.schema_components([one.annotation for one in members])
    for member, schema in zip(members, schemas, strict=True):
        _add_formats(inspect.type_info(member.annotation), schema, parts, set())
    return WaitType({"anyOf": list(schemas), "$defs": parts}, tuple(one.label for one in members))


def chosen_members(annotation: Any) -> tuple[Variant, ...]:
    """Return the classes of a union among which `variant` chooses; none if the annotation is no such union."""
    members = [one for one in expand_variants(annotation) or () if one.cls is not NoneType]
    is_choice = len(members) > 1 and all(is_class(one.annotation) for one in members)
    has_structs = any(hasattr(one.cls, "__struct_fields__") for one in members)
    return tuple(members) if is_choice and has_structs and len(union_members(annotation)) > 1 else ()


def _add_formats(info: Any, schema: Schema, parts: Schema, seen: set[str]) -> None:
    """Say of each text of a schema whether it is a moment: msgspec does not, unless a time zone is required."""
    if isinstance(info, inspect.Metadata):
        info = info.type
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in seen:
            return
        seen.add(name)
        schema = parts[name]
    if isinstance(info, inspect.DateTimeType):
        schema.setdefault("format", "date-time")
    for inner, place in _parts_of(info, schema):
        _add_formats(inner, place, parts, seen)


def _parts_of(info: Any, schema: Schema) -> Iterator[tuple[Any, Schema]]:
    """Yield the types inside a type, each with its place in the schema."""
    for field in getattr(info, "fields", ()):
        if field.encode_name in schema.get("properties", {}):
            yield field.type, schema["properties"][field.encode_name]
    if isinstance(schema.get("items"), dict) and hasattr(info, "item_type"):
        yield info.item_type, schema["items"]
    if isinstance(schema.get("additionalProperties"), dict) and hasattr(info, "value_type"):
        yield info.value_type, schema["additionalProperties"]
    if isinstance(info, inspect.UnionType):
        yield from _members_of(info, schema.get("anyOf", ()))


def _members_of(info: inspect.UnionType, places: Any) -> Iterator[tuple[Any, Schema]]:
    has_text = any(isinstance(one, inspect.StrType) for one in info.types)
    for one in info.types:
        for place in places:
            is_moment = isinstance(one, inspect.DateTimeType) and not has_text and place == {"type": "string"}
            name = place.get("$ref", "").rpartition("/")[2].rpartition(".")[2]
            if is_moment or (name and name == getattr(getattr(one, "cls", None), "__name__", None)):
                yield one, place
