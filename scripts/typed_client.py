"""Writes the methods of the Python client, one for each operation.

`make api` runs it, and then writes the blocking client from the asynchronous one; `tests/architecture/test_client.py`
fails while they differ.
"""

from collections.abc import Sequence
from enum import Enum
from textwrap import indent
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from scripts.blocking_client import SOURCE, format_module
from tidemill.api.fields import InSeconds, Keywords, Positional, RequestField
from tidemill.api.operation import ListOperation, Operation, Verb
from tidemill.api.runs import list_runs, start_run
from tidemill.api.table import OPERATIONS

PATH = SOURCE / "operations.py"
HEAD = '''"""The operations of a server as methods."""

from tidemill.api.port import AsyncApi
{imports}

class AsyncOperations:
    """One method for each operation."""

    _api: AsyncApi
'''
NOTE = "# Written by `make api` from the operations of tidemill.api: change them there.\n"


HANDLED = ("/accumulators/{name}", "/reactors/{name}", "/runs/{run}")
"""The paths of operations on what has a handle, whose methods they are: `start` and `runs` return handles too."""


def render_module(operations: Sequence[Operation[Any, Any]] = OPERATIONS) -> str:
    """Return the text of the asynchronous module."""
    imports: set[tuple[str, str]] = set()
    written = [one for one in operations if not _is_of_handle(one)]
    methods = [_method(one, verb, imports) for one in written for verb in one.verbs]
    imports |= {(one.function.__module__, one.name) for one in written}
    lines = "".join(f"from {module} import {name}\n" for module, name in sorted(imports))
    return format_module(NOTE + HEAD.format(imports=lines) + "".join(methods))


def _is_of_handle(operation: Operation[Any, Any]) -> bool:
    return operation in (list_runs, start_run) or operation.http.path.startswith(HANDLED)


def _method(operation: Operation[Any, Any], verb: Verb, imports: set[tuple[str, str]]) -> str:
    fields = [one for one in operation.fields if one.name not in verb.fixed]
    mappings = [one for one in fields if one.marker(Keywords) is not None]
    required = [one for one in fields if one.is_required and one not in mappings]
    optional = [one for one in fields if not one.is_required and one not in mappings]
    parameters = [f"{one.name}: {_argument(one, imports)}" for one in required]
    given = {one.name: f"{one.name}: {_argument(one, imports)} = {_default(one, imports)}" for one in optional}
    positional = [given.pop(one.name) for one in optional if one.marker(Positional) is not None]
    keywords = list(given.values())
    values = {one.name: repr(verb.fixed[one.name]) if one.name in verb.fixed else one.name for one in operation.fields}
    values |= {one.name: f"{{**(given or {{}}), **{one.name}}}" for one in mappings}
    sent = "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"
    if operation.takes_page:
        keywords.append(f"limit: int | None = {operation.default_limit}")
    if isinstance(operation, ListOperation):
        limit = "limit" if operation.takes_page else "None"
        answer, call = f"list[{_type(operation.item, imports)}]", f"collect({operation.name}, {sent}, {limit})"
    else:
        answer, call = _type(operation.answer, imports), f"call({operation.name}, {sent})"
    for one in mappings:
        imports.add(("collections.abc", "Mapping"))
        positional += ["given: Mapping[str, Any] | None = None", "/"]
        keywords.append(f"**{one.name}: {_type(Any, imports)}")
    starred = ["*", *keywords] if keywords and not mappings else keywords
    signature = ", ".join(["self", *parameters, *positional, *starred])
    return f'''
    async def {verb.name}({signature}) -> {answer}:
        """{_docstring(verb)}"""
        return await self._api.{call}
'''


def _docstring(verb: Verb) -> str:
    return verb.text if "\n" not in verb.text else indent(verb.text, " " * 8).strip() + "\n        "


def _default(field: RequestField, imports: set[tuple[str, str]]) -> str:
    """Return a default as source."""
    if isinstance(field.default, Enum):
        return f"{_name(type(field.default), imports)}.{field.default.name}"
    return repr(field.default)


def _argument(field: RequestField, imports: set[tuple[str, str]]) -> str:
    """Return the type of an argument; a member of an enumeration may be given by its value, a list by one of them."""
    text = _type(field.annotation, imports)
    kinds = [one for one in (field.annotation, *_parts(field.annotation)) if isinstance(one, type)]
    member = next((one for one in kinds if issubclass(one, Enum)), None)
    if member is None:
        return text
    if get_origin(field.bare_type) is list:
        imports.add(("collections.abc", "Collection"))
        text = f"Collection[{_type(member, imports)} | str]{' | None' if field.default is None else ''}"
    return f"{text.removesuffix(' | None')} | str{' | None' if text.endswith(' | None') else ''}"


def _parts(annotation: Any) -> list[Any]:
    inner = [one for one in get_args(annotation) if not isinstance(one, str)]
    return inner + [part for one in inner for part in _parts(one)]


def _type(annotation: Any, imports: set[tuple[str, str]]) -> str:
    """Return a type as source, and note the names that it needs."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        is_duration = any(isinstance(one, InSeconds) for one in args)
        return _name_of("tidemill.kernel.durations", "Duration", imports) if is_duration else _type(args[0], imports)
    if origin in (Union, UnionType):
        return " | ".join(_type(one, imports) for one in args)
    if annotation in (None, NoneType):
        return "None"
    if origin is not None:
        inner = map(repr, args) if origin is Literal else (_type(one, imports) for one in args)
        return f"{_name(origin, imports)}[{', '.join(inner)}]"
    return _name(annotation, imports)


def _name(kind: Any, imports: set[tuple[str, str]]) -> str:
    return _name_of(kind.__module__, str(kind.__name__), imports)


def _name_of(module: str, name: str, imports: set[tuple[str, str]]) -> str:
    if module != "builtins":
        imports.add((module, name))
    return name
