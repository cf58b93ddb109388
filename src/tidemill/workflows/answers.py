"""Checks of answers: whether a value fits what a wait asks, by its JSON Schema, and who may give it."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import close_names, did_you_mean
from tidemill.workflows.change import Change, TaskChange
from tidemill.workflows.records import WAITING_FOR_ANSWER, RunEventBatch, RunRecord, TaskRow
from tidemill.workflows.run_draft import task_event
from tidemill.workflows.states import TaskState
from tidemill.workflows.waits import ANSWER_LIMIT, Answer, WaitChanges, WaitRow, WaitType

Schema = Mapping[str, Any]
_FORMATS: dict[str, Any] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
    "uuid4": UUID,
}
_CLASSES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, bound: value % bound == 0,
    "minLength": lambda value, bound: len(value) >= bound,
    "maxLength": lambda value, bound: len(value) <= bound,
    "minItems": lambda value, bound: len(value) >= bound,
    "maxItems": lambda value, bound: len(value) <= bound,
    "pattern": lambda value, bound: re.search(bound, value) is not None,
}


def build_answer_change(record: RunRecord, wait: WaitRow, answer: Answer) -> Change:
    """Return the change that answers a wait, and wakes its task if the task is deferred until then.

    A task that runs at the moment is compared all the same: if it is deferred meanwhile, the change is refused.
    """
    rows = [row for row in record.tasks if (row.task, row.index) == (wait.task, wait.element)]
    woken = [_wake(row, answer) for row in rows]
    events = [
        task_event(row, row.state, TaskState.SCHEDULED, f"'{wait.name}' was answered")
        for row, after in zip(rows, woken, strict=True)
        if after is not row
    ]
    return Change(
        run=record.run.id,
        expected_run=record.run,
        tasks=[TaskChange(row, after) for row, after in zip(rows, woken, strict=True)],
        waits=WaitChanges(answered=[(wait.id, answer)], at=answer.at),
        history=RunEventBatch(answer.at, answer.by, events) if events else None,
    )


def _wake(row: TaskRow, answer: Answer) -> TaskRow:
    if row.state is not TaskState.DEFERRED or row.reason != WAITING_FOR_ANSWER:
        return row
    return replace(row, state=TaskState.SCHEDULED, since=answer.at, wake_at=None, reason="")


class Misfit(NamedTuple):
    """One place at which a value does not fit."""

    path: str
    message: str


class CheckedAnswer(NamedTuple):
    """A value that fits, as JSON, and the class of the union that it is of."""

    value: str
    variant: str | None


def check_answer(name: str, kind: WaitType, value: Any, variant: str | None) -> CheckedAnswer:
    """Return an answer that fits what a wait asks; RequestError with the path of each misfit if it does not."""
    try:
        encoded = msgspec.json.encode(value).decode()
    except (TypeError, ValueError) as error:
        raise _invalid(name, [Misfit("", f"JSON cannot hold it: {error}")]) from None
    if len(encoded) > ANSWER_LIMIT:
        raise _invalid(name, [Misfit("", f"it has {len(encoded):,} bytes, and {ANSWER_LIMIT:,} are allowed")])
    if kind.variants:
        return CheckedAnswer(encoded, _choose(name, kind, value, msgspec.json.decode(encoded), variant))
    if variant is not None:
        raise _invalid(name, [Misfit("variant", "the wait has no variants: leave it out")])
    if found := list(find_misfits(msgspec.json.decode(encoded), kind.schema, kind.schema)):
        raise _invalid(name, found)
    return CheckedAnswer(encoded, None)


def _choose(name: str, kind: WaitType, value: Any, plain: Any, variant: str | None) -> str:
    """Return the variant of a value; RequestError if it fits none, several, or not the one that is named."""
    schemas = dict(zip(kind.variants, kind.schema["anyOf"], strict=True))
    if variant is None and type(value).__name__ in schemas and hasattr(value, "__struct_fields__"):
        variant = type(value).__name__
    if variant is not None and variant not in schemas:
        message = f"there is no variant '{variant}'{did_you_mean(variant, schemas)}: {', '.join(schemas)}"
        raise _invalid(name, [Misfit("variant", message)], suggestions=close_names(variant, schemas))
    if variant is not None:
        if found := list(find_misfits(plain, schemas[variant], kind.schema)):
            raise _invalid(name, found)
        return variant
    fitting = [one for one, schema in schemas.items() if not any(find_misfits(plain, schema, kind.schema))]
    if len(fitting) != 1:
        what = f"it fits {', '.join(fitting)}" if fitting else f"it fits none of {', '.join(schemas)}"
        raise _invalid(name, [Misfit("variant", f"{what}: name the variant")], suggestions=list(schemas))
    return fitting[0]


def find_misfits(value: Any, schema: Schema, root: Schema, path: str = "") -> Iterator[Misfit]:
    """Yield where a plain value does not fit a schema as msgspec writes them; unknown fields do not fit."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        tried = [list(find_misfits(value, one, root, path)) for one in schema["anyOf"]]
        if all(tried):
            yield from min(tried, key=lambda found: (_is_of_other_kind(found, path), len(found)))
        return
    if "enum" in schema and value not in schema["enum"]:
        yield Misfit(path, f"it is one of {', '.join(map(repr, schema['enum']))}, not {value!r}")
        return
    if "const" in schema and value != schema["const"]:
        yield Misfit(path, f"it is {schema['const']!r}, not {value!r}")
        return
    kind = schema.get("type")
    if kind is not None and not _is_of(value, kind):
        yield Misfit(path, f"expected {kind}, got {_kind_of(value)}")
        return
    yield from _bound_misfits(value, schema, path)
    if isinstance(value, dict):
        yield from _object_misfits(value, schema, root, path)
    elif isinstance(value, list):
        yield from _array_misfits(value, schema, root, path)


def _is_of_other_kind(found: list[Misfit], path: str) -> bool:
    return any(one.path == path and one.message.startswith("expected ") for one in found)


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, _CLASSES[kind])


def _kind_of(value: Any) -> str:
    return next(
        kind for kind in ("null", "boolean", "integer", "number", "string", "array", "object") if _is_of(value, kind)
    )


def _bound_misfits(value: Any, schema: Schema, path: str) -> Iterator[Misfit]:
    for name, holds in _BOUNDS.items():
        if name in schema and not holds(value, schema[name]):
            yield Misfit(path, f"{name} is {schema[name]!r}")
    kind = bytes if schema.get("contentEncoding") == "base64" else _FORMATS.get(schema.get("format", ""))
    if kind is not None:
        try:
            msgspec.json.decode(msgspec.json.encode(value), type=kind)
        except msgspec.ValidationError as error:
            yield Misfit(path, str(error))


def _object_misfits(value: dict[str, Any], schema: Schema, root: Schema, path: str) -> Iterator[Misfit]:
    fields, others = schema.get("properties"), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield Misfit(_below(path, name), "it is missing")
    for name, one in value.items():
        if fields is not None and name in fields:
            yield from find_misfits(one, fields[name], root, _below(path, name))
        elif fields is not None or others is False:
            yield Misfit(_below(path, name), f"there is no field of this name{did_you_mean(name, fields or ())}")
        elif isinstance(others, Mapping):
            yield from find_misfits(one, others, root, _below(path, name))


def _array_misfits(value: list[Any], schema: Schema, root: Schema, path: str) -> Iterator[Misfit]:
    first, rest = schema.get("prefixItems", ()), schema.get("items", True)
    for number, one in enumerate(value):
        item = first[number] if number < len(first) else rest
        if isinstance(item, Mapping):
            yield from find_misfits(one, item, root, f"{path}[{number}]")


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _invalid(name: str, found: list[Misfit], suggestions: list[str] | None = None) -> RequestError:
    first = found[0]
    where = f" at `{first.path}`" if first.path else ""
    errors = [one._asdict() for one in found]
    message = f"the answer does not fit '{name}'{where}: {first.message}"
    return RequestError(message, code="invalid_answer", errors=errors, suggestions=suggestions or [])
