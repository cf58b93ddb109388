"""Runs a workflow on a server: reads its params by their JSON Schema, starts it, and shows it until it has ended."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.cli.live_progress import watch_run
from tidemill.cli.output import StreamFormat
from tidemill.cli.targets import ServerTarget
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.result import RunResult


class ServerRun:
    """One run on a server, from its start to its end."""

    def __init__(self, target: ServerTarget, tenant: str | None) -> None:
        self._target = target
        self._tenant = tenant
        self._id: str | None = None

    async def execute(self, workflow: str, words: Sequence[str], pairs: Sequence[str], *, quiet: bool) -> RunResult:
        """Start the workflow with the params on the command line, show it, and return its result."""
        async with self._target.client(self._tenant) as client:
            schema = (await client.workflow(workflow)).params
            run = await client.start(workflow, read_params(schema, words, pairs))
            self._id = run.id
            if quiet:
                return await run.wait()
            return await watch_run(run, StreamFormat.TABLE)

    async def read_schema(self, workflow: str) -> Mapping[str, Any] | None:
        """Return the JSON Schema of the params of a workflow; None if the server has not loaded it."""
        async with self._target.client(self._tenant) as client:
            return (await client.workflow(workflow)).params

    async def cancel(self) -> None:
        """Cancel the run, if it was started."""
        if self._id is not None:
            async with self._target.client(self._tenant) as client:
                await client.run_handle(self._id).cancel("interrupted")


def read_params(schema: Mapping[str, Any] | None, words: Sequence[str], pairs: Sequence[str]) -> dict[str, Any]:
    """Return params from `--name value`, `--name=value` and `NAME=VALUE`, with the types that a JSON Schema names."""
    properties: Mapping[str, Any] = (schema or {}).get("properties", {})
    params: dict[str, Any] = {}
    rest = list(words)
    while rest:
        option, has_value, text = rest.pop(0).partition("=")
        if not option.startswith("--"):
            raise RequestError(f"'{option}' is not a param: write --NAME VALUE", code="invalid_params")
        name = _find_name(option.removeprefix("--"), properties)
        if not has_value:
            is_flag = _is_boolean(properties.get(name)) and (not rest or rest[0].startswith("--"))
            if not is_flag and not rest:
                raise RequestError(f"{option} needs a value", code="invalid_params")
            text = "true" if is_flag else rest.pop(0)
        params[name] = _parse(text, properties.get(name))
    for pair in pairs:
        name, has_value, text = pair.partition("=")
        if not has_value:
            raise RequestError(f"'{pair}' is not a param: write NAME=VALUE", code="invalid_params")
        params[_find_name(name, properties)] = _parse(text, properties.get(name))
    return params


def describe_params(schema: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return the lines of the help about params: the option of each with its type, and its default."""
    properties, required = (schema or {}).get("properties", {}), (schema or {}).get("required", ())
    return [
        (f"--{name.replace('_', '-')} {_type_of(one)}", "[required]" if name in required else _default_of(one))
        for name, one in properties.items()
    ]


def _type_of(schema: Mapping[str, Any]) -> str:
    variants = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"] or [schema]
    return "|".join(str(one.get("format") or one.get("type") or "JSON") for one in variants)


def _default_of(schema: Mapping[str, Any]) -> str:
    return f"[default: {json.dumps(schema['default'])}]" if schema.get("default") is not None else ""


def _find_name(text: str, properties: Mapping[str, Any]) -> str:
    """Return the param that an option names, with - for _."""
    name = text if text in properties else text.replace("-", "_")
    if properties and name not in properties:
        raise RequestError(f"there is no param '{text}'{did_you_mean(name, properties)}", code="invalid_params")
    return name


def _is_boolean(schema: Mapping[str, Any] | None) -> bool:
    return bool(schema) and (schema or {}).get("type") == "boolean"


def _parse(text: str, schema: Mapping[str, Any] | None) -> Any:
    """Return a text as it is where the schema wants one; else as JSON, if it is JSON."""
    if schema is not None and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
