"""Injects the context, the principal and the caller of a request into handlers."""

from litestar.di import NamedDependency, Provide
from litestar.types import Scope

from tidemill.access.principal import Caller, Principal
from tidemill.engine.access.idempotency import KeyedRequest
from tidemill.server.context import ServerContext, caller_of, context_of
from tidemill.server.idempotency import keyed_request_of
from tidemill.server.requests import ApiRequest

InjectedContext = NamedDependency[ServerContext]
"""The annotation of a handler's parameter `context`."""
InjectedPrincipal = NamedDependency[Principal]
"""The annotation of a handler's parameter `principal`."""
InjectedCaller = NamedDependency[Caller]
"""The annotation of a handler's parameter `caller`."""
InjectedKeyed = NamedDependency[KeyedRequest | None]
"""The annotation of a handler's parameter `keyed`: the request, if it has an idempotency key."""


def dependencies() -> dict[str, Provide]:
    """Return what handlers can take, by the name of the parameter."""
    return {
        "context": Provide(_provide_context, sync_to_thread=False),
        "principal": Provide(_provide_principal, sync_to_thread=False),
        "caller": Provide(_provide_caller, sync_to_thread=False),
        "keyed": Provide(_provide_keyed, sync_to_thread=False),
    }


def _provide_context(scope: Scope) -> ServerContext:
    return context_of(scope)


def _provide_principal(request: ApiRequest) -> Principal:
    return request.user


def _provide_caller(request: ApiRequest) -> Caller:
    return caller_of(request.user)


def _provide_keyed(scope: Scope) -> KeyedRequest | None:
    return keyed_request_of(scope)
