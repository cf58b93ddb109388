"""Prints lists of objects: a table of some of their fields for people, all of them as JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tidemill.cli.formatting import format_time, one_line, time_column_title
from tidemill.cli.output import Format, print_text, show_json, show_rows

Fields = Mapping[str, Any]


def show_items(
    items: Sequence[Fields],
    columns: Mapping[str, str],
    output: Format,
    *,
    empty: str,
    droppable: Sequence[str] = (),
) -> None:
    """Print objects in JSON types. `columns` has the fields that a table shows, each with its title."""
    if output is Format.JSON:
        show_json(list(items))
        return
    if not items:
        print_text(empty)
        return
    titles = {field: _title(field, title, items) for field, title in columns.items()}
    rows = [[format_field(field, item.get(field)) for field in columns] for item in items]
    show_rows(list(titles.values()), rows, output, droppable=[titles[field] for field in droppable])


def show_fields(item: Fields, output: Format) -> None:
    """Print one object: a line per field for people, an object for programs."""
    if output is Format.JSON:
        show_json(dict(item))
        return
    for field, value in item.items():
        if shown := format_field(field, value):
            print_text(f"{field.replace('_', ' ')}: {shown}")


def _is_time(field: str) -> bool:
    return field in ("at", "since") or field.endswith("_at") or field.endswith("_until")


def _title(field: str, title: str, items: Sequence[Fields]) -> str:
    values = [item.get(field) for item in items]
    times = [_first_of(one) for one in values]
    if not _is_time(field) and not any(isinstance(one, datetime) for one in times):
        return title
    return time_column_title(title, [_parse_time(one) for one in times])


def _first_of(value: Any) -> Any:
    """Return the first item of a list, and anything else as it is."""
    return next(iter(value), None) if isinstance(value, list) else value


def format_field(field: str, value: Any) -> str:
    """Return the value of a field in one line: a time in local time, numbers by name, another object as JSON."""
    if value is None or isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(first := _first_of(value), datetime):
        return format_time(first) + ", ..." * (first is not value and len(value) > 1)
    if _is_time(field):
        return format_time(_parse_time(value))
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    if isinstance(value, dict) and value and all(type(one) is int for one in value.values()):
        return ", ".join(f"{number} {name}" for name, number in value.items())
    if isinstance(value, dict | list | tuple):
        return one_line(json.dumps(value, default=str)) if value else ""
    return one_line(str(value))


def _parse_time(value: Any) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value
