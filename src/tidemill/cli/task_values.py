"""Variables and secrets of tasks, as options of `tidemill run`."""

import json
import os
from collections.abc import Iterable
from typing import Annotated, Any

import typer

VariableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--variable", metavar="NAME=VALUE", help="A variable for ctx.variable: JSON, or else a text. May be repeated."
    ),
]
SecretEnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret-env",
        metavar="NAME[=VARIABLE]",
        help="A secret for ctx.secret, from a variable of the environment, or the one of its name. May be repeated.",
    ),
]


def parse_variables(pairs: Iterable[str]) -> dict[str, Any]:
    """Return variables by name."""
    variables: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--variable takes NAME=VALUE, such as region=eu, not {pair}")
        try:
            variables[name] = json.loads(text)
        except ValueError:
            variables[name] = text
    return variables


def read_secrets(names: Iterable[str]) -> dict[str, str]:
    """Return secrets by name, from the environment: no option takes a secret, which other users of a machine see."""
    secrets: dict[str, str] = {}
    for one in names:
        name, _, variable = one.partition("=")
        variable = variable or name
        if not os.environ.get(variable):
            raise typer.BadParameter(f"--secret-env {one}: the environment has no variable {variable}, or it is empty")
        secrets[name] = os.environ[variable]
    return secrets
