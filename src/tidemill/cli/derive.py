"""Derives commands from operations: arguments and options from the fields of a request, a table from its columns."""

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, get_origin

import typer

from tidemill.api.fields import InSeconds, NameOf, Positional, Prompt, RequestField
from tidemill.api.operation import CommandForm, Operation, Verb
from tidemill.api.table import OPERATIONS
from tidemill.cli.completions import complete_accumulator, complete_package, complete_reactor, complete_workflow
from tidemill.cli.output import Format, Output
from tidemill.cli.stores import StoreOption, TenantOption

MAX_ITEMS = 100_000
COMPLETIONS = {
    "accumulator": complete_accumulator,
    "package": complete_package,
    "reactor": complete_reactor,
    "workflow": complete_workflow,
}
"""What a shell completes the names of things with."""


def derive_commands(noun: str) -> dict[str, Callable[..., None]]:
    """Return the commands of a noun by their verbs; a command that is only a noun has no verb."""
    forms = [(one, verb, verb.command) for one in OPERATIONS for verb in one.verbs if verb.command is not None]
    return {form.verb: _make_command(one, verb, form) for one, verb, form in forms if form.noun == noun}


def _make_command(operation: Operation[Any, Any], verb: Verb, form: CommandForm) -> Callable[..., None]:
    """Return the function of a command, with the parameters that Typer reads."""
    shown = [
        one
        for one in operation.fields
        if one.name not in verb.fixed and one.marker(Prompt) is None and not _is_tenant(one)
    ]
    parameters = [
        inspect.Parameter(one.name, _KEYWORD, default=_default(one), annotation=_kind(one, form.noun)) for one in shown
    ]
    if operation.default_limit is not None:
        limit = Annotated[int, typer.Option(min=1, max=MAX_ITEMS, help="The number of items.")]
        parameters.append(inspect.Parameter("limit", _KEYWORD, default=operation.default_limit, annotation=limit))
    common: dict[str, tuple[Any, Any]] = {"store": (StoreOption, None), "output": (Output, Format.TABLE)}
    if operation.permission != "instance":
        common["tenant"] = (TenantOption, None)
    parameters += [
        inspect.Parameter(name, _KEYWORD, default=default, annotation=annotation)
        for name, (annotation, default) in common.items()
    ]

    def command(**given: Any) -> None:
        from tidemill.cli.derived_command import CommandOptions, run_command

        options = CommandOptions(
            given.pop("store"), given.pop("output"), given.pop("tenant", None), given.pop("limit", None)
        )
        run_command(operation, form, {**given, **verb.fixed}, options)

    command.__doc__ = _help(operation, verb.text, form)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    return command


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _help(operation: Operation[Any, Any], text: str, form: CommandForm) -> str:
    prompts = [one.marker(Prompt) for one in operation.fields]
    reads = next(
        (f"The {one.text.lower()} is read from standard input; a terminal asks for it." for one in prompts if one), ""
    )
    first, _, rest = re.sub("^Return ", "Show ", text).partition("\n\n")
    return "\n\n".join(one for one in (f"{first} {reads}".strip(), rest, form.more) if one)


def _is_tenant(field: RequestField) -> bool:
    """Return whether a field names the tenant of what is made: every command has the option --tenant."""
    return field.name == "tenant" and field.place == "body"


def _default(field: RequestField) -> Any:
    return inspect.Parameter.empty if field.is_required else field.default


def _kind(field: RequestField, noun: str) -> Any:
    """Return the annotation of a parameter: how the command line writes the field."""
    help_text = field.help or (f"The name of the {noun}." if field.name == "name" else f"The {field.name}.")
    if field.marker(InSeconds) is not None:
        help_text += " For example 90d, or 1h30m."
    (kind, metavar), named = _written_as(field), field.marker(NameOf)
    if field.place == "path" or field.marker(Positional) is not None:
        name, complete = (field.name, None) if named is None else (named.noun, COMPLETIONS.get(named.noun))
        argument = typer.Argument(metavar=name.upper(), help=help_text, show_default=False, autocompletion=complete)
        return Annotated[kind, argument]
    return Annotated[kind, typer.Option(metavar=metavar, help=help_text, show_default=False)]


def _written_as(field: RequestField) -> tuple[Any, str | None]:
    """Return the type of an argument, and its name in the help."""
    bare = field.bare_type
    optional = str if field.is_required else str | None
    if field.marker(InSeconds) is not None:
        return optional, "DURATION"
    if bare is Any:
        return str, None
    if get_origin(bare) is list:
        return optional, "A,B"
    if isinstance(bare, type):
        return (bare if field.is_required or field.default is not None else bare | None), None
    return optional, None
