"""The rules of operations: one contract, from which every surface is derived."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields as dataclass_fields
from string import Formatter
from typing import Any, get_args

import msgspec
import pytest

from tests.architecture.sources import FunctionNode, listing, modules
from tidemill.access.principal import Principal
from tidemill.api.operation import (
    DELETE,
    GET,
    PATCH,
    POST,
    PUT,
    CommandForm,
    ListOperation,
    Message,
    Operation,
    Verb,
    operation,
)
from tidemill.api.table import NOUNS, OPERATIONS
from tidemill.cli.derive import derive_commands

BODY_LIMIT = 15
SURFACES = ("tidemill.server.", "tidemill.client.", "tidemill.cli.")
OUTER = (*SURFACES, "tidemill.storage.", "tidemill.engine.")
TWIN_FIELDS = 4  # structs with fewer fields are alike by chance
TWIN_SHARE = 0.7
OPEN_TWINS = {"NumberedLine"}
"""Twins of messages that go with the last interfaces of the command line for workflows."""


def test_an_operation_is_short() -> None:
    """Rule 3: at most 15 lines below its signature and its docstring; what is longer belongs into a service."""
    offenders = [
        f"{module.where(one.lineno)} {one.name} has {_body_length(one)} lines"
        for module in modules()
        for one in module.functions
        if _is_operation(one) and _body_length(one) > BODY_LIMIT
    ]
    assert not offenders, listing(offenders)
    assert len(OPERATIONS) == sum(_is_operation(one) for module in modules() for one in module.functions)


@pytest.mark.parametrize("declared", [operation, GET, POST, PUT, PATCH, DELETE, CommandForm, Verb])
def test_a_declaration_has_only_named_arguments(declared: Callable[..., Any]) -> None:
    """So mypy and an editor find an argument that is misspelt or has the wrong type."""
    parameters = inspect.signature(declared).parameters.values()
    assert not [one.name for one in parameters if one.kind is one.VAR_KEYWORD or one.annotation is Any]


def test_every_operation_takes_a_principal() -> None:
    """One type of callers: some operations need the role, and a surface need not know which."""
    taken = {one.name: list(inspect.signature(one.function).parameters.values())[1].annotation for one in OPERATIONS}
    assert set(taken.values()) == {Principal}, taken


def test_what_is_made_can_be_read_where_the_answer_says() -> None:
    """The header `Location` has the path of an operation that reads."""
    readable = {re.sub(r"\{.*?\}", "{}", one.http.path) for one in OPERATIONS if one.http.method == "GET"}
    made = {one.http.location for one in OPERATIONS if one.http.status == 201}
    assert {re.sub(r"\{.*?\}", "{}", one or "") for one in made} <= readable, made


def test_the_help_of_a_command_says_what_a_reader_gets() -> None:
    """A method returns something; a command shows it."""
    helps = {form.name: derive_commands(form.noun)[form.verb].__doc__ or "" for form in _commands()}
    assert helps["pool show"].startswith("Show a pool")
    assert not [name for name, text in helps.items() if text.startswith(("Return", "Get"))]


def _commands() -> list[CommandForm]:
    return [verb.command for one in OPERATIONS for verb in one.verbs if verb.command is not None]


def _is_operation(function: FunctionNode) -> bool:
    called = [one.func for one in function.decorator_list if isinstance(one, ast.Call)]
    return any(isinstance(one, ast.Name) and one.id == "operation" for one in called)


def _body_length(function: FunctionNode) -> int:
    statements = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (statements[-1].end_lineno or 0) - statements[0].lineno + 1 if statements else 0


def test_a_struct_that_leaves_a_process_is_declared_below_its_surfaces() -> None:
    """Rule 1: an answer is a message of `api`, or a value of the domain; no surface and no engine declares one."""
    offenders = sorted(
        {
            f"{one.name} has {struct.__module__}.{struct.__name__}"
            for one in OPERATIONS
            for struct in _structs_in([one.answer, *(field.annotation for field in one.fields)])
            if struct.__module__.startswith(OUTER)
        }
    )
    assert not offenders, listing(offenders)


def _structs_in(annotations: list[Any]) -> Iterator[type]:
    """Yield every struct in some annotations, with those in its fields."""
    seen: set[Any] = set()
    waiting = list(annotations)
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in seen:
            seen.add(kind)
            yield kind
            waiting += [one.type for one in msgspec.structs.fields(kind)]
        elif isinstance(kind, type) and hasattr(kind, "__dataclass_fields__") and kind not in seen:
            seen.add(kind)
            yield kind
            waiting += [one.type for one in dataclass_fields(kind)]
        waiting += get_args(kind)


def test_no_surface_says_a_message_again() -> None:
    """Rules 1 and 2: no struct of server, client or command line shares 70 % of the fields of a message."""
    messages = {
        name: set(one.__struct_fields__)
        for noun in NOUNS
        for name, one in vars(noun).items()
        if isinstance(one, type) and issubclass(one, Message) and len(one.__struct_fields__) >= TWIN_FIELDS
    }
    offenders = [
        f"{module.where(found.lineno)} {found.name} says {name} again"
        for module in modules()
        if module.name.startswith(SURFACES)
        for found in ast.walk(module.tree)
        if isinstance(found, ast.ClassDef) and found.bases and found.name not in OPEN_TWINS
        for name, fields in messages.items()
        if _shares(fields, _fields_of(found))
    ]
    assert not offenders, listing(offenders)


def _fields_of(found: ast.ClassDef) -> set[str]:
    return {one.target.id for one in found.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}


def _shares(fields: set[str], others: set[str]) -> bool:
    return len(others) >= TWIN_FIELDS and len(fields & others) >= TWIN_SHARE * max(len(fields), len(others))


def test_only_an_operation_calls_its_service() -> None:
    """Rule 3: a surface asks for the operation; the methods that operations call have no other caller there."""
    called = {
        call
        for module in modules()
        for one in module.functions
        if _is_operation(one)
        for _, call in _calls_in(one, "services.")
    }
    assert ("keys", "create") in called
    offenders = [
        f"{module.where(line)} calls {'.'.join(call)}"
        for module in modules()
        if module.name.startswith(SURFACES)
        for line, call in _calls_in(module.tree)
        if call in called
    ]
    assert not offenders, listing(offenders)


def _calls_in(tree: ast.AST, root: str = "") -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the methods that are called on attributes, such as `access.keys.create(...)`, of a name if one is given."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
            owner = one.func.value
            if isinstance(owner, ast.Attribute) and ast.unparse(owner).startswith(root):
                yield one.lineno, (owner.attr, one.func.attr)


def test_an_operation_names_only_fields_that_it_has() -> None:
    """A slip in a path makes another query, and one in the text of a command fails after the change was made."""
    offenders = [
        f"{one.name}: {name}"
        for one in OPERATIONS
        for name, known in _named_by(one)
        if name.split("[]")[0] not in known
    ]
    assert not offenders, listing(offenders)


def _named_by(operation: Operation[Any, Any]) -> Iterator[tuple[str, set[str]]]:
    """Yield every name in the path and the texts of an operation, with the names that may stand there."""
    fields = {one.name for one in operation.fields}
    answer = operation.item if isinstance(operation, ListOperation) else operation.answer
    answered = set(getattr(answer, "__struct_encode_fields__", ()))
    yield from ((name, fields) for name in _placeholders(operation.http.path))
    yield from ((name, answered) for name in _placeholders(operation.http.location or ""))
    for form in (verb.command for verb in operation.verbs if verb.command is not None):
        yield from ((name, fields | answered) for name in _placeholders(form.done))
        yield from ((re.split(r"\.|\[", path)[0], answered) for path in form.columns)
        if not form.done and operation.answer is type(None):
            assert form.verb.endswith("e"), f"{operation.name} does not say what it has done"


def _placeholders(text: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(text) if name is not None]
