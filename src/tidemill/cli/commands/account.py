"""`tidemill account`: people who sign in with a password, on a server or directly on a store."""

from typing import Annotated

import typer

from tidemill.access.principal import Role
from tidemill.cli.opening import with_access
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.secret_input import read_secret
from tidemill.cli.stores import StoreOption, TenantOption

app = typer.Typer(help="Create, list and delete accounts.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of an account.", show_default=False)]


@app.command()
def create(
    name: NameArgument,
    role: Annotated[Role, typer.Option(help="What the account may do in its tenant.", show_default=False)],
    store: StoreOption = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Create an account. The password is read from standard input; a terminal asks for it, and does not show it."""
    password = read_secret("Password")
    made = with_access(store, tenant, lambda access: access.create_account(name, role, password), creates=True)
    if output is Format.JSON:
        show_json(made)
    else:
        print_text(f"account '{name}' is created")


@app.command("list")
def list_accounts(store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the accounts of a tenant."""
    from tidemill.cli.item_list import show_items

    accounts = with_access(store, tenant, lambda access: access.list_accounts())
    columns = {
        "name": "account",
        "role": "role",
        "created_at": "created",
        "last_login_at": "last login",
        "locked_until": "locked until",
    }
    show_items(accounts, columns, output, empty="no accounts", droppable=["created_at", "locked_until"])


@app.command()
def delete(
    name: NameArgument, store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Delete an account, and end its sessions."""
    with_access(store, tenant, lambda access: access.delete_account(name))
    if output is Format.JSON:
        show_json({"account": name, "deleted": True})
    else:
        print_text(f"account '{name}' is deleted")
