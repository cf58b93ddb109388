"""Objects get their collaborators when they are made; nobody assigns them later."""

import ast
from collections.abc import Iterator

from tests.architecture.sources import house, listing, modules
from tidemill.node import Node

NOTED = {
    "is_open": "the admission of the leader, which its slots open and close",
    "paused": "the same",
    "lag": "what a source reports about itself",
    "gap": "what a file has reported, and a source has passed on",
    "transactor": "faults of a test",
    "leases": "the same",
    "limits": "the same",
    "required": "what a derived handler takes, in the terms of Litestar",
}
"""Attributes of parts that their owner assigns: states, not collaborators."""
ROOT_MODULES = ("node", "node_arguments", "node_operations", "node_parts", "worker", "host", "script", "testing.node")


def test_no_object_assigns_an_attribute_of_its_parts() -> None:
    """docs/design, 0097: what a part needs is an argument of its constructor, and what happens to it is a method."""
    offenders = [
        f"{module.where(line)} {ast.unparse(target)}"
        for module in modules()
        if not module.name.startswith("tidemill.engine.graphs.")
        for line, target in assigned_attributes(module.tree)
        if is_part(target.value) and target.attr not in NOTED.keys() | declared_attributes(module.tree)
    ]
    assert not offenders, listing(offenders)


def test_the_composition_root_assigns_no_attribute_of_what_it_has_made() -> None:
    """docs/design, 0097: the parts of a node are complete, each when the next one is made of it."""
    offenders = [
        f"{module.where(line)} {ast.unparse(target)}"
        for module in modules()
        if module.name.removeprefix("tidemill.") in ROOT_MODULES
        for line, target in assigned_attributes(module.tree)
        if not (isinstance(target.value, ast.Name) and target.value.id == "self")
    ]
    assert not offenders, listing(offenders)


def test_no_kind_of_node_overrides_what_makes_a_part() -> None:
    """docs/design, 0097: a kind of node is a profile."""
    kinds = {name for name in house().classes if Node.__name__ in house().ancestors(name)}
    assert {"WorkerNode", "HostNode", "ScriptNode", "ServerNode", "TestNode"} <= kinds
    makers = {name: [one for one in house().classes[name].methods if one.startswith("_make_")] for name in kinds}
    inherited = {one for name in kinds for base in house().ancestors(name) for one in house().classes[base].methods}
    assert {name: found for name, found in makers.items() if set(found) & inherited} == {}


def assigned_attributes(tree: ast.AST) -> Iterator[tuple[int, ast.Attribute]]:
    """Yield the attributes that are assigned, of whatever object."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else targets
        for target in targets:
            for one in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                if isinstance(one, ast.Attribute):
                    yield one.lineno, one


def is_part(node: ast.expr) -> bool:
    """Return whether an expression is an attribute of the object itself, or one of these."""
    return isinstance(node, ast.Attribute) and (
        (isinstance(node.value, ast.Name) and node.value.id == "self") or is_part(node.value)
    )


def declared_attributes(tree: ast.AST) -> set[str]:
    """Return the attributes that classes of a module declare: a module may change its own records."""
    own = {
        one.attr for _, one in assigned_attributes(tree) if isinstance(one.value, ast.Name) and one.value.id == "self"
    }
    fields = (one for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for one in node.body)
    return own | {
        one.target.id for one in fields if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
