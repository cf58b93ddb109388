"""Derives routes from operations: the handler decodes the fields of a request, and encodes the answer."""

import re
from inspect import Parameter, Signature
from typing import Annotated, Any, get_args

from litestar import Response
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from tidemill.api.operation import Operation, RequestField, RequestKey, find_marker
from tidemill.api.paging import DEFAULT_LIMIT, PageRequest
from tidemill.server.injection import InjectedContext, InjectedKeyed, InjectedPrincipal
from tidemill.server.paging import Cursor, Limit
from tidemill.server.responses import ApiResponse
from tidemill.server.routing import BASE_PATH, Handler, Route


def to_route(operation: Operation[Any, Any]) -> Route:
    """Return the route of an operation."""
    http = operation.http
    return Route(
        method=http.method,
        path=BASE_PATH + re.sub(r"\{(\w+)\}", r"{\1:str}", http.path),
        handler=_make_handler(operation),
        permission=operation.permission,
        audit=operation.audit,
        resource=operation.resource,
        status=http.status,
        is_audited_by_service=operation.is_audited_by_service,
        takes_key=operation.takes_key,
    )


def _make_handler(operation: Operation[Any, Any]) -> Handler:
    """Return a function with the parameters that Litestar fills in: those of the server, then the fields."""
    http, body = operation.http, [one for one in operation.fields if one.place == "body"]
    parameters = {"context": InjectedContext, "principal": InjectedPrincipal, "keyed": InjectedKeyed}
    defaults: dict[str, Any] = {}
    if operation.takes_page:
        parameters |= {"limit": Limit, "cursor": Cursor}
        defaults |= {"limit": DEFAULT_LIMIT, "cursor": None}
    for one in operation.fields:
        if one.place != "body":
            parameters[one.name] = _parameter_type(one)
            defaults[one.name] = one.default
    if body:
        parameters["data"] = Annotated[operation.body_type, *get_args(JSONBody)[1:]]

    async def handle(**given: Any) -> Any:
        context, principal, keyed = given.pop("context"), given.pop("principal"), given.pop("keyed")
        if body:
            data = given.pop("data")
            given |= {one.name: getattr(data, one.name) for one in body}
        if operation.takes_page:
            given["page"] = PageRequest(given.pop("limit"), given.pop("cursor"))
        if keyed is not None and operation.takes_key:
            given["request"] = RequestKey(keyed.effect, keyed.begun_at)
        answer = await operation(context.node.services, principal, **given)
        headers = _headers(operation, answer)
        return ApiResponse(answer, status_code=http.status, headers=headers) if headers else answer

    has_headers = http.location is not None or http.is_private
    returned = Response[operation.answer] if has_headers else operation.answer  # type: ignore[name-defined]
    _declare(handle, operation, parameters, defaults, returned)
    return handle


def _declare(
    handle: Handler,
    operation: Operation[Any, Any],
    parameters: dict[str, Any],
    defaults: dict[str, Any],
    returned: Any,
) -> None:
    """Give a handler the name, the text and the signature that Litestar reads."""
    handle.__name__ = handle.__qualname__ = operation.name
    handle.__module__ = operation.function.__module__
    handle.__doc__ = operation.__doc__
    handle.__annotations__ = {**parameters, "return": returned}
    handle.__signature__ = Signature(  # type: ignore[attr-defined]  # a function may have one
        [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name, Parameter.empty), annotation=annotation)
            for name, annotation in parameters.items()
        ],
        return_annotation=returned,
    )


def _parameter_type(field: RequestField) -> Any:
    if field.place == "path":
        return Annotated[field.annotation, *get_args(FromPath)[1:]]
    meta = find_marker(field.annotation, Meta) or Meta()
    described = QueryParameter(
        name=field.wire_name, description=field.help or None, ge=meta.ge, le=meta.le, required=field.is_required
    )
    return Annotated[field.wire_type, described]


def _headers(operation: Operation[Any, Any], answer: Any) -> dict[str, str]:
    headers = (
        {}
        if operation.http.location is None
        else {
            "location": BASE_PATH
            + re.sub(r"\{(\w+)\}", lambda found: str(getattr(answer, found[1])), operation.http.location)
        }
    )
    return headers | ({"cache-control": "no-store"} if operation.http.is_private else {})
