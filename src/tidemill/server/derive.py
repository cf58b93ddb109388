"""Derives routes from operations: the handler decodes the fields of a request, and encodes the answer."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from contextlib import aclosing, contextmanager
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args

from litestar import Response
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from litestar.response import ServerSentEvent
from msgspec import Meta

from tidemill.access.principal import Principal
from tidemill.api.fields import RequestField, TenantName, find_marker
from tidemill.api.operation import HttpForm, Operation, RequestKey, StreamForm, StreamItem
from tidemill.api.paging import DEFAULT_LIMIT, MAX_LIMIT, PageRequest
from tidemill.api.services import Services
from tidemill.engine.access.idempotency import KeyedRequest
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.server.event_stream import StreamEvent, event_stream, wants_stream
from tidemill.server.requests import PREVIEW, ApiRequest, ApiResponse
from tidemill.server.routing import BASE_PATH, Handler, Route

Limit = Annotated[int, QueryParameter(ge=1, le=MAX_LIMIT, description="The number of items of a page, 500 at most.")]
Cursor = Annotated[
    str | None, QueryParameter(description="`next` of the page before; absent for the first page.", required=False)
]


OUTCOME_UNKNOWN = "outcome_unknown"
"""The code of the error for a repeated request whose effect is not known; further repetitions get it, too."""
_LOST = (
    "the server that handled this request ended before it answered, and may have done it: look whether it has, and "
    "repeat the request with a new key if it has not"
)


def to_routes(operation: Operation[Any, Any]) -> list[Route]:
    """Return the route of an operation, and the one for names of another tenant, if it takes these."""
    if all(one.marker(TenantName) is None for one in operation.fields):
        return [to_route(operation)]
    return [to_route(operation), _to_shared_route(operation)]


def _to_shared_route(operation: Operation[Any, Any]) -> Route:
    """Return the route of an operation for a thing that another tenant shares; no key is restricted to one."""
    of_name = to_route(operation)

    async def handle(*, owner: str, name: str, **given: Any) -> Any:
        return await of_name.handler(name=f"{owner}/{name}", **given)

    parameters, returned = dict(of_name.handler.__annotations__), of_name.handler.__annotations__["return"]
    del parameters["return"]
    parameters = {"owner": parameters["name"], **parameters}
    given = signature(of_name.handler).parameters
    _declare(handle, operation, parameters, {name: one.default for name, one in given.items()}, returned)
    handle.__name__ = handle.__qualname__ = operation.name.replace("_", "_shared_", 1)
    handle.__doc__ = f"{operation.__doc__}\n\nThe reactor is one that the tenant `owner` shares."
    return of_name._replace(
        path=of_name.path.replace("{name:str}", "{owner:str}/{name:str}"), handler=handle, resource=None
    )


def to_route(
    operation: Operation[Any, Any], handler: Handler | None = None, *, answers: tuple[int, ...] = (), **options: Any
) -> Route:
    """Return the route of an operation; a handler that is given does what HTTP alone has, such as preconditions."""
    http = operation.http
    return Route(
        method=http.method,
        path=BASE_PATH + re.sub(r"\{(\w+)\}", r"{\1:str}", http.path),
        handler=handler or _make_handler(operation),
        permission=operation.permission,
        audit=operation.audit,
        resource=operation.resource,
        status=http.status,
        is_audited_by_service=operation.is_audited_by_service,
        takes_key=http.method == "POST",
        is_private=http.is_private,
        errors=http.errors,
        answers=(*answers, 200) if http.may_make_nothing else answers,
        **options,
    )


def _make_handler(operation: Operation[Any, Any]) -> Handler:
    """Return a function with the parameters that Litestar fills in: the request, then the fields."""
    http, body = operation.http, [one for one in operation.fields if one.place == "body"]
    takes_page, makes_once = operation.takes_page, operation.makes_once
    renamed = {name: one.name for one in operation.fields if (name := _parameter_name(one)) != one.name}
    named_in_location = re.findall(r"\{(\w+)\}", http.location or "")
    parameters, defaults = _parameters(operation)

    async def handle(*, request: ApiRequest, **given: Any) -> Any:
        services, keyed = request.node.services, request.keyed
        for parameter, name in renamed.items():
            given[name] = given.pop(parameter)
        if body:
            data = given.pop("data") or operation.body_type()
            given |= {one.name: getattr(data, one.name) for one in body}
        request.scope["state"][PREVIEW] = given.get("preview", False)
        if takes_page:
            given["page"] = PageRequest(given.pop("limit"), given.pop("cursor"))
        if operation.stream is not None and wants_stream(request):
            return await follow(operation, request, services, request.user, given)
        if keyed is None:
            answer = await operation.function(services, request.user, **given)
        else:
            if makes_once:
                given["request"] = RequestKey(keyed.effect, keyed.begun_at, keyed.is_repetition, keyed.was_lost)
            with _judging(operation, keyed):
                answer = await operation.function(services, request.user, **given)
        headers = _headers(http, named_in_location, answer)
        if http.may_make_nothing and "location" not in headers:
            return ApiResponse(answer, status_code=200, headers=headers)
        return ApiResponse(answer, status_code=http.status, headers=headers) if headers else answer

    has_headers = http.location is not None or http.is_private
    returned = Response[operation.answer] if has_headers else operation.answer  # type: ignore[name-defined]
    _declare(handle, operation, parameters, defaults, returned)
    return handle


def _parameters(operation: Operation[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the types of the parameters of a handler, and their defaults."""
    parameters: dict[str, Any] = {"request": ApiRequest}
    defaults: dict[str, Any] = {}
    if operation.takes_page:
        parameters |= {"limit": Limit, "cursor": Cursor}
        defaults |= {"limit": DEFAULT_LIMIT, "cursor": None}
    for one in operation.fields:
        if one.place != "body":
            parameters[_parameter_name(one)] = _parameter_type(one)
            defaults[_parameter_name(one)] = one.default
    if any(one.place == "body" for one in operation.fields):
        parameters["data"], default = _body_parameter(operation)
        defaults |= default
    return parameters, defaults


def _body_parameter(operation: Operation[Any, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the type of a body, and its default: a request without a field that it must have needs none."""
    is_optional = not any(one.is_required for one in operation.fields if one.place == "body")
    kind = operation.body_type | None if is_optional else operation.body_type
    return Annotated[kind, *get_args(JSONBody)[1:]], {"data": None} if is_optional else {}


async def follow(
    operation: Operation[Any, Any], request: ApiRequest, services: Services, caller: Principal, given: dict[str, Any]
) -> ServerSentEvent:
    """Return an answer that follows what an operation answers with; an error of the first step is not a stream."""
    assert operation.stream is not None
    after, fields = request.headers.get("last-event-id") or None, {one.name for one in operation.fields}
    form = operation.stream
    items = await form.follow(services, caller, after, **{name: given[name] for name in fields})
    return event_stream(_to_events(form, items))


async def _to_events(form: StreamForm, items: AsyncGenerator[StreamItem[Any], None]) -> AsyncIterator[StreamEvent]:
    async with aclosing(items) as opened:
        async for one in opened:
            yield StreamEvent(one.id, form.event, one.item)


@contextmanager
def _judging(operation: Operation[Any, Any], keyed: KeyedRequest) -> Iterator[None]:
    """Note what an error says about the effect of a request, for those who repeat it with its key.

    A request that was lost is not carried out again if its effect cannot be found, and a second one would count. A
    store error says that nothing was changed, and invites others to repeat the request: see `after_change`. Operations
    that make something find it by the id of the request, even after a store error behind the commit.
    """
    try:
        if keyed.was_lost and not (operation.makes_once or operation.http.is_idempotent):
            raise RequestError(_LOST, code=OUTCOME_UNKNOWN, status=409)
        yield
    except StoreError:
        keyed.had_no_effect = True
        raise
    except RequestError as error:
        if error.code == OUTCOME_UNKNOWN:
            keyed.is_final = True
        raise


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


_RENAMED = "_field"
"""The end of the name of a parameter that Litestar would otherwise fill in itself."""


def _parameter_name(field: RequestField) -> str:
    """Return the name of the parameter of a field."""
    return f"{field.name}{_RENAMED}" if field.name == "state" else field.name


def _parameter_type(field: RequestField) -> Any:
    if field.place == "path":
        return Annotated[field.annotation, *get_args(FromPath)[1:]]
    meta = find_marker(field.annotation, Meta) or Meta()
    if field.place == "header":
        return Annotated[field.annotation, HeaderParameter(name=field.wire_name, description=field.wire_help or None)]
    described = QueryParameter(
        name=field.wire_name, description=field.wire_help or None, ge=meta.ge, le=meta.le, required=field.is_required
    )
    return Annotated[field.wire_type, described]


def _headers(http: HttpForm, named_in_location: Collection[str], answer: Any) -> dict[str, str]:
    headers = {"cache-control": "no-store"} if http.is_private else {}
    if http.location is not None:
        fields = {name: getattr(answer, name) for name in named_in_location}
        if None not in fields.values():
            headers["location"] = BASE_PATH + http.location.format(**fields)
    return headers
