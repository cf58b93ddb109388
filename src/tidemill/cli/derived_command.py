"""Runs the commands that operations declare, on a server or on a store, and prints their answers."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, get_origin

import msgspec
import typer

from tidemill.api.fields import Prompt, RequestField
from tidemill.api.operation import CommandForm, ListOperation, Operation
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_FAILED, exit_on_error
from tidemill.cli.item_list import format_field, show_fields, show_items
from tidemill.cli.opening import find_run, open_api
from tidemill.cli.output import Format, print_text, show_json
from tidemill.cli.value_input import read_json_object, read_secret


class CommandOptions(NamedTuple):
    """The options that every command has."""

    store: str | None
    output: Format
    tenant: str | None
    limit: int | None


def run_command(
    operation: Operation[Any, Any], form: CommandForm, given: dict[str, Any], options: CommandOptions
) -> None:
    """Carry an operation out, and print its answer."""
    for one in operation.fields:
        if (prompt := one.marker(Prompt)) is not None:
            given[one.name] = read_secret(prompt.text)
    with exit_on_error():
        fields = _parse_fields(operation, given)
        answer = run_async(_carry_out(operation, form, fields, options))
    plain = msgspec.to_builtins(answer, builtin_types=() if options.output is Format.JSON else (datetime,))
    if isinstance(operation, ListOperation):
        _show_list(form, given, plain, options.output)
    else:
        _show_answer(form, given, plain, options.output)


async def _carry_out(
    operation: Operation[Any, Any], form: CommandForm, fields: dict[str, Any], options: CommandOptions
) -> Any:
    is_read = operation.http.method == "GET"
    opened = open_api(options.store, options.tenant, read_only=is_read, creates=form.creates_store)
    async with opened as api:
        if form.noun == "runs" and "run" in fields:
            fields["run"] = await find_run(api, fields["run"])
        if isinstance(operation, ListOperation):
            return await api.collect(operation, fields, options.limit)
        return await api.call(operation, fields)


def _show_list(form: CommandForm, given: dict[str, Any], items: list[dict[str, Any]], output: Format) -> None:
    if output is Format.TABLE:
        items = [_picked(form, one | _sizes(one.get("omitted") or {})) for one in items]
    columns = [field for field in form.columns if field not in form.rare or any(one.get(field) for one in items)]
    titles = {field: form.noun if field == "name" else _title(field) for field in columns}
    show_items(items, titles, output, empty=form.empty.format(**given), droppable=columns[:0:-1])


def _picked(form: CommandForm, item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an item that its columns name."""
    picked = {path: _pick(item, path.split(".")) for path in form.columns}
    return picked | {path: picked[path].isoformat(" ") for path in form.zoned}


def _pick(value: Any, path: Sequence[str]) -> Any:
    if value is None or not path:
        return value
    field, rest = path[0], path[1:]
    if field.endswith("[]"):
        return [_pick(one, rest) for one in value[field.removesuffix("[]")]]
    return _pick(value[field], rest)


def _title(field: str) -> str:
    """Return the title of a column."""
    words = field.partition("[]")[0].removesuffix(".created_at").removesuffix("_at")
    return words.replace(".", " ").replace("_", " ")


def _sizes(omitted: dict[str, int]) -> dict[str, str]:
    return {field: f"({size} bytes)" for field, size in omitted.items()}


def _show_answer(form: CommandForm, given: dict[str, Any], answer: Any, output: Format) -> None:
    if answer is None:
        name, participle = next(iter(given.values()), ""), _participle(form.verb)
        answer = {form.noun: name, participle: True}
        done = form.done or f"{form.noun} '{name}' is {participle}"
    else:
        done = form.done
    if output is Format.JSON:
        show_json(answer)
    elif done:
        print_text(done.format(**{name: format_field(name, one) for name, one in {**given, **answer}.items()}))
    elif form.shows is not None:
        value = answer[form.shows]
        print_text(value if isinstance(value, str) else json.dumps(value, indent=2))
    else:
        show_fields({_title(path): one for path, one in _picked(form, answer).items()} or answer, output)
    if form.success is not None and not answer[form.success]:
        raise typer.Exit(EXIT_FAILED)


def _participle(verb: str) -> str:
    return f"{verb}d" if verb.endswith("e") else f"{verb}ed"


def _parse_fields(operation: Operation[Any, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request from what the command line has."""
    return {one.name: _parse(one, given[one.name]) for one in operation.fields if given.get(one.name) is not None}


def _parse(field: RequestField, value: Any) -> Any:
    bare = field.bare_type
    if get_origin(bare) is list and isinstance(value, str):
        return [one for one in value.split(",") if one]
    if get_origin(bare) is dict and isinstance(value, str):
        return read_json_object(value)
    return _parse_json(value) if bare is Any and isinstance(value, str) else value


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
