"""The params of a workflow on the command line: `--name value` for each, as the author named them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import FieldInfo, fields
from typer.core import TyperOption

from tidemill.annotations.variants import label
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.params import params_of, read_params
from tidemill.workflows.workflow import Workflow

OWN = ("--store", "--executor", "--concurrency", "--output", "--quiet", "--param", "--help")
"""The options of the command itself, for whoever misspells one."""

Given = dict[str, Any]


def read_given(workflow: Workflow, rest: Sequence[str], pairs: Sequence[str]) -> Given:
    """Return the params of a run from what stands on the command line; RequestError says all that is wrong."""
    given = _gathered([*_options(workflow, rest), *map(_pair, pairs)])
    if workflow.params is not None:
        _check_names(workflow, given)
    stored = read_params(workflow.params, given, from_text=True)
    read = params_of(workflow.params, stored)
    return read if workflow.params is None else msgspec.structs.asdict(read)


def _options(workflow: Workflow, rest: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of `--name value`, `--name=value`, and of flags: `--name`, `--no-name`."""
    flags = {one.name for one in _fields(workflow) if one.type is bool}
    words = list(rest)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            message = f"{word!r} is not expected here: params are given as --name value"
            raise RequestError(message, code="invalid_params", status=422)
        option, has_value, value = word[2:].partition("=")
        name = option.replace("-", "_")
        if has_value:
            yield name, value
        elif words and not words[0].startswith("--") and not (name in flags and words[0] not in ("true", "false")):
            yield name, words.pop(0)
        elif name.removeprefix("no_") in flags and name not in flags:
            yield name.removeprefix("no_"), "false"
        elif name in flags or workflow.params is None:
            yield name, "true"
        else:
            _check_names(workflow, [name])
            raise RequestError(f"--{option} needs a value: --{option} VALUE", code="invalid_params", status=422)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise RequestError(f"--param takes NAME=VALUE, not {text!r}", code="invalid_params", status=422)
    return name.strip(), value


def _gathered(pairs: Sequence[tuple[str, str]]) -> Given:
    """Return values by name; one that is named several times has a list of them."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _check_names(workflow: Workflow, names: Mapping[str, Any] | Sequence[str]) -> None:
    known = [one.name for one in _fields(workflow)]
    for name in names:
        if name not in known:
            options = [f"--{one.replace('_', '-')}" for one in known]
            wanted = f"--{name.replace('_', '-')}"
            takes = f"; '{workflow.name}' takes {', '.join(options)}" if options else f"; '{workflow.name}' takes none"
            hint = did_you_mean(wanted, [*options, *OWN]) or takes
            raise RequestError(f"there is no param or option {wanted}{hint}", code="invalid_params", status=422)


def _fields(workflow: Workflow) -> Sequence[FieldInfo]:
    return () if workflow.params is None else fields(workflow.params)


# -- help


def help_options(workflow: Workflow) -> list[TyperOption]:
    """Return an option for each param, for the help text."""
    return [_help_option(workflow, one) for one in _fields(workflow)]


def _help_option(workflow: Workflow, field: FieldInfo) -> TyperOption:
    option = field.name.replace("_", "-")
    is_flag = field.type is bool
    default = None if field.required else _default(field)
    return TyperOption(
        param_decls=[f"--{option}/--no-{option}" if is_flag else f"--{option}", f"param_{field.name}"],
        is_flag=is_flag,
        metavar=None if is_flag else label(field.type),
        required=field.required,
        default=default,
        show_default=default is not None,
        rich_help_panel=f"Params of {workflow.name}",
    )


def _default(field: FieldInfo) -> Any:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return value if value is None or isinstance(value, bool) else str(value)
