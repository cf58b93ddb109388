"""Turns everything that handlers raise into problem details."""

import logging
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from tidemill.api.errors import (
    PROBLEM_MEDIA_TYPE,
    RETRY_SECONDS,
    FieldProblem,
    InvalidRequestError,
    ProblemDetails,
    title_of,
    to_problem,
)
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.server.request_context import request_id_of
from tidemill.server.routing import allowed_methods

logger = logging.getLogger("tidemill.server")

REQUEST_TIMEOUT = 408
_HTTP_CODES = {
    400: "malformed_request",
    404: "route_not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
}


def answer_tidemill_error(request: Request[Any, Any, Any], error: Exception) -> Response[ProblemDetails]:
    """Answer with an error of Tidemill; one of ours is logged."""
    assert isinstance(error, TidemillError)
    problem = to_problem(error, request_id_of(request.scope))
    if problem.status >= 500:
        logger.error("request.failed", exc_info=error, extra={"request_id": problem.request_id, "code": problem.code})
    headers = {}
    wait = error.facts.get("retry_after") if isinstance(error, RequestError) else None
    if wait is not None or problem.status in (429, 503):
        headers["retry-after"] = str(RETRY_SECONDS if wait is None else wait)
    if problem.status == REQUEST_TIMEOUT:
        headers["connection"] = "close"  # the rest of its body may still come
    return _answer(problem, headers)


def answer_http_exception(request: Request[Any, Any, Any], error: Exception) -> Response[ProblemDetails]:
    """Answer with an error of the framework: an unknown route, a wrong method, an invalid parameter."""
    assert isinstance(error, HTTPException)
    if isinstance(error, ValidationException):
        fields = [_to_field_problem(request, one) for one in error.extra or () if isinstance(one, dict)]
        message = "; ".join(f"{one.path}: {one.message}".removeprefix(": ") for one in fields) or error.detail
        return answer_tidemill_error(request, InvalidRequestError(message, fields))
    status = error.status_code
    problem = ProblemDetails(
        title=title_of(status),
        status=status,
        detail=_HTTP_DETAILS.get(status, error.detail),
        code=_HTTP_CODES.get(status, "http_error"),
        request_id=request_id_of(request.scope),
    )
    allow = (error.headers or {}).get("allow")
    return _answer(problem, {} if allow is None else {"allow": allowed_methods(allow.split(", "))})


_HTTP_DETAILS = {404: "there is no such route", 405: "this route does not have this method"}


def _to_field_problem(request: Request[Any, Any, Any], extra: dict[str, Any]) -> FieldProblem:
    """Return an invalid parameter under the name that clients know, or the body that is missing."""
    key = str(extra.get("key", ""))
    if key == "data":
        return FieldProblem("", "a body is missing")
    field = request.route_handler.parsed_fn_signature.parameters.get(key)
    name = getattr(field.kwarg_definition, "name", None) if field is not None else None
    return FieldProblem(path=name or key, message=str(extra.get("message", "")))


def answer_unexpected_error(request: Request[Any, Any, Any], error: Exception) -> Response[ProblemDetails]:
    """Answer with a defect of ours, without its text, which is in the log under the request's id."""
    request_id = request_id_of(request.scope)
    logger.error("request.crashed", exc_info=error, extra={"request_id": request_id})
    detail = f"the server failed; its log has the reason under the request id {request_id}"
    problem = ProblemDetails(
        title=title_of(500), status=500, detail=detail, code="internal_error", request_id=request_id
    )
    return _answer(problem, {})


def _answer(problem: ProblemDetails, headers: dict[str, str]) -> Response[Any]:
    return Response(
        msgspec.json.encode(problem), status_code=problem.status, media_type=PROBLEM_MEDIA_TYPE, headers=headers
    )
