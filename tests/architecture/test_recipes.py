"""Recipes name the files that a change touches, and no other file knows what the change is about."""

import ast
import re
from collections.abc import Callable
from inspect import signature
from typing import get_overloads

import pytest

import tidemill as tm
from tests.architecture.sources import ROOT, house, listing, modules
from tidemill import sources
from tidemill.api.triggers import TriggerInfo
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.graphs.definition import AccumulatorKind
from tidemill.kernel.settings import Settings
from tidemill.telemetry.metrics import Metric
from tidemill.workflows.firing_trigger import FiringTrigger
from tidemill.workflows.records import RunRow
from tidemill.workflows.task_options import OPTION_NAMES, OPTION_READERS
from tidemill.workflows.workflow import Workflow

PAGE = ROOT / "docs" / "development" / "recipes.md"
MANY = 5
"""A struct, a call or a mapping that names as many options of tasks lists them; a row of a task run has four."""

FILES = {
    "Add an accumulator kind, end to end": 10,
    "Add a source, end to end": 2,
    "Add a durability, end to end": 3,
    "Add an executor, end to end": 4,
    "Add an option of tasks": 3,
    "Add a kind of trigger": 3,
    "Add a run state": 5,
    "Add a column to a run": 6,
    "Add a metric": 2,
    "Add a setting": 3,
    "Add an operator command of reactors": 7,
    "Add an operation: a route, client methods and a command": 2,
}
"""The everyday changes, and the source files that each takes at most, written by hand."""
COLUMNS = 9
"""A struct or a call that names as many columns of runs lists them."""
OPTIONS = 5
"""The same for settings."""

FORCED = "force_fire"
SOURCE_MODULES = {getattr(sources, name).__module__ for name in sources.__all__} - {"tidemill.sources.interface"}


def recipe(title: str) -> str:
    """Return the text of one recipe."""
    return PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]


def source_files(title: str) -> set[str]:
    """Return the source files that a recipe names."""
    return set(re.findall(r"`(src/[\w/.]+\.py)`", recipe(title)))


def named_by(node: ast.AST) -> set[str]:
    """Return the names that a class declares, a call passes, a function takes or a mapping has."""
    match node:
        case ast.ClassDef():
            return {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
        case ast.Call():
            return {one.arg for one in node.keywords if one.arg is not None}
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
        case ast.Dict():
            return {str(one.value) for one in node.keys if isinstance(one, ast.Constant)}
    return set()


def test_every_file_of_a_recipe_exists() -> None:
    """A recipe that names a file that was moved leads nowhere."""
    named = re.findall(r"`((?:src|docs|tests|scripts|ui)/[\w/.-]+\.\w+)`", PAGE.read_text(encoding="utf-8"))
    missing = [path for path in named if not re.search("NAME|NNNN", path) and not (ROOT / path).exists()]
    assert not missing, listing(missing)


@pytest.mark.parametrize("title", FILES)
def test_an_everyday_change_takes_few_files(title: str) -> None:
    """A recipe that grows says that a fact is written down once more."""
    by_row = house().recipe(title) or sorted(source_files(title))
    assert 0 < len(by_row) <= FILES[title], by_row


def test_columns_of_runs_are_listed_in_the_files_of_their_recipe() -> None:
    """A column that another file lists would be forgotten there."""
    columns = set(RunRow.__struct_fields__)
    listing_them = _modules_with(lambda node: len(columns & named_by(node)) >= COLUMNS)
    assert listing_them <= source_files("Add a column to a run")


def test_settings_are_listed_in_one_file() -> None:
    """A setting is a field with its default; what acts on it reads it from there."""
    names = set(Settings.__struct_fields__)
    assert _modules_with(lambda node: len(names & named_by(node)) >= OPTIONS) == source_files("Add a setting")


def test_executors_are_named_in_the_files_of_their_recipe() -> None:
    """Planning, retries and reapers refer to executors by the names that tasks have; one executor stands for all."""
    named = {one for one in _modules_with(_imports_in_process) if not one.startswith("src/tidemill/testing/")}
    assert named <= source_files("Add an executor, end to end")
    assert "src/tidemill/node_arguments.py" in named


def _imports_in_process(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and any(one.name == InProcess.__name__ for one in node.names)


def test_options_of_tasks_are_listed_in_the_files_of_their_recipe() -> None:
    """A new option is a field and its reader, a parameter for type checkers, and its use."""
    options = set(OPTION_NAMES)
    files = {
        str(module.path.relative_to(ROOT))
        for module in modules()
        if any(len(options & named_by(node)) >= MANY for node in ast.walk(module.tree))
    }
    assert files == source_files("Add an option of tasks")


def test_every_option_of_a_task_is_read_and_can_be_passed() -> None:
    """What `Workflow.task` takes is what tasks have."""
    (declared,) = (one for one in get_overloads(Workflow.task) if "each" in signature(one).parameters)
    assert tuple(OPTION_READERS) == OPTION_NAMES
    assert set(OPTION_NAMES) < set(signature(declared).parameters)


def test_kinds_of_triggers_are_known_by_their_interface() -> None:
    """A new kind that observes firings is a module; only the package, which offers it to authors, names it."""
    kinds = {one.__module__ for one in FiringTrigger.__subclasses__()}
    assert {"tidemill.workflows.on_firing", "tidemill.workflows.on_output"} <= kinds
    knowing = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module in kinds
    }
    assert knowing == {"tidemill"}


@pytest.mark.parametrize("trigger", [tm.on_firing("market"), tm.on_output("maker", "place")])
def test_every_fact_of_a_trigger_is_a_field_of_the_api(trigger: FiringTrigger) -> None:
    """Else a page could not say what starts the workflow."""
    assert set(trigger.facts()) < set(TriggerInfo.__struct_fields__)


def _modules_with(wanted: Callable[[ast.AST], bool]) -> set[str]:
    """Return the paths of the modules in whose code some node is one that is looked for."""
    return {
        str(module.path.relative_to(ROOT))
        for module in modules()
        if any(wanted(node) for node in ast.walk(module.tree))
    }


def _is_kind(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node.value) == AccumulatorKind.__name__


def test_kinds_of_accumulators_are_named_in_the_files_of_their_recipe() -> None:
    """A new kind that another file tells from the others would be forgotten there."""
    assert _modules_with(_is_kind) | {"src/tidemill/__init__.py"} == source_files("Add an accumulator kind, end to end")


def _is_metric(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == Metric.__name__


def test_metrics_are_rows_in_the_files_of_their_recipe() -> None:
    """A metric is described once."""
    assert _modules_with(_is_metric) == source_files("Add a metric")


def _names_a_command(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return text == FORCED
        case ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name == FORCED
    return False


def test_commands_of_reactors_are_named_in_the_files_of_their_recipe() -> None:
    """One command stands for all."""
    assert _modules_with(_names_a_command) <= source_files("Add an operator command of reactors")


def test_sources_and_durabilities_are_known_by_their_interface() -> None:
    """No component compares the name of a durability, and the engine knows no source by name."""
    compared = {
        module.where(node.lineno)
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Compare) and "durability" in ast.unparse(node.left).rpartition(".")[2]
        if any(isinstance(one, ast.Constant) and one.value is not None for one in node.comparators)
    }
    places = {where.partition(":")[0] for where in compared}
    assert places <= source_files("Add a durability, end to end"), compared
    named = {
        f"{module.name} imports {node.module}"
        for module in modules()
        if module.name.startswith("tidemill.engine.")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module in SOURCE_MODULES
    }
    assert not named
