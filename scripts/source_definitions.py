"""Reads classes and functions as their source declares them: signatures and types in the author's own words.

Introspection would show other words: full module paths, resolved aliases, and no attributes with their descriptions.
"""

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
LINE_LENGTH = 100


class Attribute(NamedTuple):
    """An attribute of a class: a field, a property, or a value of an enumeration."""

    name: str
    type: str
    default: str
    description: str


class Method(NamedTuple):
    """A function or a method, with one signature, or one for each overload."""

    name: str
    signatures: tuple[str, ...]
    description: str


def read_function(function: Callable[..., Any]) -> Method:
    """Return a function of a module."""
    return _method(function.__name__, _named(_module_of(function).body, function.__name__))


def own_bodies(owner: type, ends: frozenset[type] = frozenset()) -> Iterator[list[ast.stmt]]:
    """Yield the bodies of a class and of its bases in this tree; not of those in `ends`, nor of their bases."""
    inherited = {base for end in ends for base in end.__mro__}
    for base in owner.__mro__:
        if base.__module__.startswith("tidemill") and base not in inherited:
            classes = (node for node in _module_of(base).body if isinstance(node, ast.ClassDef))
            yield next(node.body for node in classes if node.name == base.__name__)


def read_attributes(bodies: list[list[ast.stmt]]) -> list[Attribute]:
    """Return the public attributes that class bodies declare, fields before properties."""
    found: dict[str, Attribute] = {}
    for body in bodies:
        for node, following in zip(body, [*body[1:], None], strict=True):
            attribute = _attribute(node, _text_of(following))
            if attribute is not None and not attribute.name.startswith("_"):
                found.setdefault(attribute.name, attribute)
    return list(found.values())


def read_methods(bodies: list[list[ast.stmt]]) -> list[Method]:
    """Return the public methods that class bodies declare, in the order of their first declaration."""
    found: dict[str, Method] = {}
    for body in bodies:
        for node in body:
            if isinstance(node, FunctionNode) and _is_public(node.name) and not _is_property(node):
                found.setdefault(node.name, _method(node.name, _named(body, node.name)))
    return list(found.values())


def read_constructor(bodies: list[list[ast.stmt]]) -> tuple[str, ...]:
    """Return the signatures of `__init__`; none if it is not declared."""
    nodes = next(filter(None, (_named(body, "__init__") for body in bodies)), [])
    return _signatures("", nodes, shows_result=False)


@cache
def _module(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def _module_of(definition: Any) -> ast.Module:
    path = inspect.getsourcefile(definition)
    assert path is not None
    return _module(path)


def _named(body: list[ast.stmt], name: str) -> list[FunctionNode]:
    return [node for node in body if isinstance(node, FunctionNode) and node.name == name]


def _method(name: str, nodes: list[FunctionNode]) -> Method:
    description = next(filter(None, map(ast.get_docstring, nodes)), "")
    return Method(name, _signatures(name, nodes), description)


def _signatures(name: str, nodes: list[FunctionNode], *, shows_result: bool = True) -> tuple[str, ...]:
    """Return one signature, or that of each overload instead of the one that implements them."""
    overloads = [node for node in nodes if "overload" in map(ast.unparse, node.decorator_list)]
    return tuple(_signature(name, node, shows_result=shows_result) for node in overloads or nodes)


def _signature(name: str, node: FunctionNode, *, shows_result: bool) -> str:
    parameters = _parameters(node.args)
    if parameters and parameters[0] in ("self", "cls"):
        parameters = [one for one in parameters[1:] if one != "/" or parameters.index("/") > 1]
    kind = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    result = f" -> {ast.unparse(node.returns)}" if shows_result and node.returns else ""
    line = f"{kind}{name}({', '.join(parameters)}){result}"
    if len(line) <= LINE_LENGTH:
        return line
    return "\n".join([f"{kind}{name}(", *(f"    {one}," for one in parameters), f"){result}"])


def _parameters(arguments: ast.arguments) -> list[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    written = [_parameter(one, default) for one, default in zip(positional, defaults, strict=True)]
    if arguments.posonlyargs:
        written.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        written.append(f"*{_parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        written.append("*")
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    written += [_parameter(one, default) for one, default in pairs if not one.arg.startswith("_")]
    return written + ([f"**{_parameter(arguments.kwarg, None)}"] if arguments.kwarg else [])


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    if default is None:
        return f"{argument.arg}{annotation}"
    sign = " = " if annotation else "="
    return f"{argument.arg}{annotation}{sign}{_literal(default)}"


def _attribute(node: ast.stmt, description: str) -> Attribute | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        default = "" if node.value is None else _literal(node.value)
        return Attribute(node.target.id, ast.unparse(node.annotation).strip("'"), default, description)
    if isinstance(node, FunctionNode) and _is_property(node):
        result = ast.unparse(node.returns) if node.returns else ""
        return Attribute(node.name, result, "", ast.get_docstring(node) or "")
    return None


def read_values(bodies: list[list[ast.stmt]]) -> list[str]:
    """Return the values of an enumeration."""
    return [
        node.value.value
        for node in bodies[0]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def _literal(node: ast.expr) -> str:
    return ast.unparse(node).replace("'", '"')


def _is_public(name: str) -> bool:
    return name == "__call__" or not name.startswith("_")


def _is_property(node: FunctionNode) -> bool:
    return any("property" in ast.unparse(one) for one in node.decorator_list)


def _text_of(node: ast.stmt | None) -> str:
    """Return the text of a statement that is only a text, as after an attribute."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return inspect.cleandoc(node.value.value) if is_text else ""  # type: ignore[union-attr] # it is a text
