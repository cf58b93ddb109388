"""Dead letters: events, firings and starts of runs that failed for good, to inspect, replay and drop."""

from collections.abc import Sequence

from litestar.params import FromPath

from tidemill.api.paging import DEFAULT_LIMIT, Page, PageRequest, page_of
from tidemill.engine.graphs.client.values import ReplayResult
from tidemill.graphs.result import DeadLetter
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import Cursor, Limit


def _page(found: Sequence[DeadLetter], limit: int, cursor: str | None) -> Page[DeadLetter]:
    return page_of(found, PageRequest(limit, cursor), key=lambda one: one.id, view=lambda one: one, descending=True)


async def list_accumulator_dead_letters(
    context: InjectedContext,
    caller: InjectedCaller,
    name: FromPath[str],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[DeadLetter]:
    """List the dead letters of an accumulator, newest first."""
    return _page(await context.node.graph_client.dead_letters(caller, "accumulator", name), limit, cursor)


async def get_accumulator_dead_letter(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], id: FromPath[str]
) -> DeadLetter:
    """Return a dead letter of an accumulator."""
    return await context.node.graph_client.dead_letter(caller, "accumulator", name, id)


async def replay_accumulator_dead_letter(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], id: FromPath[str]
) -> ReplayResult:
    """Process a dead event again; if that fails it stays a dead letter."""
    return await context.node.graph_client.replay(caller, "accumulator", name, id)


async def drop_accumulator_dead_letter(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], id: FromPath[str]
) -> None:
    """Delete a dead letter of an accumulator."""
    await context.node.graph_client.drop(caller, "accumulator", name, id)


async def list_reactor_dead_letters(
    context: InjectedContext,
    caller: InjectedCaller,
    name: FromPath[str],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[DeadLetter]:
    """List the dead letters of a reactor and its accumulators, newest first."""
    return _page(await context.node.graph_client.dead_letters(caller, "reactor", name), limit, cursor)


async def get_reactor_dead_letter(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], id: FromPath[str]
) -> DeadLetter:
    """Return a dead letter of a reactor or of one of its accumulators."""
    return await context.node.graph_client.dead_letter(caller, "reactor", name, id)


async def replay_reactor_dead_letter(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], id: FromPath[str]
) -> ReplayResult:
    """Process a dead event, firing or start again; if that fails it stays a dead letter."""
    return await context.node.graph_client.replay(caller, "reactor", name, id)


async def drop_reactor_dead_letter(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], id: FromPath[str]
) -> None:
    """Delete a dead letter of a reactor or of one of its accumulators."""
    await context.node.graph_client.drop(caller, "reactor", name, id)
