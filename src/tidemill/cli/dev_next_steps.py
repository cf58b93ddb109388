"""The next steps that `tidemill dev` suggests on its first screen: commands to copy, to begin or for what is loaded."""

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tidemill.cli.formatting import relative_path
from tidemill.engine.registry import Registry
from tidemill.graphs.definition import Accumulator, AccumulatorKind
from tidemill.workflows.workflow import Workflow

FIRST_FILE = """\
import tidemill as tm

hello = tm.Workflow("hello", schedule=tm.Every("10s"))


@hello.task
def greet(ctx: tm.Context) -> None:
    ctx.log.info("hello")
"""
"""The file with which to begin in an empty folder."""

_PUSHED_KINDS = (AccumulatorKind.PASSTHROUGH, AccumulatorKind.BATCH)
_SAMPLES: Mapping[type, Any] = {int: 1, float: 1.0, str: "text", bool: True, dict: {}, list: []}


def first_steps(folder: str) -> Iterator[str]:
    """Yield how to begin in an empty folder, which is named as a shell takes it: "." is the current one."""
    target = "" if folder == "." else f" --folder {shlex.quote(os.path.join(folder, 'hello'))}"
    yield f"write a package:    tidemill package new hello{target}"
    yield "see live examples:  tidemill demo"
    yield f"or save a file:     {os.path.normpath(os.path.join(folder, 'hello.py'))}"
    yield ""
    yield from FIRST_FILE.splitlines()


def next_steps(registry: Registry, tenant: str, store: str, url: str) -> Iterator[str]:
    """Yield one line for each step that a developer can take now, with the store and the URL of the node."""
    loaded = [one for name in registry.workflows(tenant) if (one := registry.workflows.find(tenant, name))]
    if workflows := [one for one in loaded if one.handled is None]:
        option = f"--store {shlex.quote(store)}"
        yield f"start a run:    {_run_command(min(workflows, key=_is_started_elsewhere))} {option}"
        yield f"look at runs:   tidemill runs list {option}"
    if reactors := registry.reactors(tenant):
        yield f"watch it live:  tidemill --server {url} reactor watch {shlex.quote(reactors[0])}"
    if (accumulator := _find_pushed(registry, tenant)) is not None:
        yield f"push an event:  {_push_command(accumulator)} --server {url}"
    yield "change a file:  a save takes effect at once"


def _is_started_elsewhere(workflow: Workflow) -> bool:
    """Return whether a schedule or a trigger starts a workflow: one without is the better example."""
    return bool(workflow.schedules or workflow.triggers)


def _run_command(workflow: Workflow) -> str:
    """Return the command that runs a workflow, with a placeholder for each param that has no default."""
    target = shlex.quote(f"{relative_path(workflow.location.file)}:{workflow.name}")
    fields = [] if workflow.params is None else msgspec.structs.fields(workflow.params)
    params = [f"--{one.encode_name.replace('_', '-')} {one.encode_name.upper()}" for one in fields if one.required]
    return " ".join(["tidemill run", target, *params])


def _find_pushed(registry: Registry, tenant: str) -> Accumulator | None:
    """Return an accumulator whose events come from outside, rather than from a source or from a graph."""
    graphs = [graph for name in registry.graphs(tenant) if (graph := registry.graphs.find(tenant, name))]
    fed = {node.fed_accumulator for graph in graphs for node in graph.nodes}
    reactors = [reactor for name in registry.reactors(tenant) if (reactor := registry.reactors.find(tenant, name))]
    accumulators = (one for reactor in reactors for one in reactor.accumulators)
    return next((one for one in accumulators if one.kind in _PUSHED_KINDS and one.name not in fed), None)


def _push_command(accumulator: Accumulator) -> str:
    event = shlex.quote(json.dumps(_sample_event(accumulator.event_type)))
    return f"echo {event} | tidemill accumulator push {shlex.quote(accumulator.name)}"


def _sample_event(annotation: Any) -> Any:
    """Return an event of a type in JSON types, with "..." for what a developer has to fill in."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return {one.encode_name: _SAMPLES.get(one.type, "...") for one in msgspec.structs.fields(annotation)}
    return _SAMPLES.get(annotation, "...") if isinstance(annotation, type) else "..."
