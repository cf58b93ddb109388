"""`tidemill secret`: encrypted values that only author code reads, on a server or directly on a store."""

from typing import Annotated

import typer

from tidemill.cli.formatting import format_count
from tidemill.cli.opening import with_access
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.secret_input import read_secret
from tidemill.cli.stores import StoreOption, TenantOption

app = typer.Typer(help="List, set and delete secrets.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a secret.", show_default=False)]


@app.command("list")
def list_secrets(store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the secrets of a tenant. No command shows their values."""
    from tidemill.cli.item_list import show_items

    secrets = with_access(store, tenant, lambda access: access.list_secrets())
    columns = {
        "name": "secret",
        "version": "version",
        "key_id": "master key",
        "updated_at": "updated",
        "updated_by": "by",
    }
    show_items(secrets, columns, output, empty="no secrets", droppable=["updated_by", "key_id", "updated_at"])


@app.command("set")
def set_secret(
    name: NameArgument, store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Set a secret. The value is read from standard input; a terminal asks for it, and does not show it."""
    value = read_secret(f"Value of '{name}'")
    secret = with_access(store, tenant, lambda access: access.set_secret(name, value))
    if output is Format.JSON:
        show_json(secret)
    else:
        print_text(f"secret '{name}' is set, version {secret['version']}")


@app.command()
def delete(
    name: NameArgument, store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Delete a secret."""
    with_access(store, tenant, lambda access: access.delete_secret(name))
    if output is Format.JSON:
        show_json({"secret": name, "deleted": True})
    else:
        print_text(f"secret '{name}' is deleted")


@app.command()
def rotate(store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """Protect all secrets of all tenants with the current master key, the first of the setting secret_keys.

    Afterwards the older keys can be removed from the setting. An interrupted rotation continues where it was.
    """
    number = with_access(store, None, lambda access: access.rotate_secrets())
    if output is Format.JSON:
        show_json({"rotated": number})
    else:
        print_text(f"{format_count(number, 'secret')} rotated to the current master key")
