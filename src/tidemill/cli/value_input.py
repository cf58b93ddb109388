"""Reads values that a user gives to a command: JSON, keys and secrets."""

import json
import sys
from typing import Any

import typer


def read_json(text: str) -> Any:
    """Return the JSON value of an argument; "-" reads standard input."""
    try:
        return json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        raise typer.BadParameter(f"this is not JSON: {error}") from None


def read_json_object(text: str) -> dict[str, Any]:
    """Return the JSON object of an argument; "-" reads standard input."""
    value = read_json(text)
    if not isinstance(value, dict):
        raise typer.BadParameter(f'give a JSON object by name, such as {{"orderbook": ...}}, not {text}')
    return value


def read_secret(label: str) -> str:
    """Return a key or a secret: what a user types at a terminal, unseen, or else all of standard input.

    It is never an argument, which other users of the machine can see. Its last newline is left out.
    """
    if sys.stdin.isatty():
        return str(typer.prompt(label, default="", hide_input=True, show_default=False, err=True))
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")
