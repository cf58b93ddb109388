"""Reactors: state, firings, what the supervisor did, and commands.

A reactor that another tenant shares is read as `tenant/name`, where the tenant's own reactors have only a name.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import NameOf, TenantName
from tidemill.api.operation import GET, POST, CommandForm, RequestKey, operation
from tidemill.api.paging import Page, PageRequest, decode_cursor, encode_cursor, page_after, page_of
from tidemill.api.services import Services
from tidemill.graphs.key_forms import key_from_json, parse_key
from tidemill.graphs.state import ReactorState, Recovery
from tidemill.graphs.views import FIRING_COMMANDS, CommandResult, FiringView, ReactorCommand
from tidemill.kernel.errors import RequestError

ReactorName = Annotated[str, NameOf("reactor")]
ReadableName = Annotated[ReactorName, TenantName()]
"""The name of a reactor, which may be of another tenant that shares it."""
Key = Annotated[
    str | None,
    Meta(
        description="Of a keyed reactor: one key. Text as it is; numbers and lists as JSON, and text in quotes if it "
        'would be read as one of them: `42` is a number, `"42"` is text, `["XETRA","SAP"]` is a tuple.'
    ),
]
Command = Annotated[ReactorCommand, Meta(description="What the reactor is to do.", examples=["fire_with"])]
FiringInputs = Annotated[
    dict[str, Any] | None,
    Meta(
        description="The inputs of `fire_with`, by accumulator; those that are left out are absent afterwards.",
        examples=[{"orderbook": {"bid": 1.0, "ask": 1.1}}],
    ),
]
JsonKey = Annotated[
    Any,
    Meta(
        description="The key to fire, of a keyed reactor: text, a whole number, a list of them, or "
        '`{"bytes": BASE64}`.',
        examples=["BTC"],
    ),
]


class Timeseries(msgspec.Struct, frozen=True):
    """Firing counts."""

    per_minute: list[int]
    """The firings of each of the last 60 minutes, oldest first, the current minute last."""


def _parse(key: str | None) -> Any:
    return None if key is None else parse_key(key)


def _recovery_key(one: Recovery) -> str:
    return f"{one.at.isoformat()} {one.component} {one.name} {one.action} {one.failures}"


@operation(
    GET("/reactors"),
    Permission.READ,
    command=CommandForm(
        "reactor list",
        columns=("name", "health", "paused", "fires", "failures", "queued", "incomplete"),
        empty="no reactors",
    ),
)
async def list_reactors(services: Services, caller: Principal, page: PageRequest) -> Page[ReactorState]:
    """List the reactors by name, with their state."""
    reactors = await services.graphs.list_reactors(caller)
    return page_of(reactors, page, key=lambda one: one.name, view=lambda one: one)


@operation(GET("/reactors/{name}"), Permission.READ, resource="reactors", command=CommandForm("reactor state"))
async def get_reactor(services: Services, caller: Principal, name: ReadableName, key: Key = None) -> ReactorState:
    """Return the state of a reactor, or of one key: health, cache, flags, queue and counters, with its accumulators."""
    return await services.graphs.reactor_state(caller, name, _parse(key))


@operation(
    GET("/reactors/{name}/firings"),
    Permission.READ,
    resource="reactors",
    default_limit=50,
)
async def list_firings(
    services: Services, caller: Principal, page: PageRequest, name: ReadableName, key: Key = None
) -> Page[FiringView]:
    """List the firings of a reactor, or of one key, newest first; of each partition, the newest 200 are kept."""
    found = await services.graphs.firings(caller, name, page.limit, decode_cursor(page.cursor), _parse(key))
    following = encode_cursor(found.firings[-1].id) if found.has_more else None
    runs = await services.workflows.runs.of_firings(caller, [one.id for one in found.firings])
    items = [replace(one, runs=runs[one.id]) if one.id in runs else one for one in found.firings]
    return Page(items=items, total=found.kept, next=following)


@operation(GET("/reactors/{name}/timeseries"), Permission.READ, resource="reactors")
async def get_timeseries(services: Services, caller: Principal, name: ReadableName) -> Timeseries:
    """Return how often a reactor has fired in each of the last 60 minutes."""
    return Timeseries(await services.graphs.timeseries(caller, name))


@operation(
    GET("/reactors/{name}/recoveries"),
    Permission.READ,
    resource="reactors",
    command=CommandForm(
        "reactor events", columns=("at", "component", "name", "action", "reason"), empty="nothing was restarted"
    ),
    default_limit=50,
)
async def list_recoveries(
    services: Services, caller: Principal, page: PageRequest, name: ReactorName
) -> Page[Recovery]:
    """List what the supervisor did with a reactor and its accumulators, newest first."""
    return page_after(await services.graphs.recoveries(caller, name), page, key=_recovery_key)


@operation(POST("/reactors/{name}/commands"), Permission.WRITE, audit="reactor.command", resource="reactors")
async def command_reactor(
    services: Services,
    caller: Principal,
    name: ReactorName,
    command: Command,
    inputs: FiringInputs = None,
    key: JsonKey = None,
    request: RequestKey | None = None,
) -> CommandResult:
    """Pause, resume, restart or fire a reactor.

    `force_fire` fires with the cache as it is, `fire_with` with the given inputs; both return the firing. If the
    reactor has keys, they need the `key`.
    """
    if request is not None and request.was_lost and command in FIRING_COMMANDS:
        raise _outcome_unknown_error(name, command)
    return await services.graphs.command(caller, name, command, inputs, key_from_json(key))


def _outcome_unknown_error(name: ReactorName, command: ReactorCommand) -> RequestError:
    message = (
        f"the server that handled this request ended before it answered, and '{command}' may have fired: look at the "
        f"firings of reactor '{name}', and repeat the command with a new key if there is none"
    )
    return RequestError(message, code="outcome_unknown", status=409, reactor=name)
