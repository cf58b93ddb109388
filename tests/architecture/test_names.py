"""Names say what is inside, each class has a name of its own, and imports are at the top."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import ROOT, SRC, Module, listing, modules

BANNED = {"utils", "helpers", "common", "misc", "base"}
FOLDERS = ("src", "tests", "examples", "benchmarks")
COMMANDS = SRC / "tidemill" / "cli" / "commands"
HELP_MODULES = {
    COMMANDS.parent / f"{name}.py"
    for name in (
        "completions",
        "derive",
        "event_loop",
        "formatting",
        "lazy_commands",
        "opening",
        "output",
        "stores",
        "targets",
    )
}
"""Modules that commands import for their declarations: `tidemill --help` waits for everything at their top."""
EXTRA = "# extra:"
ON_USE = "# on use:"
"""Marks an import of a large library that few processes need, with the reason: a start must not wait for it."""
DATABASES = {"memory", "sqlite", "postgres"}
SAME_IDEA = {
    "Workflow": "the public class is the one of the domain, plus `run`",
    "Context": "the public class is the one of the domain, plus types for checkers",
    "ReactorHandle": "a node reads its memory, a client asks the server: the same verbs, which test_handles compares",
    "_Wirer": "wires a graph, or a workflow",
    "_ConsumerSession": "one session with a broker, Kafka or NATS",
}
"""Names that two classes share because they are the same idea; both are private, or one is the other's base class."""
RENAME_PENDING = {
    "Signature": "of a function in annotations, of a package in packages",
    "Turning": "two meanings in engine/graphs",
}
"""Names that two classes share by mistake. Nothing may be added here: rename one of the two."""


def test_no_module_or_folder_has_an_empty_name() -> None:
    """Q-1: a name such as `utils` says nothing about its contents."""
    offenders = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in python_paths(ROOT / folder)
        if BANNED & set(path.stem.split("_"))
    ]
    assert not offenders, listing(offenders)


def test_no_import_hides_in_a_function() -> None:
    """Q-1: imports are at the top, except in CLI commands, in what their help imports, and where marked."""
    offenders = [
        f"{module.where(node.lineno)} {ast.unparse(node)}"
        for module in modules()
        if COMMANDS not in module.path.parents and module.path not in HELP_MODULES
        for node in deferred_imports(module)
        if not is_marked(module, node)
    ]
    assert not offenders, listing(offenders)


def test_no_two_classes_share_a_name() -> None:
    """A reader who knows one class would take the other one for it. Each database may have its own."""
    modules_of_class = class_modules()
    offenders = [
        f"{name}: {', '.join(sorted(names))}"
        for name, names in sorted(modules_of_class.items())
        if len(names) > 1 and name not in SAME_IDEA.keys() | RENAME_PENDING.keys() and not are_databases(names)
    ]
    assert not offenders, listing(offenders)


def test_the_list_of_shared_names_is_short_and_current() -> None:
    """A name that is no longer shared leaves the list."""
    assert len(SAME_IDEA) <= 5
    modules_of_class = class_modules()
    assert not [name for name in SAME_IDEA if len(modules_of_class[name]) < 2]


def class_modules() -> dict[str, list[str]]:
    """Return the modules that define a class of each name."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module.name)
    return found


def are_databases(names: list[str]) -> bool:
    """Return whether each module belongs to another database."""
    folders = [name.split(".")[2] for name in names if name.startswith("tidemill.storage.")]
    return len(folders) == len(names) == len(set(folders)) and set(folders) <= DATABASES


def python_paths(top: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, and the folders that contain them."""
    files = set(top.rglob("*.py"))
    folders = {parent for file in files for parent in file.parents if top in parent.parents}
    yield from sorted(files | folders)


def deferred_imports(module: Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports inside functions, each once, at any depth."""
    inside = {
        node
        for function in module.functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    yield from sorted(inside, key=lambda node: node.lineno)


def is_marked(module: Module, node: ast.Import | ast.ImportFrom) -> bool:
    """Return whether the import is marked as one of an optional extra, or of a library that few processes need."""
    line = module.lines[node.lineno - 1]
    return EXTRA in line or ON_USE in line


def test_no_callback_is_assigned_to_a_finished_object() -> None:
    """What an object calls is given to its constructor, or it listens: an assignment later is easily forgotten.

    A future is not a part of the program: who submits a unit of work says what follows it.
    """
    offenders = [
        module.where(target.lineno)
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign)
        for assigned in node.targets
        for target in (assigned.elts if isinstance(assigned, ast.Tuple) else [assigned])
        if isinstance(target, ast.Attribute)
        and target.attr.startswith("on_")
        and not (isinstance(target.value, ast.Name) and target.value.id in ("self", "future"))
    ]
    assert not offenders, listing(offenders)
