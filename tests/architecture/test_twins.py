"""Twins: two classes that list the same fields. What one of them learns, the other one forgets."""

import ast
from itertools import combinations
from typing import NamedTuple

from tests.architecture.sources import listing, modules

FEWEST_FIELDS = 4
SHARE = 0.7
ALLOWED = {
    ("AccountRow", "Account"): "the message leaves out how often a person failed to sign in",
    ("ApiKey", "Key"): "resources are values in the domain, and texts on the wire",
    ("ErrorReport", "CallError"): "two wires: an error of another node names its class, an error of a call does not",
    ("Firing", "FiringView"): "an author reads his own objects in the one, and plain values in the other",
    ("JournalStep", "JournalRecord"): "the journal holds objects, its stored form their bytes",
    ("NodeEvent", "FeedEvent"): "a node numbers its events; readers get the id of a place in two sequences",
    ("NodeInputView", "Edge"): "wiring holds parameters and classes, a view their names",
    ("Parameter", "RequestField"): "what author code declares, and what a request carries and where",
    ("PendingFiring", "StoredFiring"): "the one holds inputs and graphs, its stored form bytes and names",
    ("ProcessStatus", "UnitStatus"): "Ray's gateway knows processes, of hosts too; launchers know units of attempts",
    ("RunTransition", "EventRow"): "the row says whose event it is, the message its place in the history of one run",
    ("Transition", "RunEvent"): "the planner decides on one, the store keeps the other, with its attempt, as an array",
}
"""The twins that remain, each with its reason."""
LIMIT = 12
"""The table may only shrink."""
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
    allowed = {frozenset(pair) for pair in ALLOWED}
    found = [
        f"{one.where} {one.name} and {other.where} {other.name}"
        for one, other in twins()
        if frozenset((one.name, other.name)) not in allowed
    ]
    assert not found, listing(found)


def test_the_table_of_twins_is_short_and_current() -> None:
    """A pair that is not alike now leaves the table."""
    found = {frozenset((one.name, other.name)) for one, other in twins()}
    assert len(ALLOWED) <= LIMIT
    assert not [pair for pair in ALLOWED if frozenset(pair) not in found]
