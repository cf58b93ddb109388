"""Reads keys and secrets: never from the arguments of a command, which other users of the machine can see."""

import sys

import typer


def read_secret(label: str) -> str:
    """Return what a user types at a terminal, unseen, or else all of standard input without its last newline."""
    if sys.stdin.isatty():
        return str(typer.prompt(label, default="", hide_input=True, show_default=False, err=True))
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")
