"""`tm.on_output` across packages: each has its own copy of the classes, and its own lifetime."""

from pathlib import Path
from typing import Any

import pytest

import tidemill as tm

PLANT = """
import tidemill as tm


class Alert(tm.Boundary):
    sensor: str
    celsius: {kind}


@tm.passthrough
def reading(event: float) -> float:
    return event


reactor = tm.Reactor("plant", [reading])
monitor = tm.Graph("monitor", reactor=reactor)


@monitor.node
def alert(reading: float) -> Alert | None:
    return Alert(sensor="boiler", celsius=reading) if reading > 100 else None
"""
COOLING = """
import tidemill as tm


class Alert(tm.Boundary):
    sensor: str
    celsius: {kind}


def is_hot(alert: Alert) -> bool:
    return isinstance(alert, Alert) and alert.celsius > 110


cool = tm.Workflow("cool", params=Alert, triggers=[tm.on_output("monitor", "alert", when=is_hot)])


@cool.task
def act(params: Alert) -> str:
    return f"{{params.sensor}} {{params.celsius:g}}"
"""


def package(folder: Path, name: str, source: str, kind: str = "float", version: str = "1.0.0") -> Path:
    """Write a package whose only module is `plant`, so that its classes have the same qualified names elsewhere."""
    path = folder / name
    path.mkdir(exist_ok=True)
    manifest = f'[package]\nname = "{name}"\nversion = "{version}"\nmodules = ["plant"]\n'
    (path / "package.toml").write_text(manifest)
    (path / "plant.py").write_text(source.format(kind=kind))
    return path


async def outputs(node: Any) -> list[Any]:
    """Return what the tasks of the runs returned."""
    return [(await run.state()).outputs["act"] for run in reversed(await node.runs("cool"))]


async def test_a_workflow_follows_a_graph_of_another_package(tmp_path: Path) -> None:
    """api.md: by name across packages; compared by qualified name and fields, and converted to the own class."""
    async with tm.testing.node() as node:
        cooling = package(tmp_path, "cooling", COOLING)
        with pytest.raises(tm.DefinitionError, match=r"plant.py:\d+: on_output.*no graph 'monitor': load it"):
            await node.load(cooling)
        await node.load(package(tmp_path, "plant", PLANT))
        await node.load(cooling)
        await node.push("reading", 105.0)
        await node.push("reading", 120.0)
        await node.settle()
        assert await outputs(node) == ["boiler 120"]
        with pytest.raises(tm.RequestError, match=r"graph 'monitor' has 1 bound subscriber\(s\): \['cool'\]"):
            await node.unload("plant")
        with pytest.raises(tm.RequestError, match=r"node 'alert' returns plant\.Alert, and"):
            await node.load(package(tmp_path, "plant", PLANT, kind="str", version="1.0.1"))
        await node.load(package(tmp_path, "plant", PLANT.replace('"boiler"', '"pump"'), version="1.0.2"))
        await node.push("reading", 130.0)
        await node.settle()
        assert await outputs(node) == ["boiler 120", "pump 130"]


async def test_a_class_with_other_fields_is_another_class(tmp_path: Path) -> None:
    """api.md: the schema counts, not only the name."""
    async with tm.testing.node() as node:
        await node.load(package(tmp_path, "plant", PLANT))
        with pytest.raises(
            tm.DefinitionError, match=r"returns plant\.Alert, and .*field 'celsius' is float there and int"
        ):
            await node.load(package(tmp_path, "cooling", COOLING, kind="int"))


async def test_a_package_waits_for_the_graph_that_it_follows(tmp_path: Path) -> None:
    """P-5: it says what it waits for, and loads when that is there."""
    package(tmp_path, "cooling", COOLING)
    async with tm.testing.node() as node:
        reconciler = await node.watch_folder(tmp_path)
        await reconciler.wait_until_settled()
        assert [one.waiting_for for one in node.packages()] == [("graph 'monitor'",)]
    package(tmp_path, "plant", PLANT)
    async with tm.testing.node() as node:
        await (await node.watch_folder(tmp_path)).wait_until_settled()
        assert node.registry.workflows() == ["cool"]
