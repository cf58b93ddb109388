"""Tries the stored state of reactors with the classes of a package that is not loaded."""

from collections.abc import Awaitable, Callable

import msgspec

from tidemill.engine.graphs.checkpoints.kept_values import Managed, ReactorLayout, sample_kept_values
from tidemill.graphs.snapshot import KeptValue
from tidemill.packages.loading.metadata import PackageMetadata
from tidemill.storage.store import Store

Probe = Callable[[tuple[KeptValue, ...]], Awaitable[PackageMetadata]]
"""Imports the package in a separate process, which tries to read the values there."""


class StateCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a package reads of the kept state of its reactors."""

    unread: tuple[str, ...] = ()
    """What it does not read, in words, by accumulator."""
    values: int = 0
    """How many values were tried."""
    is_complete: bool = True
    """Whether these are all."""


async def check_kept_state(store: Store, tenant: str, probe: Probe, managed: Managed) -> StateCheck:
    """Try to read the kept state of a package's reactors, of which some may run here, with its classes."""
    layouts = [
        ReactorLayout(one.name, tuple(own.name for own in one.accumulators), one.partitions)
        for one in (await probe(())).reactors
    ]
    values, is_complete = await sample_kept_values(store, tenant, layouts, managed)
    unread = (await probe(tuple(values))).unread if values else ()
    return StateCheck(unread=unread, values=len(values), is_complete=is_complete)
