"""Older versions of packages: what was imported for them is kept until nothing that runs needs it any more.

A run goes on with the version that it began with, a task and a firing end on the code that they began on, and each may
import from its package at any moment. Nobody tells when the last of them has ended: it is looked for, at once, and then
again and again with growing delays, as long as there is something to look for.
"""

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from tidemill.engine.tasks import TaskScope
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

UsageCheck = Callable[[], bool]
"""Asks whether something that was needed when this was made still is."""


class Keepsake(Protocol):
    """What must outlive a package that was imported: its modules, and the files they came from."""

    def release(self) -> None:
        """Let it all go; again is no error."""


class Tidier(Protocol):
    """What knows which versions of workflows runs need."""

    async def collect_versions(self, on_discarded: Callable[[], None]) -> None:
        """Forget versions that no run needs any more; `forgotten` is called now, and whenever one is forgotten."""


class RetiredVersions:
    """What is kept of versions that are no longer in place."""

    def __init__(self, engine: Tidier, tasks: TaskScope, clock: Clock, backoff: Backoff) -> None:
        self._engine = engine
        self._tasks = tasks
        self._clock = clock
        self._backoff = backoff
        self._retired: list[_RetiredVersion] = []
        self._sweep_count = 0
        self._is_sweeping = False

    def add(self, reference: Keepsake, usage_checks: Iterable[UsageCheck]) -> None:
        """Keep this as long as any of these needs holds."""
        self._retired.append(_RetiredVersion(reference, tuple(usage_checks)))
        self._sweep_count = 0

    def has(self, reference: Keepsake) -> bool:
        """Return whether this is kept here."""
        return any(one.reference is reference for one in self._retired)

    async def collect(self) -> None:
        """Let go of what nothing needs any more; look again later for what is left."""
        await self._collect_unused()
        if self._retired and not self._is_sweeping and not self._tasks.is_closed:
            self._is_sweeping = True
            self._tasks.start("packages: older versions", self._sweep_until_empty())

    async def _sweep_until_empty(self) -> None:
        try:
            while self._retired:
                self._sweep_count += 1
                await self._clock.sleep(self._backoff.delay(self._sweep_count))
                await self._collect_unused()
        finally:
            self._is_sweeping = False

    async def _collect_unused(self) -> None:
        if self._retired:
            try:
                await self._engine.collect_versions(self._release_unused)
            except StoreError as error:  # it only means that older versions are kept a while longer
                logger.warning(events.PACKAGE_VERSION_COLLECTION_FAILED, extra={"error": str(error)})

    def _release_unused(self) -> None:
        older, self._retired = self._retired, []
        for one in older:
            if any(is_needed() for is_needed in one.usage_checks):
                self._retired.append(one)
            else:
                one.reference.release()

    def release_all(self) -> None:
        """Let everything go, needed or not."""
        older, self._retired = self._retired, []
        for one in older:
            one.reference.release()


class _RetiredVersion(NamedTuple):
    """What was imported for a version, and who may need it."""

    reference: Keepsake
    usage_checks: tuple[UsageCheck, ...]
