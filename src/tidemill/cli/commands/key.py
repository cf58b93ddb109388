"""`tidemill key`: the API keys of a tenant, on a server or directly on a store."""

from typing import Annotated

import typer

from tidemill.access.principal import Role
from tidemill.cli.access_admin import KeyRequest
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.opening import with_access
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.stores import StoreOption, TenantOption

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)

COLUMNS = {
    "id": "key",
    "role": "role",
    "only": "only",
    "label": "label",
    "created_at": "created",
    "expires_at": "expires",
    "last_used_at": "last used",
    "revoked_at": "revoked",
}


@app.command()
def create(
    role: Annotated[Role, typer.Option(help="What the key may do in its tenant.", show_default=False)],
    expires: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long the key is valid: 90d. Default: until it is revoked."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="ENDPOINTS",
            help="Restrict the key to endpoints: accumulators:orderbook,reactors:market.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="What the key is for.", show_default=False)] = "",
    store: StoreOption = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Create an API key, and print it. It is shown this once, and not stored.

    On a store it makes the first key, before the first start of a server: tidemill key create --role admin --store
    ADDRESS
    """
    from tidemill.client.calls import seconds

    with exit_on_error():
        lifetime = None if expires is None else seconds("--expires", expires)
    endpoints = None if only is None else [one for one in only.split(",") if one]
    request = KeyRequest(role, lifetime, endpoints, label)
    made = with_access(store, tenant, lambda access: access.create_key(request), creates=True)
    if output is Format.JSON:
        show_json(made)
    else:
        print_text(made["key"])


@app.command("list")
def list_keys(store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the API keys of a tenant, without their secret part."""
    from tidemill.cli.item_list import show_items

    keys = with_access(store, tenant, lambda access: access.list_keys())
    dropped = ["label", "created_at", "last_used_at", "only"]
    show_items(keys, COLUMNS, output, empty="no keys; make one with `tidemill key create`", droppable=dropped)


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a key, as `key list` shows it.")],
    store: StoreOption = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Revoke an API key at once: requests with it are refused, and open connections end."""
    with_access(store, tenant, lambda access: access.revoke_key(id))
    if output is Format.JSON:
        show_json({"id": id, "revoked": True})
    else:
        print_text(f"key {id} is revoked")
