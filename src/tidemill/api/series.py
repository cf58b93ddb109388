"""Series: figures over time, which every node keeps for a day, so that a page shows history when it is opened."""

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.operation import GET, Message, operation
from tidemill.api.reactors import ReadableName
from tidemill.api.services import Services

EMITTED = "emitted/"
"""What the names of the series of accumulators begin with."""
OF_TENANTS = ("events", "firings", "p50", "p99")
"""The series of a server that each tenant has."""

Span = Annotated[
    int,
    Meta(
        ge=1,
        le=86_400,
        description="How far back the series go, in seconds: up to an hour they have a value for each second, "
        "otherwise one for each minute.",
    ),
]
Values = list[float | None]
"""One value for each step, oldest first; null where it is not known. The running second and minute are left out."""


class Series(Message, frozen=True, kw_only=True):
    """Figures over time."""

    start: datetime
    """When the first step begins."""
    step: int
    """Seconds between two values."""
    values: dict[str, Values]
    """By name: what a counter grew by in each step, or what a gauge was."""


class ReactorSeries(Message, frozen=True, kw_only=True):
    """A reactor over time."""

    start: datetime
    """When the first step begins."""
    step: int
    """Seconds between two values."""
    firings: Values
    """Firings in each step."""
    p50: Values
    """The median duration of the newest firings, in seconds."""
    p99: Values
    emitted: dict[str, Values]
    """Boundaries in each step, by accumulator."""


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@operation(GET("/reactors/{name}/series"), Permission.READ, resource="reactors")
async def get_reactor_series(
    services: Services, caller: Principal, name: ReadableName, seconds: Span = 3600
) -> ReactorSeries:
    """Return how often a reactor has fired, how long that took, and what its accumulators emitted, over time."""
    found = await services.graphs.courses(caller, name, seconds)
    values = found.values
    return ReactorSeries(
        start=_time(found.start),
        step=found.step,
        firings=values.get("firings", []),
        p50=values.get("p50", []),
        p99=values.get("p99", []),
        emitted={one.removeprefix(EMITTED): counts for one, counts in values.items() if one.startswith(EMITTED)},
    )


@operation(GET("/series/firings"), Permission.READ)
async def get_firing_series(services: Services, caller: Principal, seconds: Span = 60) -> Series:
    """Return how often each reactor has fired, over time; the values are by reactor."""
    found = await services.graphs.all_courses(caller, seconds)
    newest = max(found.values(), key=lambda one: one.start, default=None)
    return Series(
        start=_time(0 if newest is None else newest.start),
        step=1 if newest is None else newest.step,
        values={name: one.values.get("firings", []) for name, one in found.items()},
    )


@operation(GET("/system/series"), Permission.READ)
async def get_system_series(services: Services, caller: Principal, seconds: Span = 3600) -> Series:
    """Return the load of this server over time; an admin of the instance sees that of all tenants."""
    found = services.history.courses((), seconds)
    values = found.values
    if not caller.is_instance_admin:
        of_tenant = services.history.courses((caller.tenant,), seconds).values
        values = {name: one for name, one in values.items() if name not in OF_TENANTS} | of_tenant
    return Series(start=_time(found.start), step=found.step, values=values)
