"""The source tree of the architecture tests: every module, parsed once."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.measure import House

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file."""

    path: Path
    lines: tuple[str, ...]
    tree: ast.Module

    @property
    def name(self) -> str:
        """Return its dotted import name."""
        return ".".join(self.path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")

    @property
    def functions(self) -> Iterator[FunctionNode]:
        """Yield every function, methods and nested ones included."""
        return (node for node in ast.walk(self.tree) if isinstance(node, FunctionNode))

    def where(self, line: int) -> str:
        """Return the location of a line as path:line."""
        return f"{self.path.relative_to(ROOT)}:{line}"


@cache
def house() -> House:
    """Return the code that `make measure` measures."""
    return House()


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of the package."""
    return tuple(Module(path, tuple(text.splitlines()), house().trees[path]) for path, text in house().texts.items())


def listing(offenders: list[str]) -> str:
    """Return offenders as a readable failure message, one per line."""
    return "\n".join(["", *offenders])
