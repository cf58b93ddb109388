"""Dead letters: events, firings and starts of runs that failed for good, to inspect, replay and drop."""

from collections.abc import Sequence

from litestar.params import FromPath

from tidemill.engine.graphs.client.values import ReplayResult
from tidemill.graphs.result import DeadLetter
from tidemill.kernel.errors import NotFoundError
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import DEFAULT_LIMIT, Cursor, Limit, Page, page_of


def _page(found: Sequence[DeadLetter], limit: int, cursor: str | None) -> Page[DeadLetter]:
    return page_of(found, limit=limit, cursor=cursor, key=lambda one: one.id, view=lambda one: one, descending=True)


def _find(found: Sequence[DeadLetter], id: str) -> DeadLetter:
    for one in found:
        if one.id == id:
            return one
    raise NotFoundError("dead_letter", id, f"there is no dead letter '{id}' here: it was replayed or dropped")


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
    return _find(await context.node.graph_client.dead_letters(caller, "accumulator", name), id)


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
    return _find(await context.node.graph_client.dead_letters(caller, "reactor", name), id)


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
