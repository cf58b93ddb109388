"""Dead letters: events, firings and starts of runs that failed for good, to inspect, replay and drop."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.operation import DELETE, GET, POST, CommandForm, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services
from tidemill.graphs.outcomes import DeadLetter
from tidemill.graphs.views import ReplayResult

Source = Annotated[str | None, Meta(description="Only those of this reactor or accumulator.")]
LetterId = Annotated[str, Meta(description="The id of a dead letter, or its end.")]
EditedEvent = Annotated[
    Any, Meta(description="Another event, which is processed instead.", examples=[{"bid": 1.0, "ask": 1.1}])
]


def _page(found: Sequence[DeadLetter], page: PageRequest) -> Page[DeadLetter]:
    return page_of(found, page, key=lambda one: one.id, view=lambda one: one, descending=True)


@operation(
    GET("/dead-letters"),
    Permission.READ,
    command=CommandForm(
        "dead-letter list", columns=("id", "kind", "source", "error", "at", "workflow"), empty="no dead letters"
    ),
)
async def list_dead_letters(
    services: Services, caller: Principal, page: PageRequest, source: Source = None
) -> Page[DeadLetter]:
    """List the dead letters of the tenant, newest first; `omitted` names values that are too large for a list."""
    found = await services.dead_letters.list_all(caller)
    return _page([one for one in found if source in (None, one.source)], page)


@operation(GET("/dead-letters/{id}"), Permission.READ, command=CommandForm("dead-letter show"))
async def get_dead_letter(services: Services, caller: Principal, id: LetterId) -> DeadLetter:
    """Return a dead letter: what failed, why, and the values that it failed on."""
    return await services.dead_letters.get_by_end(caller, id)


@operation(POST("/dead-letters/{id}/replay"), Permission.WRITE, audit="dead_letter.replay")
async def replay_dead_letter(
    services: Services, caller: Principal, id: LetterId, event: EditedEvent = None
) -> ReplayResult:
    """Process a dead event, firing or start again; if that fails it stays a dead letter.

    An event may be edited: it is pushed instead, and the dead letter is dropped if it is accepted.
    """
    return await services.graphs.dead_letters.replay_by_end(caller, id, event)


@operation(DELETE("/dead-letters/{id}"), Permission.WRITE, audit="dead_letter.drop")
async def drop_dead_letter(services: Services, caller: Principal, id: LetterId) -> None:
    """Delete a dead letter."""
    await services.graphs.dead_letters.drop_by_end(caller, id)


@operation(GET("/accumulators/{name}/dead-letters"), Permission.READ, resource="accumulators")
async def list_accumulator_dead_letters(
    services: Services, caller: Principal, page: PageRequest, name: str
) -> Page[DeadLetter]:
    """List the dead letters of an accumulator, newest first."""
    return _page(await services.graphs.dead_letters.list_of(caller, "accumulator", name), page)


@operation(GET("/accumulators/{name}/dead-letters/{id}"), Permission.READ, resource="accumulators")
async def get_accumulator_dead_letter(services: Services, caller: Principal, name: str, id: str) -> DeadLetter:
    """Return a dead letter of an accumulator."""
    return await services.graphs.dead_letters.get(caller, "accumulator", name, id)


@operation(
    POST("/accumulators/{name}/dead-letters/{id}/replay"),
    Permission.WRITE,
    audit="dead_letter.replay",
    resource="accumulators",
)
async def replay_accumulator_dead_letter(
    services: Services, caller: Principal, name: str, id: str, event: EditedEvent = None
) -> ReplayResult:
    """Process a dead event again, or another one instead; if that fails it stays a dead letter."""
    return await services.graphs.dead_letters.replay(caller, "accumulator", name, id, event)


@operation(
    DELETE("/accumulators/{name}/dead-letters/{id}"),
    Permission.WRITE,
    audit="dead_letter.drop",
    resource="accumulators",
)
async def drop_accumulator_dead_letter(services: Services, caller: Principal, name: str, id: str) -> None:
    """Delete a dead letter of an accumulator."""
    await services.graphs.dead_letters.drop(caller, "accumulator", name, id)


@operation(GET("/reactors/{name}/dead-letters"), Permission.READ, resource="reactors")
async def list_reactor_dead_letters(
    services: Services, caller: Principal, page: PageRequest, name: str
) -> Page[DeadLetter]:
    """List the dead letters of a reactor and its accumulators, newest first."""
    return _page(await services.graphs.dead_letters.list_of(caller, "reactor", name), page)


@operation(GET("/reactors/{name}/dead-letters/{id}"), Permission.READ, resource="reactors")
async def get_reactor_dead_letter(services: Services, caller: Principal, name: str, id: str) -> DeadLetter:
    """Return a dead letter of a reactor or of one of its accumulators."""
    return await services.graphs.dead_letters.get(caller, "reactor", name, id)


@operation(
    POST("/reactors/{name}/dead-letters/{id}/replay"),
    Permission.WRITE,
    audit="dead_letter.replay",
    resource="reactors",
)
async def replay_reactor_dead_letter(
    services: Services, caller: Principal, name: str, id: str, event: EditedEvent = None
) -> ReplayResult:
    """Process a dead event, firing or start again, or another event instead; if that fails it stays a dead letter."""
    return await services.graphs.dead_letters.replay(caller, "reactor", name, id, event)


@operation(
    DELETE("/reactors/{name}/dead-letters/{id}"), Permission.WRITE, audit="dead_letter.drop", resource="reactors"
)
async def drop_reactor_dead_letter(services: Services, caller: Principal, name: str, id: str) -> None:
    """Delete a dead letter of a reactor or of one of its accumulators."""
    await services.graphs.dead_letters.drop(caller, "reactor", name, id)
