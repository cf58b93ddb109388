"""Variables: values that operators set and author code reads with `ctx.variable`."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar.params import FromPath, JSONBody

from tidemill.server.injection import InjectedContext, InjectedPrincipal
from tidemill.server.paging import DEFAULT_LIMIT, Cursor, Limit, Page, page_of
from tidemill.storage.variable_ports import Variable


class VariableValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a variable: anything that JSON can express."""

    value: Annotated[Any, msgspec.Meta(examples=["eu"])]


class VariableView(msgspec.Struct, frozen=True, kw_only=True):
    """A variable."""

    name: str
    value: Any
    updated_at: datetime
    updated_by: str


def _view(variable: Variable) -> VariableView:
    return VariableView(
        name=variable.name,
        value=variable.value,
        updated_at=variable.updated_at,
        updated_by=variable.updated_by,
    )


async def list_variables(
    context: InjectedContext, principal: InjectedPrincipal, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[VariableView]:
    """List the variables of the tenant."""
    variables = await context.node.access.variables.list_for(principal)
    return page_of(variables, limit=limit, cursor=cursor, key=lambda one: one.name, view=_view)


async def get_variable(context: InjectedContext, principal: InjectedPrincipal, name: FromPath[str]) -> VariableView:
    """Return a variable."""
    return _view(await context.node.access.variables.get(principal.tenant, name))


async def put_variable(
    context: InjectedContext, principal: InjectedPrincipal, name: FromPath[str], data: JSONBody[VariableValue]
) -> VariableView:
    """Set a variable."""
    return _view(await context.node.access.variables.set(principal, name, data.value))


async def delete_variable(context: InjectedContext, principal: InjectedPrincipal, name: FromPath[str]) -> None:
    """Delete a variable."""
    await context.node.access.variables.delete(principal, name)
