"""Accumulators: their state, what they take, and restarts. Pushes have routes that read events of several formats."""

from typing import Annotated

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import NameOf
from tidemill.api.operation import GET, POST, CommandForm, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services
from tidemill.graphs.state import AccumulatorState
from tidemill.graphs.views import AccumulatorDetails

AccumulatorName = Annotated[str, NameOf("accumulator")]


@operation(
    GET("/accumulators"),
    Permission.READ,
    command=CommandForm(
        "accumulator list",
        columns=("name", "health", "events", "dead_letters", "kind", "emitted", "counted_since", "last_event_at"),
        empty="no accumulators",
    ),
)
async def list_accumulators(services: Services, caller: Principal, page: PageRequest) -> Page[AccumulatorState]:
    """List the accumulators by name, with their state."""
    accumulators = await services.graphs.list_accumulators(caller)
    return page_of(accumulators, page, key=lambda one: one.name, view=lambda one: one)


@operation(
    GET("/accumulators/{name}"), Permission.READ, resource="accumulators", command=CommandForm("accumulator show")
)
async def get_accumulator(services: Services, caller: Principal, name: AccumulatorName) -> AccumulatorDetails:
    """Return the state of an accumulator, and the JSON Schema of its events."""
    return await services.graphs.accumulator(caller, name)


@operation(
    POST("/accumulators/{name}/restart"),
    Permission.WRITE,
    audit="accumulator.restart",
    resource="accumulators",
    command=CommandForm("accumulator restart", done="accumulator '{name}' is restarted: {health}"),
)
async def restart_accumulator(services: Services, caller: Principal, name: AccumulatorName) -> AccumulatorDetails:
    """Restart a failed or hanging accumulator."""
    return await services.graphs.restart_accumulator(caller, name)
