"""Problem details (RFC 9457): how the server answers when it cannot do what a request asks.

The code and status of a RequestError are those of the answer: a program meets the same codes here and in Python.
"""

from http import HTTPStatus
from typing import Any

import msgspec

from tidemill.kernel.errors import DefinitionError, FencedError, RequestError, StoreError, TidemillError

PROBLEM_MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
"""Seconds after which a request is worth repeating when the store is away."""


class FieldProblem(msgspec.Struct, frozen=True):
    """One invalid field of a request."""

    path: str
    """The path to the field, such as `params.day`."""
    message: str


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An error answer."""

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
        detail=str(error),
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
    return [FieldProblem(f"params.{name}" if name else "params", message) for name, message in params.items()]


def _input_problems(facts: dict[str, Any], message: str) -> list[FieldProblem]:
    """Return the invalid input of a firing or a call as a field of the request, with the path inside its value."""
    if (name := facts.get("input")) is None:
        return []
    reason, _, path = message.removesuffix("`").partition(" - at `$")
    return [FieldProblem(f"inputs.{name}{path}", reason.partition(": ")[2] or reason)]


def _definition_problems(error: TidemillError) -> list[FieldProblem]:
    """Return the problems of a definition; the path of each is its file and line."""
    problems = error.problems if isinstance(error, DefinitionError) else ()
    return [FieldProblem(str(one.location or ""), one.message) for one in problems]


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
