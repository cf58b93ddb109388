"""Writes tests/architecture/wire.json: what a program can rely on of every request below /api/v1.

The document only gains additions. `tests/architecture/test_wire.py` compares it with the OpenAPI document of the
server. `make api` adds to it what is new, and refuses while something is missing.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "tests" / "architecture" / "wire.json"

Wire = Mapping[str, Mapping[str, Any]]
"""By method and path: `request` has parameters and fields of the body, `answers` the fields by status.

Each has the JSON types of a field by its path, such as "items[].name"; "-" is the whole. "!" marks what a request must
have.
"""


def describe_wire() -> Wire:
    """Return the wire as the server has it now."""
    from tidemill.server.openapi import openapi_document  # on use: the comparison needs no server

    document = json.loads(openapi_document())
    schemas = document["components"]["schemas"]
    return {
        f"{method.upper()} {path}": _describe(operation, schemas)
        for path, operations in sorted(document["paths"].items())
        for method, operation in sorted(operations.items())
    }


def _describe(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    request = {}
    for one in operation.get("parameters", ()):
        mark = "!" if one.get("required") else ""
        request[f"{one['in']} {one['name']}{mark}"] = _join(_types(one.get("schema", {}), schemas))
    body = operation.get("requestBody", {})
    for media, content in body.get("content", {}).items():
        mark = "!" if body.get("required") else ""
        fields = _fields(content.get("schema", {}), schemas)
        request |= {f"body {_shown(media)}{path}{mark if path == '-' else ''}": types for path, types in fields}
    answers = {
        status: {
            f"{_shown(media)}{path}": types
            for media, content in answer.get("content", {}).items()
            for path, types in _fields(content.get("schema", {}), schemas, is_answer=True)
        }
        for status, answer in operation.get("responses", {}).items()
        if status < "4"
    }
    return {"request": dict(sorted(request.items())), "answers": answers}


def _shown(media: str) -> str:
    return "" if media == "application/json" else f"{media} "


def _fields(
    schema: Mapping[str, Any],
    schemas: Mapping[str, Any],
    path: str = "",
    seen: tuple[str, ...] = (),
    *,
    is_answer: bool = False,
) -> Iterator[tuple[str, str]]:
    """Yield the path and the types of every field in a schema; a struct in itself is followed once."""
    yield path or "-", _join(_types(schema, schemas))
    for name, one in _parts(schema, schemas):
        if name in seen:
            continue
        inner = (*seen, name) if name else seen
        if "items" in one and isinstance(one["items"], dict):
            yield from _fields(one["items"], schemas, f"{path}[]", inner, is_answer=is_answer)
        if isinstance(one.get("additionalProperties"), dict):
            yield from _fields(one["additionalProperties"], schemas, f"{path}{{}}", inner, is_answer=is_answer)
        for field, content in one.get("properties", {}).items():
            mark = "!" if not is_answer and field in one.get("required", ()) else ""
            below = f"{path}.{field}{mark}" if path else f"{field}{mark}"
            yield from _fields(content, schemas, below, inner, is_answer=is_answer)


def _parts(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the alternatives of a schema, each with the name of its struct."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from ((found or name, one) for found, one in _parts(schemas[name], schemas))
        return
    alternatives = [one for word in ("oneOf", "anyOf", "allOf") for one in schema.get(word, ())]
    for one in alternatives:
        yield from _parts(one, schemas)
    if not alternatives:
        yield "", schema


def _types(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for _, one in _parts(schema, schemas):
        kind = one.get("type")
        if kind is None and "enum" in one:
            kind = "string"
        found |= {kind} if isinstance(kind, str) else set(kind or ["any"])
    return found


def _join(types: set[str]) -> str:
    return "|".join(sorted(types))


def find_losses(kept: Wire, now: Wire) -> list[str]:
    """Return what a program relies on and the wire has lost, one sentence each."""
    losses = [f"{name} is gone" for name in kept.keys() - now.keys()]
    for name in kept.keys() & now.keys():
        losses += [f"{name}: {one}" for one in _lost_in_request(kept[name]["request"], now[name]["request"])]
        losses += [f"{name}: {one}" for one in _lost_in_answers(kept[name]["answers"], now[name]["answers"])]
    return sorted(losses)


def _lost_in_request(kept: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    before = {one.replace("!", ""): (one, types) for one, types in kept.items()}
    after = {one.replace("!", ""): (one, types) for one, types in now.items()}
    for field, (marked, types) in after.items():
        marks_before = before[field][0].count("!") if field in before else marked.removesuffix("!").count("!")
        if marked.count("!") > marks_before and not _is_below_new(field, before):
            yield f"{field} is required now"
        if field in before and "any" not in types.split("|") and not _is_wider(types, before[field][1]):
            yield f"{field} takes {types}, not {before[field][1]} any longer"
    yield from (f"{field} is not taken any longer" for field in before.keys() - after.keys())


def _is_below_new(field: str, before: Mapping[str, Any]) -> bool:
    """Return whether a field is a part of something that is new and may be left out itself."""
    parent = field.rpartition(".")[0].removesuffix("[]").removesuffix("{}")
    return field.startswith("body") and "." in field and bool(parent) and parent not in before


def _lost_in_answers(kept: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for status, fields in kept.items():
        if status not in now:
            yield f"status {status} is gone"
            continue
        for field, types in fields.items():
            if field not in now[status]:
                yield f"{field} of the answer {status} is gone"
            elif "any" not in types.split("|") and not _is_wider(types, now[status][field]):
                yield f"{field} of the answer {status} is {now[status][field]}, not {types} any longer"


def _is_wider(types: str, others: str) -> bool:
    """Return whether types have room for all of the others; a number has room for integers."""
    known = set(types.split("|"))
    return set(others.split("|")) <= known | ({"integer"} if "number" in known else set())


def render(wire: Wire) -> str:
    """Return the document: one line per request."""
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(wire.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Add what is new to the document, unless something is missing."""
    kept, now = json.loads(PAGE.read_text(encoding="utf-8")), describe_wire()
    losses = find_losses(kept, now)
    if losses:
        sys.stderr.write("".join(f"{one}\n" for one in losses))
        return 1
    PAGE.write_text(render(now), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
