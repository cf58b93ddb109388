"""The probes of `tm.testing` show what engine parts show themselves."""

import ast
from collections.abc import Iterator

from tests.architecture.sources import Module, listing, modules

ENTRANCES = {"_packages", "_run_store", "_scheduler", "_workflows"}
"""The parts of a node, which programs do not see: a probe is made of them."""


def _private_reads(module: Module) -> Iterator[str]:
    """Yield the private attributes that a module reads of other objects than its own."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        is_entrance = isinstance(node.value, ast.Name) and node.value.id == "node" and node.attr in ENTRANCES
        if not is_own and not is_entrance:
            yield f"{module.where(node.lineno)} {ast.unparse(node)}"


def test_probes_read_public_attributes_of_engine_parts() -> None:
    """What a probe needs is a property of the part: a rename breaks the part's own tests, and no test of a user."""
    probes = [one for one in modules() if one.name.startswith("tidemill.testing.probes")]
    assert len(probes) > 2
    found = [offence for one in probes for offence in _private_reads(one)]
    assert not found, listing(found)


def test_methods_that_a_class_leaves_out_are_abstract() -> None:
    """NotImplementedError shows only when the method is called; an abstract one when the object is made."""
    raised = [
        one.where(node.lineno)
        for one in modules()
        for node in ast.walk(one.tree)
        if isinstance(node, ast.Raise) and node.exc is not None and "NotImplementedError" in ast.unparse(node.exc)
    ]
    assert not raised, listing(raised)
