"""Accounts: people who sign in with a password."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from tidemill.access.principal import Permission, Principal, Role
from tidemill.api.fields import Positional, Prompt
from tidemill.api.keys import KeyTenant
from tidemill.api.operation import DELETE, GET, POST, PUT, CommandForm, Message, RequestKey, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services

NewName = Annotated[str, Meta(description="The name of the account.", examples=["ada"]), Positional()]
AccountRole = Annotated[Role, Meta(description="What the account may do in its tenant.")]
NewRole = Annotated[Role, Meta(description="What the account may do from now on."), Positional()]
Password = Annotated[str, Meta(description="The password.", examples=["correct horse battery"]), Prompt("Password")]


class Account(Message, frozen=True, kw_only=True):
    """An account."""

    name: str
    tenant: str
    role: Role
    created_at: datetime
    created_by: str
    locked_until: datetime | None
    last_login_at: datetime | None


@operation(
    GET("/accounts"),
    Permission.ADMIN,
    command=CommandForm(
        "account list", columns=("name", "role", "last_login_at", "locked_until", "created_at"), empty="no accounts"
    ),
)
async def list_accounts(services: Services, caller: Principal, page: PageRequest) -> Page[Account]:
    """List the accounts of the tenant."""
    accounts = await services.access.accounts.list_for(caller)
    return page_of(accounts, page, key=lambda one: one.name, view=Account.of)


@operation(
    POST("/accounts", location="/accounts"),
    Permission.ADMIN,
    audit="account.create",
    is_audited_by_service=True,
    command=CommandForm("account create", done="account '{name}' is created", creates_store=True),
)
async def create_account(
    services: Services,
    caller: Principal,
    name: NewName,
    role: AccountRole,
    password: Password,
    tenant: KeyTenant = None,
    request: RequestKey | None = None,
) -> Account:
    """Create an account for a person who signs in with a password."""
    at = None if request is None else request.started_at
    return Account.of(await services.access.accounts.create(caller, name, role, password, tenant=tenant, at=at))


@operation(
    PUT("/accounts/{name}/role"),
    Permission.ADMIN,
    audit="account.change",
    is_audited_by_service=True,
    command=CommandForm("account set-role", done="account '{name}' has the role {role}, and its sessions have ended"),
)
async def set_account_role(services: Services, caller: Principal, name: str, role: NewRole) -> Account:
    """Change the role of an account, and end its sessions."""
    return Account.of(await services.access.accounts.change(caller, name, role=role))


@operation(
    PUT("/accounts/{name}/password"),
    Permission.ADMIN,
    audit="account.change",
    is_audited_by_service=True,
    command=CommandForm(
        "account set-password", done="account '{name}' has a new password, and its sessions have ended"
    ),
)
async def set_account_password(services: Services, caller: Principal, name: str, password: Password) -> Account:
    """Change the password of an account, unlock it, and end its sessions."""
    return Account.of(await services.access.accounts.change(caller, name, password=password))


@operation(
    DELETE("/accounts/{name}"),
    Permission.ADMIN,
    audit="account.delete",
    is_audited_by_service=True,
    command=CommandForm("account delete"),
)
async def delete_account(services: Services, caller: Principal, name: str) -> None:
    """Delete an account, and end its sessions."""
    await services.access.accounts.delete(caller, name)
