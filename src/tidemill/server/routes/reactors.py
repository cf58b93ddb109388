"""Reactors: state, firings, recoveries and commands.

A reactor that another tenant shares is read as `tenant/name`, where its own reactors have only a name.
"""

from typing import Annotated, Any

import msgspec
from litestar.params import FromPath, JSONBody, QueryParameter

from tidemill.api.paging import DEFAULT_LIMIT, Page, PageRequest, decode_cursor, encode_cursor, page_after, page_of
from tidemill.engine.graphs.client.operations import FIRING_COMMANDS
from tidemill.engine.graphs.client.values import CommandResult, FiringView, ReactorCommand
from tidemill.graphs.key_forms import key_from_json, parse_key
from tidemill.graphs.state import ReactorState, Recovery
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.server.injection import InjectedCaller, InjectedContext, InjectedKeyed
from tidemill.server.paging import Cursor, Limit


class CommandRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command to a reactor."""

    command: Annotated[ReactorCommand, msgspec.Meta(description="What the reactor is to do.", examples=["fire_with"])]
    inputs: Annotated[
        dict[str, Any] | None,
        msgspec.Meta(
            description="The inputs of `fire_with`, by accumulator; those that are left out are absent afterwards.",
            examples=[{"orderbook": {"bid": 1.0, "ask": 1.1}}],
        ),
    ] = None
    key: Annotated[
        Any,
        msgspec.Meta(
            description="The key to fire, of a keyed reactor: text, a whole number, a list of them, or "
            '`{"bytes": BASE64}`.',
            examples=["BTC"],
        ),
    ] = None


_Key = Annotated[
    str | None,
    QueryParameter(
        description="Of a keyed reactor: one key. Text as it is; numbers and lists as JSON, and text in quotes if it "
        'would be read as one of them: `42` is a number, `"42"` is text, `["XETRA","SAP"]` is a tuple.',
        required=False,
    ),
]


def _parse(key: str | None) -> Any:
    return None if key is None else parse_key(key)


class Timeseries(msgspec.Struct, frozen=True):
    """Firing counts."""

    per_minute: list[int]
    """The firings of each of the last 60 minutes, oldest first, the current minute last."""


async def list_reactors(
    context: InjectedContext, caller: InjectedCaller, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[ReactorState]:
    """List the reactors with their state."""
    reactors = await context.node.graph_client.list_reactors(caller)
    return page_of(reactors, PageRequest(limit, cursor), key=lambda one: one.name, view=lambda one: one)


async def get_reactor(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], key: _Key = None
) -> ReactorState:
    """Return the state of a reactor, or of one key: health, cache, flags, queue and counters, with its accumulators."""
    return await context.node.graph_client.reactor_state(caller, name, _parse(key))


async def list_firings(
    context: InjectedContext,
    caller: InjectedCaller,
    name: FromPath[str],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
    key: _Key = None,
) -> Page[FiringView]:
    """List the firings of a reactor, or of one key, newest first; of each partition, the newest 200 are kept."""
    page = await context.node.graph_client.firings(caller, name, limit, decode_cursor(cursor), _parse(key))
    following = encode_cursor(page.firings[-1].id) if page.has_more else None
    return Page(items=page.firings, total=page.kept, next=following)


async def get_timeseries(context: InjectedContext, caller: InjectedCaller, name: FromPath[str]) -> Timeseries:
    """Return how often a reactor has fired in each of the last 60 minutes."""
    return Timeseries(await context.node.graph_client.timeseries(caller, name))


async def list_recoveries(
    context: InjectedContext,
    caller: InjectedCaller,
    name: FromPath[str],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Recovery]:
    """List the recoveries of a reactor and its accumulators, newest first."""
    recoveries = await context.node.graph_client.recoveries(caller, name)
    return page_after(recoveries, PageRequest(limit, cursor), key=_recovery_key)


def _recovery_key(recovery: Recovery) -> str:
    return f"{recovery.at.isoformat()} {recovery.component} {recovery.name} {recovery.action} {recovery.failures}"


async def command_reactor(
    context: InjectedContext,
    caller: InjectedCaller,
    keyed: InjectedKeyed,
    name: FromPath[str],
    data: JSONBody[CommandRequest],
) -> CommandResult:
    """Pause, resume, restart or fire a reactor.

    `force_fire` fires with the cache as it is, `fire_with` with the given inputs; both return the firing. If the
    reactor has keys, they need the `key`.
    """
    if keyed is not None and keyed.was_lost and data.command in FIRING_COMMANDS:
        keyed.is_final = True
        raise _outcome_unknown_error(name, data.command)
    try:
        return await context.node.graph_client.command(caller, name, data.command, data.inputs, key_from_json(data.key))
    except StoreError:  # before it was carried out
        if keyed is not None:
            keyed.had_no_effect = True
        raise


def _outcome_unknown_error(name: str, command: ReactorCommand) -> RequestError:
    message = (
        f"the server that handled this request ended before it answered, and '{command}' may have fired: look at the "
        f"firings of reactor '{name}', and repeat the command with a new key if there is none"
    )
    return RequestError(message, code="outcome_unknown", status=409, reactor=name)


async def get_shared_reactor(
    context: InjectedContext, caller: InjectedCaller, owner: FromPath[str], name: FromPath[str], key: _Key = None
) -> ReactorState:
    """Return the state of a reactor that another tenant shares, or of one of its keys."""
    return await get_reactor(context, caller, f"{owner}/{name}", key)


async def list_shared_firings(
    context: InjectedContext,
    caller: InjectedCaller,
    owner: FromPath[str],
    name: FromPath[str],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
    key: _Key = None,
) -> Page[FiringView]:
    """List the firings of a reactor that another tenant shares, or of one of its keys, newest first."""
    return await list_firings(context, caller, f"{owner}/{name}", limit, cursor, key)


async def get_shared_timeseries(
    context: InjectedContext, caller: InjectedCaller, owner: FromPath[str], name: FromPath[str]
) -> Timeseries:
    """Return how often a reactor that another tenant shares has fired in each of the last 60 minutes."""
    return await get_timeseries(context, caller, f"{owner}/{name}")
