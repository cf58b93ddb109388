"""Twins: two classes that list the same fields. What one of them learns, the other one forgets."""

import ast
from itertools import combinations
from typing import NamedTuple

from tests.architecture.sources import listing, modules

FEWEST_FIELDS = 4
SHARE = 0.7
LIMIT = 25
"""The number of twins today. It may only go down: twelve remain, each with a reason."""
WRITTEN = "tidemill.client.synchronous"
"""A program writes these modules from others."""


class Declared(NamedTuple):
    """A class with the fields that it declares itself."""

    name: str
    where: str
    fields: frozenset[str]
    bases: frozenset[str]


def declared_classes() -> list[Declared]:
    """Return every class of the product."""
    return [
        Declared(
            node.name,
            module.where(node.lineno),
            frozenset(ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)),
            frozenset(ast.unparse(one).partition("[")[0].rpartition(".")[2] for one in node.bases),
        )
        for module in modules()
        if not module.name.startswith(WRITTEN)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    ]


def ancestors(one: Declared, classes: dict[str, Declared]) -> set[str]:
    """Return the names of the classes that a class inherits, directly or not."""
    found: set[str] = set()
    waiting = set(one.bases)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting |= classes[name].bases if name in classes else set()
    return found


def twins() -> list[tuple[Declared, Declared]]:
    """Return the pairs that share most of their fields, unless one inherits the other."""
    known = declared_classes()
    by_name = {one.name: one for one in known}
    large = [one for one in known if len(one.fields) >= FEWEST_FIELDS]
    return [
        (one, other)
        for one, other in combinations(large, 2)
        if len(one.fields & other.fields) >= SHARE * max(len(one.fields), len(other.fields))
        and one.name not in ancestors(other, by_name)
        and other.name not in ancestors(one, by_name)
    ]


def test_no_twin_is_added() -> None:
    """Embed or inherit the other struct, or answer with it."""
    found = [f"{one.where} {one.name} and {other.where} {other.name}" for one, other in twins()]
    assert len(found) <= LIMIT, listing(found)
