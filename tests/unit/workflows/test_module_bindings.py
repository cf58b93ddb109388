"""Module bindings: what the source of a module binds to each name, parsed once."""

import ast
import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from weakref import ref

import pytest

from tidemill.packages.loading.reader import import_module
from tidemill.workflows.module_bindings import Definition, ModuleBindings, read_bindings

SOURCE = '''
def mark(function): return function

@mark
@mark
def décorée(value: str = "é") -> str:
    return """
é""" + value

a = "é"; b = 2 ; c = (
    3)

if a:
    import os as system
    d = 4
else:
    d = 5

class Thing:
    own = 1

(e := 6)
'''


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    """Import a module with every kind of statement."""
    (tmp_path / "bound.py").write_text(SOURCE)
    yield import_module(str(tmp_path / "bound.py"))
    sys.modules.pop("bound", None)


def texts(bindings: ModuleBindings) -> dict[str, str]:
    """Return the syntax of the definitions, by name."""
    return {name: one.syntax.text for name, (one, *_) in bindings.items() if isinstance(one, Definition)}


def test_a_statement_keeps_its_syntax(module: ModuleType) -> None:
    """With its decorators, and without the statements on the same line."""
    expected = {}
    for statement in ast.parse(SOURCE).body:
        match statement:
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.Assign([ast.Name(name)]):
                expected[name] = ast.dump(statement)
            case ast.If() | ast.Expr():
                expected["d" if isinstance(statement, ast.If) else "e"] = ast.dump(statement)
    assert texts(read_bindings(module)) == expected


def test_an_import_inside_a_statement_is_an_import(module: ModuleType) -> None:
    [statement] = read_bindings(module)["system"]
    assert isinstance(statement, ast.Import)


def test_the_names_of_a_statement_include_attributes_and_decorators(module: ModuleType) -> None:
    [thing] = read_bindings(module)["décorée"]
    assert isinstance(thing, Definition)
    assert thing.syntax.names == {"mark", "str", "value"}


def test_a_module_is_parsed_once(module: ModuleType) -> None:
    assert read_bindings(module) is read_bindings(module)


def test_a_module_that_is_reloaded_by_hand_is_parsed_again(module: ModuleType, tmp_path: Path) -> None:
    """It remains the same object."""
    before = texts(read_bindings(module))
    (tmp_path / "bound.py").write_text(SOURCE.replace("e := 6", "e := 77"))
    os.utime(tmp_path / "bound.py", (1, 1))
    spec = importlib.util.spec_from_file_location("bound", tmp_path / "bound.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module)
    after = texts(read_bindings(module))
    assert {name for name in after if after[name] != before[name]} == {"e"}


def test_bindings_go_with_their_module(tmp_path: Path) -> None:
    """P-6: reloads leave nothing behind."""
    (tmp_path / "gone.py").write_text("a = 1\n")
    module = import_module(str(tmp_path / "gone.py"))
    [binding] = read_bindings(module)["a"]
    assert isinstance(binding, Definition)
    kept = ref(binding)
    del sys.modules["gone"], module, binding
    gc.collect()
    assert kept() is None


def test_a_module_without_source_has_no_bindings() -> None:
    assert read_bindings(sys) == {}
