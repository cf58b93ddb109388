"""`tidemill profile`: the servers that this user works with."""

from typing import Annotated

import typer

from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.value_input import read_secret

app = typer.Typer(help="Add, use, list and remove servers.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a profile.", show_default=False)]


@app.command()
def add(
    name: NameArgument,
    server: Annotated[str, typer.Option(metavar="URL", help="The address of the server.", show_default=False)],
    tenant: Annotated[
        str | None, typer.Option(help="The tenant that an admin of the instance acts for.", show_default=False)
    ] = None,
) -> None:
    """Add a server, or replace one. The key is read from standard input; a terminal asks for it, and does not show it.

    The first profile is in use at once. Example: tidemill profile add prod --server https://tidemill.example.com
    """
    from tidemill.cli.profiles import (
        Profile,
        Profiles,
        check_profile_name,
        profiles_file,
        read_profiles,
        write_profiles,
    )
    from tidemill.client.connection import Connection

    with exit_on_error():
        check_profile_name(name)
        url = Connection(server).url
        file = profiles_file()
        profiles = read_profiles(file)
        key = read_secret("API key (empty for none)")
        by_name = {**profiles.by_name, name: Profile(url, key or None, tenant)}
        write_profiles(file, Profiles(by_name, profiles.current or name))
    print_text(f"profile '{name}' is {url}, {'with' if key else 'without'} a key")


@app.command("list")
def list_profiles(output: Output = Format.TABLE) -> None:
    """List the profiles, without their keys."""
    from tidemill.cli.item_list import show_items
    from tidemill.cli.profiles import profiles_file, read_profiles

    with exit_on_error():
        profiles = read_profiles(profiles_file())
    items = [
        {
            "profile": name,
            "server": one.server,
            "tenant": one.tenant,
            "has_key": one.key is not None,
            "in_use": name == profiles.current,
        }
        for name, one in profiles.by_name.items()
    ]
    columns = {"profile": "profile", "server": "server", "tenant": "tenant", "has_key": "key", "in_use": "in use"}
    show_items(items, columns, output, empty="no profiles; add one with `tidemill profile add`", droppable=["tenant"])


@app.command()
def use(name: NameArgument, output: Output = Format.TABLE) -> None:
    """Use a profile wherever no other server and no store is named."""
    from tidemill.cli.profiles import profiles_file, read_profiles, write_profiles

    with exit_on_error():
        file = profiles_file()
        profiles = read_profiles(file)
        profile = profiles.find(name)
        write_profiles(file, profiles._replace(current=name))
    if output is Format.JSON:
        show_json({"profile": name, "server": profile.server})
    else:
        print_text(f"profile '{name}' is in use: {profile.server}")


@app.command()
def remove(name: NameArgument, output: Output = Format.TABLE) -> None:
    """Remove a profile with its key."""
    from tidemill.cli.profiles import Profiles, profiles_file, read_profiles, write_profiles

    with exit_on_error():
        file = profiles_file()
        profiles = read_profiles(file)
        profiles.find(name)
        others = {other: one for other, one in profiles.by_name.items() if other != name}
        write_profiles(file, Profiles(others, None if profiles.current == name else profiles.current))
    if output is Format.JSON:
        show_json({"profile": name, "removed": True})
    else:
        print_text(f"profile '{name}' is removed")
