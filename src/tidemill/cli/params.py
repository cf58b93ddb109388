"""Reads the params of a workflow from the command line: `--name value` for each."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields
from typer.core import TyperOption

from tidemill.annotations.variants import label
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.params import decode_params, encode_params
from tidemill.workflows.workflow import Workflow

COMMAND_OPTIONS = (
    "--server",
    "--profile",
    "--store",
    "--executor",
    "--concurrency",
    "--output",
    "--quiet",
    "--param",
    "--help",
)
"""The options of the command itself, to suggest for a misspelled one."""

GivenParams = dict[str, Any]


def read_cli_params(
    workflow: Workflow,
    rest: Sequence[str],
    pairs: Sequence[str],
    store: str | None = None,
    tenant: str | None = None,
) -> GivenParams:
    """Return the params of a run from the command line; raise RequestError with every problem."""
    names = {one.name for one in _param_fields(workflow)}
    if store and "://" not in store and "store" in names:
        message = f"--store is the store of the run; pass the param of that name as -p store={store}"
        raise RequestError(message, code="invalid_params", status=400)
    if tenant is not None:  # a run in this process has no tenant, so the option is a param
        if workflow.params is not None and "tenant" not in names:
            raise RequestError("--tenant is the tenant of a run on a server: leave it out", code="invalid_params")
        rest = [*rest, f"--tenant={tenant}"]
    given = _collect_values(workflow, [*_parse_options(workflow, rest), *map(_parse_pair, pairs)])
    if workflow.params is not None:
        _check_names(workflow, given)
    stored = encode_params(workflow.params, given, from_text=True)
    read = decode_params(workflow.params, stored)
    return read if workflow.params is None else msgspec.structs.asdict(read)


def _parse_options(workflow: Workflow, rest: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of `--name value`, `--name=value`, and of flags, `--name` and `--no-name`."""
    flags = {one.name for one in _param_fields(workflow) if one.type is bool}
    words = list(rest)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            message = f"{word!r} is not expected here: params are given as --name value"
            raise RequestError(message, code="invalid_params", status=400)
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
            raise RequestError(f"--{option} needs a value: --{option} VALUE", code="invalid_params", status=400)


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise RequestError(f"--param takes NAME=VALUE, not {text!r}", code="invalid_params", status=400)
    return name.strip(), value


def _collect_values(workflow: Workflow, pairs: Sequence[tuple[str, str]]) -> GivenParams:
    """Return values by name; a param that takes a list may be given several times, or as JSON."""
    values_by_name: dict[str, list[str]] = {}
    for name, value in pairs:
        values_by_name.setdefault(name, []).append(value)
    kinds = {one.name: one.type for one in _param_fields(workflow)}
    return {name: _single_or_list(name, values, kinds.get(name)) for name, values in values_by_name.items()}


def _single_or_list(name: str, values: list[str], kind: Any) -> str | list[str]:
    takes_several = kind is None or _accepts_list(kind)
    if len(values) > 1 and not takes_several:
        option = f"--{name.replace('_', '-')}"
        times = "twice" if len(values) == 2 else f"{len(values)} times"
        raise RequestError(f"{option} is given {times}: it takes one {label(kind)}", code="invalid_params", status=400)
    if len(values) == 1 and (kind is None or not takes_several or values[0].lstrip().startswith("[")):
        return values[0]
    return values


def _accepts_list(kind: Any) -> bool:
    """Return whether a type is a collection, or a union with one."""
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return any(map(_accepts_list, get_args(kind)))
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Collection) and not issubclass(origin, str | bytes | Mapping)


def _check_names(workflow: Workflow, names: Mapping[str, Any] | Sequence[str]) -> None:
    known = [one.name for one in _param_fields(workflow)]
    for name in names:
        if name not in known:
            options = [f"--{one.replace('_', '-')}" for one in known]
            given = f"--{name.replace('_', '-')}"
            takes = f"; '{workflow.name}' takes {', '.join(options)}" if options else f"; '{workflow.name}' takes none"
            hint = did_you_mean(given, [*options, *COMMAND_OPTIONS]) or takes
            raise RequestError(f"there is no param or option {given}{hint}", code="invalid_params", status=400)


def _param_fields(workflow: Workflow) -> Sequence[FieldInfo]:
    return () if workflow.params is None else fields(workflow.params)


# -- help


def help_options(workflow: Workflow) -> list[TyperOption]:
    """Return an option for each param, for the help text."""
    return [_help_option(one) for one in _param_fields(workflow)]


def _help_option(field: FieldInfo) -> TyperOption:
    option = field.name.replace("_", "-")
    is_flag = field.type is bool
    is_hidden = f"--{option}" in COMMAND_OPTIONS
    default = None if field.required else _default_value(field)
    return TyperOption(
        param_decls=[_declaration(option, is_flag=is_flag, is_hidden=is_hidden), f"param_{field.name}"],
        is_flag=is_flag and not is_hidden,
        metavar=f"{field.name}={label(field.type)}" if is_hidden else None if is_flag else label(field.type),
        required=field.required,
        default=str(default) if is_hidden and default is not None else default,
        show_default=default is not None,
    )


def _declaration(option: str, *, is_flag: bool, is_hidden: bool) -> str:
    """Return the option of a param; a param named like an option of the command itself is passed with --param."""
    if is_hidden:
        return "--param"
    return f"--{option}/--no-{option}" if is_flag else f"--{option}"


def _default_value(field: FieldInfo) -> Any:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return value if value is None or isinstance(value, bool) else str(value)
