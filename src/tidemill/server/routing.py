"""Routes: what the route table says about each, and the handler that Litestar gets for it.

A route names its permission and its audit event next to its path, so that one table shows who may do what, and a test
can walk it. A route that is not in the table does not exist.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from inspect import Parameter, signature
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from litestar.handlers import HTTPRouteHandler, WebsocketRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example, OpenAPIMediaType, Operation, RequestBody, Schema
from litestar.types import Empty

from tidemill.access.principal import Permission, ResourceKind
from tidemill.api.errors import PROBLEM_MEDIA_TYPE, ProblemDetails

BASE_PATH = "/api/v1"

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "WEBSOCKET"]

Handler = Callable[..., Any]


class RawBody(NamedTuple):
    """A body that a handler reads itself, as the OpenAPI document shows it."""

    media_type: str
    description: str
    example: Any = None


class Route(NamedTuple):
    """One route of the server."""

    method: Method
    path: str
    handler: Handler
    permission: Permission
    audit: str | None = None
    """The action in the audit log; every route that changes something has one."""
    resource: ResourceKind | None = None
    """The kind of the endpoint `{name}`, if principals can be restricted to it."""
    status: int = 200
    is_audited_by_service: bool = False
    """Whether the service that the handler calls records the event, so that commands on a store are audited too."""
    media_type: str = "application/json"
    """The format of the answer."""
    takes_key: bool = False
    """Whether the answer to a request with an Idempotency-Key is kept for repetitions."""
    is_private: bool = False
    """Whether the answer has a secret: then only the fact that there was one is kept."""
    body_limit: int | None = None
    """The limit of the body in bytes, if it is not the server's."""
    bodies: tuple[RawBody, ...] = ()
    """The forms of a body that the handler does not declare as `data`."""
    answers: tuple[int, ...] = ()
    """Further statuses with the answer of the route, or without a body, for the OpenAPI document."""
    errors: tuple[int, ...] = ()
    """Statuses of errors that other routes of the method do not have, for the OpenAPI document."""
    is_page: bool = False
    """Whether it answers browsers with pages and files: the OpenAPI document, which programs read, leaves it out."""

    @property
    def operation_id(self) -> str:
        """The unique name of the operation in the OpenAPI document."""
        return self.handler.__name__

    @property
    def noun(self) -> str:
        """The module of the handler, by which the OpenAPI document groups operations."""
        return self.handler.__module__.rpartition(".")[2].replace("_", " ")


def get(path: str, handler: Handler, permission: Permission, **options: Any) -> Route:
    """Return a route that reads."""
    return Route("GET", _full_path(path), handler, permission, **options)


def post(path: str, handler: Handler, permission: Permission, *, audit: str | None, **options: Any) -> Route:
    """Return a route that makes or does something."""
    return Route("POST", _full_path(path), handler, permission, audit, **options)


def put(path: str, handler: Handler, permission: Permission, *, audit: str, **options: Any) -> Route:
    """Return a route that sets something."""
    return Route("PUT", _full_path(path), handler, permission, audit, **options)


def patch(path: str, handler: Handler, permission: Permission, *, audit: str, **options: Any) -> Route:
    """Return a route that changes a part of something."""
    return Route("PATCH", _full_path(path), handler, permission, audit, **options)


def delete(path: str, handler: Handler, permission: Permission, *, audit: str, **options: Any) -> Route:
    """Return a route that deletes something; it answers without a body unless it says otherwise."""
    return Route("DELETE", _full_path(path), handler, permission, audit, **{"status": 204, **options})


def websocket(path: str, handler: Handler, permission: Permission, **options: Any) -> Route:
    """Return a route for WebSocket connections."""
    return Route("WEBSOCKET", path, handler, permission, **options)


def _full_path(path: str) -> str:
    """Return a path from the root; a path that begins with // is one already, without one slash."""
    return path.removeprefix("/") if path.startswith("//") else BASE_PATH + path


def allowed_methods(methods: Iterable[str]) -> str:
    """Return the header `Allow` of a path that has methods; HEAD is answered wherever GET is."""
    names = {"OPTIONS", *methods} - {"websocket"}
    return ", ".join(sorted(names | ({"HEAD"} if "GET" in names else set())))


def to_handler(route: Route, middleware: Sequence[Any] = ()) -> HTTPRouteHandler | WebsocketRouteHandler:
    """Return the handler of a route, for Litestar; `middleware` is around it, the outermost first."""
    options: dict[str, Any] = {"opt": {"route": route}}
    if route.method == "WEBSOCKET":
        return WebsocketRouteHandler(route.path, **options)(route.handler)
    summary, _, description = (route.handler.__doc__ or "").partition("\n\n")
    declare = HTTPRouteHandler(
        route.path,
        http_method=route.method,
        status_code=route.status,
        media_type=route.media_type,
        operation_id=route.operation_id,
        summary=summary.strip().rstrip("."),
        description=" ".join(description.split()) or None,
        tags=[route.noun],
        responses=_other_responses(route),
        include_in_schema=not route.is_page,
        security=[] if route.permission is Permission.NONE else [{"key": []}],
        operation_class=_operation_class(route),
        request_max_body_size=Empty if route.body_limit is None else route.body_limit,
        middleware=middleware,
        **options,
    )
    return declare(route.handler)


@dataclass
class _OptionalBodyOperation(Operation):
    """An operation that may be asked for without a body."""

    def __post_init__(self) -> None:
        if isinstance(self.request_body, RequestBody):
            self.request_body.required = False


def _operation_class(route: Route) -> type[Operation]:
    """Return the class of an operation, which says what Litestar does not see of its body."""
    if not route.bodies:
        data = signature(route.handler).parameters.get("data")
        return Operation if data is None or data.default is Parameter.empty else _OptionalBodyOperation
    content = {
        one.media_type: OpenAPIMediaType(schema=Schema(description=one.description), example=one.example)
        for one in route.bodies
    }

    @dataclass
    class RawBodyOperation(Operation):
        def __post_init__(self) -> None:
            self.request_body = RequestBody(content=content, required=True)

    return RawBodyOperation


_ERRORS = {
    400: ("invalid_request", "The request is malformed or invalid."),
    401: ("invalid_key", "The request has no key, or the key is not valid."),
    403: ("not_allowed", "The key does not allow this."),
    404: ("run_not_found", "Nothing has this name or id in the tenant."),
    409: ("run_ended", "The current state does not allow this."),
    412: ("stale_etag", "It has changed since its ETag was read."),
    413: ("body_too_large", "The body is too large."),
    415: ("unsupported_media_type", "The body is in a format that this route does not take."),
    429: ("rate_limited", "There were too many requests: wait as long as `retry-after` says."),
    503: ("store_unavailable", "The store cannot be reached: repeat the request."),
}


def _other_answers(route: Route) -> dict[int, ResponseSpec]:
    """Return the further answers of a route that are not problems: a body of the usual kind, or none."""
    if not route.answers:
        return {}
    (answer,) = get_args(get_type_hints(route.handler)["return"])
    return {
        status: ResponseSpec(None if status == 304 else answer, description=HTTPStatus(status).phrase)
        for status in route.answers
    }


def _other_responses(route: Route) -> dict[int, ResponseSpec]:
    """Return the answers of a route besides the usual one: errors, each with an example, and its own statuses."""
    left_out = {412}
    if route.permission is Permission.NONE and route.audit is None:
        left_out |= {401, 403}
    if "{" not in route.path and route.method == "GET":
        left_out |= {404}
    if route.audit is None:
        left_out |= {409}
    if route.method in ("GET", "DELETE"):
        left_out |= {413, 415}
    left_out -= set(route.errors)
    left_out |= set(route.answers)
    return _other_answers(route) | {
        status: ResponseSpec(
            ProblemDetails,
            description=meaning,
            media_type=PROBLEM_MEDIA_TYPE,
            generate_examples=False,
            examples=[Example(summary=code, value=ProblemDetails.example(status, code, meaning))],
        )
        for status, (code, meaning) in _ERRORS.items()
        if status not in left_out
    }
