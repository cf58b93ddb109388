"""Recipes name the files that a change touches, and no other file knows what the change is about."""

import ast
import re
from inspect import signature
from typing import get_overloads

import pytest

import tidemill as tm
from tests.architecture.sources import ROOT, listing, modules
from tidemill.api.triggers import TriggerInfo
from tidemill.workflows.firing_trigger import FiringTrigger
from tidemill.workflows.task_options import OPTION_NAMES, OPTION_READERS
from tidemill.workflows.workflow import Workflow

PAGE = ROOT / "docs" / "development" / "recipes.md"
MANY = 5
"""A struct, a call or a mapping that names as many options of tasks lists them; a row of a task run has four."""


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
