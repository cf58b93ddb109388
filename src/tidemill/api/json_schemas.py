"""JSON Schemas of what authors declare."""

from typing import Any

import msgspec

_PREFIX = "#/$defs/"


def object_schema(declared: type[msgspec.Struct] | None) -> dict[str, Any]:
    """Return the schema of a class of params, with its fields at the top; any object without one."""
    if declared is None:
        return {"type": "object"}
    schema = msgspec.json.schema(declared, schema_hook=_describe_unknown)
    definitions = dict(schema.get("$defs", {}))
    name = schema.get("$ref", "").removeprefix(_PREFIX)
    if name not in definitions:
        return schema
    own = definitions[name] if _refers_to(definitions, name) else definitions.pop(name)
    return {**own, "$defs": definitions} if definitions else own


def _refers_to(definitions: dict[str, Any], name: str) -> bool:
    """Return whether some definition refers to another one, or to itself, by name."""
    return f'"{_PREFIX}{name}"'.encode() in msgspec.json.encode(definitions)


def _describe_unknown(kind: type) -> dict[str, Any]:
    """Return the schema of a class that msgspec does not know: any value, with the name of the class."""
    return {"title": kind.__name__}
