"""Problem details (RFC 9457): how an error leaves a process, and how the same error is raised in another one.

The code and status of a RequestError are those of the problem: a program meets the same codes over HTTP and in Python.
"""

import re
from datetime import datetime
from enum import Enum
from http import HTTPStatus
from typing import Any, get_args, get_type_hints

import msgspec

from tidemill.kernel.errors import (
    DefinitionError,
    FencedError,
    FullError,
    FullStoreError,
    NotFoundError,
    OperationError,
    RequestError,
    StoreError,
    TidemillError,
    rebuild_request_error,
)
from tidemill.kernel.suggestions import did_you_mean

PROBLEM_MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
"""Seconds after which a request is worth repeating when the store is away."""
_PATH_PATTERN = re.compile(r"^(?P<message>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?$", re.DOTALL)
_MISSING_FIELD_PATTERN = re.compile(r"missing required field `(?P<name>.*)`$")
_UNKNOWN_FIELD_PATTERN = re.compile(r"unknown field `(?P<name>.*)`$")
_UNKNOWN_VALUE_PATTERN = re.compile(r"Invalid enum value '(?P<value>.*)'$")


class FieldProblem(msgspec.Struct, frozen=True):
    """One invalid field of a request."""

    path: str
    """The path to the field, such as `params.day`."""
    message: str


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An error, as other processes see it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    """The stable name of the error, for programs."""
    request_id: str
    suggestions: list[str] = []
    """Known names that resemble the one that was not found."""
    errors: list[FieldProblem] = []
    """The invalid fields of the request."""

    @classmethod
    def example(cls, status: int, code: str, detail: str) -> dict[str, Any]:
        """Return an example for the documentation."""
        problem = cls(title=title_of(status), status=status, detail=detail, code=code, request_id="9f86d081884c7d65")
        fields: dict[str, Any] = msgspec.to_builtins(problem)
        return fields


class InvalidRequestError(RequestError):
    """The body or a parameter of a request is invalid; `errors` says which fields, and why."""

    def __init__(self, message: str, errors: list[FieldProblem]) -> None:
        super().__init__(message, code="invalid_request", errors=errors)


def invalid_field_error(error: msgspec.ValidationError, kind: Any, message: str) -> InvalidRequestError:
    """Return the error for a value that is not of a type; it names the field, and suggests a known name."""
    problem = _field_problem(error, kind)
    where = f" at `{problem.path}`" if problem.path else ""
    return InvalidRequestError(f"{message}{where}: {problem.message}", [problem])


def require_offset(name: str, time: datetime | None) -> datetime | None:
    """Return the time of a field; RequestError if it has no offset."""
    if time is not None and time.tzinfo is None:
        message = f"{name} needs an offset, such as {time.isoformat()}Z"
        raise InvalidRequestError(message, [FieldProblem(name, message)])
    return time


def title_of(status: int) -> str:
    """Return the standard phrase of a status."""
    return HTTPStatus(status).phrase


def to_problem(error: TidemillError, request_id: str) -> ProblemDetails:
    """Return the problem of an error of Tidemill."""
    facts = error.facts if isinstance(error, RequestError) else {}
    code, status = code_and_status(error)
    return ProblemDetails(
        title=title_of(status),
        status=status,
        detail=detail_of(error),
        code=code,
        request_id=request_id,
        suggestions=list(facts.get("suggestions", ())),
        errors=[
            *facts.get("errors", ()),
            *_param_problems(facts.get("params", {})),
            *_input_problems(facts, str(error)),
            *_definition_problems(error),
        ],
    )


def _param_problems(params: dict[str, str]) -> list[FieldProblem]:
    """Return the invalid params of a new run as fields of the request; those of all together have no name."""
    return [_param_problem(name, message) for name, message in params.items()]


def _param_problem(name: str, message: str) -> FieldProblem:
    if not name:
        return FieldProblem("params", message)
    reason, path = _split_path(message)
    return FieldProblem(f"params.{name}{path}", reason.partition(": ")[2] if path else message)


def _split_path(message: str) -> tuple[str, str]:
    """Return what is wrong and where: "Expected `int`", ".lines[0].price"; a missing field is at its own path."""
    reason, _, path = message.partition(" - at `$")
    path = path.removesuffix("`")
    if missing := _MISSING_FIELD_PATTERN.search(reason):
        path += f".{missing['name']}"
    return reason, path


def _input_problems(facts: dict[str, Any], message: str) -> list[FieldProblem]:
    """Return the invalid input of a firing or a call as a field of the request, with the path inside its value."""
    if (name := facts.get("input")) is None:
        return []
    reason, path = _split_path(message)
    return [FieldProblem(f"inputs.{name}{path}", reason.partition(": ")[2] or reason)]


def _definition_problems(error: TidemillError) -> list[FieldProblem]:
    """Return the problems of a definition; the path of each is its file and line."""
    problems = error.problems if isinstance(error, DefinitionError) else ()
    return [FieldProblem(str(one.location or ""), one.message) for one in problems]


def detail_of(error: TidemillError) -> str:
    """Return what callers learn about an error. That of a store names its address, which is only for the log."""
    if isinstance(error, FullStoreError):
        return "the disk of the store is full: free some space"
    if isinstance(error, StoreError) and not isinstance(error, FencedError):
        return "the store did not do what it was asked: repeat the request. The log of the server has the reason"
    return str(error)


def code_and_status(error: TidemillError) -> tuple[str, int]:
    """Return the stable code and the HTTP status of an error."""
    match error:
        case RequestError():
            return error.code, error.status
        case DefinitionError():
            return "invalid_definition", 400
        case FencedError():
            return "ownership_lost", 503
        case StoreError():
            return "store_unavailable", 503
    return "operation_failed", 500


def to_error(problem: ProblemDetails) -> TidemillError:
    """Return the error of Tidemill that a problem stands for."""
    if problem.status == 503:
        return StoreError(problem.detail)
    if problem.status >= 500:
        return OperationError(f"{problem.detail} (code {problem.code}, request {problem.request_id})")
    facts = {"suggestions": problem.suggestions, "errors": problem.errors, "request_id": problem.request_id}
    kind: type[RequestError] = RequestError
    if problem.code.endswith("_not_found"):
        kind = NotFoundError
    elif problem.code == "queue_full":
        kind = FullError
    return rebuild_request_error(kind, problem.detail, problem.code, problem.status, facts)


def _field_problem(error: Exception, kind: Any) -> FieldProblem:
    """Return the path and the message of a validation error, with a suggestion for an unknown field."""
    kind = next((one for one in get_args(kind) if one is not type(None)), kind)  # of a body that may be null
    match = _PATH_PATTERN.match(str(error))
    path, message = (match["path"] or "", match["message"]) if match else ("", str(error))
    path = path.removeprefix(".")
    if unknown := _UNKNOWN_FIELD_PATTERN.search(message):
        known = getattr(kind, "__struct_fields__", ())
        message += did_you_mean(unknown["name"], known)
        path = _join(path, unknown["name"])
    elif missing := _MISSING_FIELD_PATTERN.search(message):
        path = _join(path, missing["name"])
    elif wrong := _UNKNOWN_VALUE_PATTERN.search(message):
        message += did_you_mean(wrong["value"], _known_values(kind, path))
    return FieldProblem(path, message)


def _join(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _known_values(kind: Any, field: str) -> list[str]:
    """Return the values that a field of a body may have, if it declares them."""
    annotation = get_type_hints(kind).get(field) if isinstance(kind, type) else None
    parts = (annotation, *get_args(annotation))
    members = [str(one.value) for part in parts if isinstance(part, type) and issubclass(part, Enum) for one in part]
    return members + [one for one in parts if isinstance(one, str)]
