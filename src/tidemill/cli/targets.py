"""Finds what a command works on: a server, or a store directly.

An option goes before the environment, and the environment before the profile in use. Two that say different things are
an error: a command must not change what its user did not mean.
"""

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tidemill.cli.profiles import Profile, profiles_file, read_profiles
from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings

if TYPE_CHECKING:
    from tidemill.client import AsyncClient

SERVER_VARIABLE = "TIDEMILL_SERVER"
KEY_VARIABLE = "TIDEMILL_KEY"

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Work with a server, such as http://127.0.0.1:8080. Default: $TIDEMILL_SERVER.",
        show_default=False,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Work with the server of a profile.", show_default=False),
]


class GivenOptions(NamedTuple):
    """The options of all commands, as the command line has them."""

    server: str | None = None
    profile: str | None = None
    store: str | None = None
    tenant: str | None = None
    output: str | None = None


given_options: ContextVar[GivenOptions] = ContextVar("given_options", default=GivenOptions())  # noqa: B039, a value
"""What `shared_options` has read; a command gets store, tenant and output as its arguments."""


class StoreTarget(NamedTuple):
    """A store that the command opens itself."""

    address: str | None


class ServerTarget(NamedTuple):
    """A server that the command speaks to."""

    profile: Profile

    def client(self, tenant: str | None = None) -> "AsyncClient":
        """Return a client of the server, which acts for a tenant if it is not that of the key."""
        from tidemill.client import AsyncClient

        url, key, own_tenant = self.profile
        return AsyncClient(url, key=key, tenant=tenant or own_tenant)


def find_target(store: str | None) -> StoreTarget | ServerTarget:
    """Return what a command works on, from its option --store, the server it names, and the environment."""
    options = given_options.get()
    if options.server and options.profile:
        raise RequestError("give --server or --profile, not both", code="several_targets")
    if (options.server or options.profile) and store:
        raise RequestError("give a server or --store, not both", code="several_targets")
    if options.profile:
        return ServerTarget(_with_key(read_profiles(profiles_file()).find(options.profile)))
    if options.server:
        return ServerTarget(_with_key(Profile(options.server)))
    return StoreTarget(store) if store else _find_in_environment()


def _find_in_environment() -> StoreTarget | ServerTarget:
    server, store = os.environ.get(SERVER_VARIABLE), Settings.read().store
    if server and store:
        message = f"both {SERVER_VARIABLE} and TIDEMILL_STORE are set: say which one with --server or --store"
        raise RequestError(message, code="several_targets")
    if server:
        return ServerTarget(_with_key(Profile(server)))
    if not store:
        profiles = read_profiles(profiles_file())
        if profiles.current is not None:
            return ServerTarget(_with_key(profiles.find(profiles.current)))
    return StoreTarget(store)


def find_server_of(place: str, store: str | None = None) -> ServerTarget | None:
    """Return the server that has a workflow or a graph, or None if it is in a file or a module here.

    A name is that of something on the server, if the command works with one.
    """
    options, is_file = given_options.get(), place.partition(":")[0].endswith(".py")
    is_named = bool(options.server or options.profile)
    if is_named and is_file:
        option = "--server" if options.server else "--profile"
        message = f"'{place}' is a file, and a server runs what it has loaded: name that, or leave out {option}"
        raise RequestError(message, code="several_targets")
    if not is_named and (is_file or ":" in place or "/" in place):
        return None
    target = find_target(store)
    return target if isinstance(target, ServerTarget) else None


def require_server() -> ServerTarget:
    """Return the server of a command that works only with one."""
    target = find_target(None)
    if isinstance(target, StoreTarget):
        raise missing_server_error()
    return target


def missing_server_error(store: str | None = None) -> RequestError:
    """Return the error for a command that needs a running server, and has this --store, another store, or nothing."""
    way = f"name one with --server URL, with {SERVER_VARIABLE}, or with a profile (`tidemill profile add`)"
    current = read_profiles(profiles_file()).current
    if current:  # its server would be in use, if no store went before it
        way = f"name the profile in use with --profile {current}, because TIDEMILL_STORE goes before it"
    if store:
        way = f"leave out --store, and the profile '{current}' is used" if current else f"instead of --store, {way}"
    return RequestError(f"this works with a running server, not on a store: {way}", code="no_server")


def _with_key(profile: Profile) -> Profile:
    """Return a profile with the key of the environment, which goes before its own."""
    return profile._replace(key=os.environ.get(KEY_VARIABLE) or profile.key)
