"""Reads JSON that a user gives to a command."""

import json
import sys
from typing import Any

import typer


def read_json_object(text: str) -> dict[str, Any]:
    """Return a JSON object from an argument; "-" reads standard input."""
    try:
        value = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        raise typer.BadParameter(f"this is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise typer.BadParameter(f'give a JSON object by name, such as {{"orderbook": ...}}, not {text}')
    return value
