"""Measures the shape of the code: how much of it there is, what it repeats, and how deep it is nested.

`make measure` prints the measures next to what they shall become. `tests/architecture/test_measures.py` holds what is
reached. Classes are known by their names, which no two share.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

FRAGMENT = 60
"""A file of at most as many lines is a fragment: its reader has to open the next one."""
FEWEST_FIELDS, SHARE = 4, 0.7
"""Two classes of as many fields that share this part of them say the same thing twice."""
VERB = "timeseries"
"""One read of a reactor stands for all of its verbs."""
WRITTEN = "client/synchronous/"
"""A program writes these modules from others, so their classes repeat those."""
PUBLIC_PACKAGES = tuple(f"src/tidemill/{one}/__init__.py" for one in (".", "client", "testing"))
"""What programs import. How many methods a public class has is decided by what it is for, and counted apart."""
ROW = re.compile(r"^\| (.+?) \|", re.MULTILINE)
BY_HAND = re.compile(r"^(?:the (?:module|service)|one of the)\b|`src/[^`]+`")

AIMS = {
    "source lines": 86_000,
    "source files": 560,
    "files of at most 60 lines": 110,
    "twins": 12,
    "files of one verb of reactors": 3,
    "methods on one object": 40,
    "methods of the public API on one object": 75,
    "depth of inheritance": 3,
    "depth of errors": 4,
    "lines of the longest function": 40,
    "files of: route, client and command": 2,
    "files of: operator command": 4,
    "files of: visible column": 6,
    "files of: task option": 3,
    "files of: trigger kind": 9,
}
"""What each measure shall be at most."""

RECIPES = {
    "files of: route, client and command": "Add an operation: a route, client methods and a command",
    "files of: operator command": "Add an operator command of reactors",
    "files of: visible column": "Add a column to a run",
    "files of: task option": "Add an option of tasks",
    "files of: trigger kind": "Add a kind of trigger",
}


class Declared(NamedTuple):
    """A class with what it declares itself."""

    name: str
    where: str
    fields: frozenset[str]
    methods: frozenset[str]
    bases: frozenset[str]


class Measured(NamedTuple):
    """A measure of the code, and where the code is that has it."""

    name: str
    value: int
    where: str = ""


class House:
    """The source code of a tree, read once."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "src").rglob("*.py"))}
        self.trees = {path: ast.parse(text) for path, text in self.texts.items()}

    @cached_property
    def classes(self) -> dict[str, Declared]:
        """Every class, by its name; of a written module and its source, the source."""
        found: dict[str, Declared] = {}
        for path, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and WRITTEN not in path.as_posix():
                    found.setdefault(node.name, self._declared(path, node))
        return found

    def _declared(self, path: Path, node: ast.ClassDef) -> Declared:
        return Declared(
            node.name,
            f"{path.relative_to(self.root)}:{node.lineno}",
            frozenset(ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)),
            frozenset(one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)),
            frozenset(ast.unparse(one).partition("[")[0].rpartition(".")[2] for one in node.bases) - {node.name},
        )

    def ancestors(self, name: str) -> set[str]:
        """Return the classes of the tree that a class inherits, directly or not."""
        found: set[str] = set()
        waiting = set(self.classes[name].bases)
        while waiting:
            base = waiting.pop()
            if base not in found and base in self.classes:
                found.add(base)
                waiting |= self.classes[base].bases
        return found

    def depth(self, name: str) -> int:
        """Return how many classes of the tree are above one another, down to this one."""
        bases = self.classes[name].bases & set(self.classes)
        return 1 + max((self.depth(base) for base in bases), default=0)

    def is_error(self, name: str) -> bool:
        """Return whether a class is an exception: those form a tree that callers catch, and have no behaviour."""
        return bool({"BaseException", "Exception"} & self.classes[name].bases.union(*self._bases_of_ancestors(name)))

    def _bases_of_ancestors(self, name: str) -> Iterator[frozenset[str]]:
        return (self.classes[base].bases for base in self.ancestors(name))

    @cached_property
    def public_classes(self) -> set[str]:
        """The classes that the public packages export, and those that they inherit."""
        statements = (node for package in PUBLIC_PACKAGES for node in self.trees[self.root / package].body)
        exported = {name for node in statements if isinstance(node, ast.Assign) for name in _exported_by(node)}
        exported &= set(self.classes)
        return exported.union(*(self.ancestors(name) for name in exported))

    def _line(self, name: str) -> set[str]:
        return self.ancestors(name) | {name}

    def public_methods(self, name: str) -> set[str]:
        """Return the methods of an object that programs call."""
        found = (method for one in self._line(name) & self.public_classes for method in self.classes[one].methods)
        return {method for method in found if not method.startswith("_")}

    def methods(self, name: str) -> int:
        """Return how many methods an object of a class has, apart from those that the public API demands."""
        found = {method for one in self._line(name) for method in self.classes[one].methods}
        return len(found - self.public_methods(name))

    def twins(self) -> list[tuple[Declared, Declared]]:
        """Return the pairs of classes that share most of their fields, unless one inherits the other."""
        large = [one for one in self.classes.values() if len(one.fields) >= FEWEST_FIELDS]
        return [
            (one, other)
            for one, other in combinations(large, 2)
            if len(one.fields & other.fields) >= SHARE * max(len(one.fields), len(other.fields))
            and one.name not in self.ancestors(other.name)
            and other.name not in self.ancestors(one.name)
        ]

    def fragments(self) -> list[Path]:
        """Return the files of few lines."""
        return [path for path, text in self.texts.items() if len(text.splitlines()) <= FRAGMENT]

    def spelling(self, verb: str) -> list[Path]:
        """Return the files that declare a function, or call one of its name."""
        return [path for path, tree in self.trees.items() if any(_spells(node, verb) for node in ast.walk(tree))]

    def longest_functions(self, count: int = 5) -> list[tuple[int, str]]:
        """Return the longest functions: their lines without the docstring, and where they are."""
        found = [
            (function_length(node), f"{path.relative_to(self.root)}:{node.lineno} {node.name}")
            for path, tree in self.trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        return sorted(found, reverse=True)[:count]

    def recipe(self, title: str) -> list[str]:
        """Return the source files that a change takes, by the rows of its recipe."""
        page = (self.root / "docs" / "development" / "recipes.md").read_text(encoding="utf-8")
        text = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        return [file for row in ROW.findall(text) for file in BY_HAND.findall(row)]

    def measures(self) -> Iterator[Measured]:
        """Yield the measures, in the order of their aims."""
        yield Measured("source lines", sum(len(text.splitlines()) for text in self.texts.values()))
        yield Measured("source files", len(self.texts))
        yield Measured("files of at most 60 lines", len(self.fragments()))
        yield Measured("twins", len(self.twins()))
        yield Measured("files of one verb of reactors", len(self.spelling(VERB)), VERB)
        methods, largest = max((self.methods(name), name) for name in self.classes)
        yield Measured("methods on one object", methods, largest)
        methods, largest = max((len(self.public_methods(name)), name) for name in self.classes)
        yield Measured("methods of the public API on one object", methods, largest)
        errors = {name for name in self.classes if self.is_error(name)}
        depth, deepest = max((self.depth(name), name) for name in self.classes.keys() - errors)
        yield Measured("depth of inheritance", depth, deepest)
        depth, deepest = max((self.depth(name), name) for name in errors)
        yield Measured("depth of errors", depth, deepest)
        length, longest = self.longest_functions(1)[0]
        yield Measured("lines of the longest function", length, longest)
        for name, title in RECIPES.items():
            yield Measured(name, len(self.recipe(title)))


def function_length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines from `def` to the end, without the docstring."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return lines
    docstring = function.body[0]
    assert docstring.end_lineno is not None
    return lines - (docstring.end_lineno - docstring.lineno + 1)


def _spells(node: ast.AST, verb: str) -> bool:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name == verb
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name == verb
    return False


def _exported_by(node: ast.Assign) -> list[str]:
    is_list = any(isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets)
    return ast.literal_eval(node.value) if is_list else []


def render(house: House) -> str:
    """Return the measures as a table, and the longest functions below it."""
    rows = [f"{one.name:40} {one.value:>7,} {AIMS[one.name]:>7,}   {one.where}".rstrip() for one in house.measures()]
    longest = [f"{length:>5}  {where}" for length, where in house.longest_functions()]
    return "\n".join([f"{'':40} {'now':>7} {'aim':>7}", *rows, "", "lines of the longest functions", *longest])


if __name__ == "__main__":
    print(render(House(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)))
