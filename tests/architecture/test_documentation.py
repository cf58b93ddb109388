"""Every public name has a docstring."""

import ast
from collections.abc import Iterator

from tests.architecture.sources import FunctionNode, Module, listing, modules

Definition = ast.ClassDef | FunctionNode
Owner = ast.Module | ast.ClassDef


def test_every_public_module_has_a_docstring() -> None:
    """Q-1; an empty module needs none."""
    offenders = [
        module.where(1) for module in public_modules() if module.tree.body and not ast.get_docstring(module.tree)
    ]
    assert not offenders, listing(offenders)


def test_every_public_class_function_and_method_has_a_docstring() -> None:
    """Q-1; a method may inherit its docstring from a base class in the tree."""
    classes = {node.name: node for module in modules() for node in every_class(module)}
    offenders = [
        f"{module.where(node.lineno)} {node.name}"
        for module in public_modules()
        for owner, node in public_definitions(module.tree, module.tree)
        if not is_documented(owner, node, classes)
    ]
    assert not offenders, listing(offenders)


def public_modules() -> Iterator[Module]:
    """Yield the modules that have no private part in their name."""
    return (module for module in modules() if not any(map(is_private, module.name.split("."))))


def is_private(name: str) -> bool:
    """Return whether a name is private to its module; dunder names such as `__main__` are not."""
    return name.startswith("_") and not name.endswith("__")


def every_class(module: Module) -> Iterator[ast.ClassDef]:
    """Yield every class of a module."""
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))


def public_definitions(parent: ast.AST, owner: Owner) -> Iterator[tuple[Owner, Definition]]:
    """Yield public classes and functions, each with its owner; functions nested in functions are left out."""
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, Definition):
            yield from public_definitions(node, owner)
        elif not node.name.startswith("_"):
            yield owner, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node, node)


def is_documented(owner: Owner, node: Definition, classes: dict[str, ast.ClassDef]) -> bool:
    """Return whether the definition has a docstring, or one of the same name: an overload, a setter, a base class."""
    return bool(ast.get_docstring(node)) or any(
        isinstance(namesake, FunctionNode) and namesake.name == node.name and ast.get_docstring(namesake)
        for kin in lineage(owner, classes)
        for namesake in kin.body
    )


def lineage(owner: Owner, classes: dict[str, ast.ClassDef]) -> Iterator[Owner]:
    """Yield a module or a class, and the base classes of a class that are defined in this tree."""
    yield owner
    for base in owner.bases if isinstance(owner, ast.ClassDef) else ():
        name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        if name in classes and classes[name] is not owner:
            yield from lineage(classes[name], classes)
