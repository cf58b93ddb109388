"""Triggers: what starts workflows besides the clock."""

from litestar.params import FromPath, JSONBody

from tidemill.api.paging import DEFAULT_LIMIT, Page, PageRequest, page_of
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import Cursor, Limit
from tidemill.server.routes.workflows import PauseState
from tidemill.server.views.schedules import TriggerView, to_trigger


async def list_triggers(
    context: InjectedContext, caller: InjectedCaller, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[TriggerView]:
    """List the triggers of the loaded workflows by name."""
    triggers = await context.node.workflow_client.catalog.triggers(caller)
    return page_of(triggers, PageRequest(limit, cursor), key=lambda one: one.name, view=to_trigger)


async def patch_trigger(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], data: JSONBody[PauseState]
) -> TriggerView:
    """Pause or resume a trigger: while it is paused, it is not polled."""
    catalog = context.node.workflow_client.catalog
    return to_trigger(await catalog.set_trigger_paused(caller, name, paused=data.paused))
