"""Accounts: people who sign in with a password."""

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody

from tidemill.access.accounts import Account
from tidemill.access.principal import Role
from tidemill.server.injection import InjectedContext, InjectedPrincipal
from tidemill.server.paging import DEFAULT_LIMIT, Cursor, Limit, Page, page_of
from tidemill.server.responses import ApiResponse


class NewAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An account to create."""

    name: Annotated[str, msgspec.Meta(examples=["ada"])]
    role: Role
    password: Annotated[str, msgspec.Meta(examples=["correct horse battery"])]
    tenant: str | None = None
    """The caller's tenant by default; only an admin of the instance names another one."""


class AccountView(msgspec.Struct, frozen=True, kw_only=True):
    """An account."""

    name: str
    tenant: str
    role: Role
    created_at: datetime
    created_by: str
    locked_until: datetime | None
    last_login_at: datetime | None


def _view(account: Account) -> AccountView:
    return AccountView(
        name=account.name,
        tenant=account.tenant,
        role=account.role,
        created_at=account.created_at,
        created_by=account.created_by,
        locked_until=account.locked_until,
        last_login_at=account.last_login_at,
    )


async def list_accounts(
    context: InjectedContext, principal: InjectedPrincipal, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[AccountView]:
    """List the accounts of the tenant."""
    accounts = await context.node.access.accounts.list_for(principal)
    return page_of(accounts, limit=limit, cursor=cursor, key=lambda one: one.name, view=_view)


async def create_account(
    context: InjectedContext, principal: InjectedPrincipal, data: JSONBody[NewAccount]
) -> Response[AccountView]:
    """Create an account."""
    accounts = context.node.access.accounts
    account = await accounts.create(principal, data.name, data.role, data.password, tenant=data.tenant)
    return ApiResponse(_view(account), status_code=201)


async def delete_account(context: InjectedContext, principal: InjectedPrincipal, name: FromPath[str]) -> None:
    """Delete an account, and end its sessions."""
    await context.node.access.accounts.delete(principal, name)
