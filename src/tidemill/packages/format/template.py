"""The template of a new package: small, and working."""

from pathlib import Path

from tidemill.kernel.errors import DefinitionError, OperationError, RequestError
from tidemill.packages.format.manifest import MANIFEST_FILE, check_package_name
from tidemill.packages.format.versions import running_tidemill

_MANIFEST_TEMPLATE = """\
[package]
name = "{name}"
version = "0.1.0"
modules = ["{name}"]
requires-python = ">=3.11"
requires-tidemill = ">={tidemill}"

# Other tenants may bind to a reactor that is shared:
# [reactors.{name}_readings]
# shared = true

# What the code says about a task can be changed here:
[tasks."{name}_report.publish"]
retries = 3
timeout = "1m"
"""

_MODULE_TEMPLATE = '''\
"""An example: readings come in, a graph judges them, and a workflow reports."""

import tidemill as tm


class Reading(tm.Boundary):
    celsius: float


class Alarm(tm.Boundary):
    text: str


@tm.passthrough
def sensor(event: Reading) -> Reading | None:
    return event if event.celsius > -273.15 else None


readings = tm.Reactor("{name}_readings", [sensor])
watch = tm.Graph("{name}_watch", reactor=readings)


@watch.node
def judge(sensor: Reading) -> Alarm | None:
    return Alarm(f"{{sensor.celsius}} degrees") if sensor.celsius > 90 else None


@watch.node
def ring(judge: Alarm) -> str:
    return judge.text


report = tm.Workflow("{name}_report")


@report.task
def collect() -> list[float]:
    return [20.0, 95.0]


@report.task
def publish(collect: list[float]) -> str:
    return f"{{len(collect)}} readings, at most {{max(collect)}} degrees"
'''

_TEST_TEMPLATE = '''\
"""Run it with `python -m pytest`."""

import {name}


def test_the_graph_rings_when_it_is_hot() -> None:
    assert {name}.watch(sensor={name}.Reading(95.0)).outputs == {{"ring": "95.0 degrees"}}
    assert {name}.watch(sensor={name}.Reading(20.0)).outputs == {{}}


def test_the_workflow_reports() -> None:
    assert {name}.report.run().outputs["publish"] == "2 readings, at most 95.0 degrees"
'''


def write_skeleton(name: str, folder: Path) -> list[Path]:
    """Write the files of a new package; nothing is written if one of them exists."""
    try:
        check_package_name(name)
    except ValueError as error:
        raise DefinitionError.single("package", str(error)) from error
    texts = {MANIFEST_FILE: _MANIFEST_TEMPLATE, f"{name}.py": _MODULE_TEMPLATE, f"test_{name}.py": _TEST_TEMPLATE}
    filled = {one: text.format(name=name, tidemill=running_tidemill()) for one, text in texts.items()}
    if taken := [str(folder / one) for one in filled if (folder / one).exists()]:
        are = "are" if len(taken) > 1 else "is"
        message = f"{', '.join(taken)} {are} there already: name another folder with --folder"
        raise RequestError(message, code="file_exists", status=409)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one, text in filled.items():
            (folder / one).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OperationError(f"{folder} could not be written: {error}") from error
    return [folder / one for one in filled]
