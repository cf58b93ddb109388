"""Retired versions: what was imported for them is kept until nothing that runs needs it.

A run continues with the version it began with, a task and a firing end on the code they began on, and each may import
from its package at any moment. Nothing reports when the last of them has ended. So the versions in use are checked
immediately, and then again with growing delays, as long as a retired version is left.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

if TYPE_CHECKING:  # a node that loads only definitions does not import what reads package files
    from tidemill.packages.loading.preparer import PackageReference

logger = logging.getLogger(__name__)

UsageCheck = Callable[[], bool]
"""Returns whether something that was in use when the check was made still is."""


class RetiredVersions:
    """Keeps the imported code of versions that are no longer in place until nothing uses it."""

    def __init__(self, engine: WorkflowEngine, tasks: TaskScope, clock: Clock, backoff: Backoff) -> None:
        self._engine = engine
        self._tasks = tasks
        self._clock = clock
        self._backoff = backoff
        self._retired: list[_RetiredVersion] = []
        self._sweep_count = 0
        self._is_sweeping = False
        engine.versions.listen(self._release_unused)

    def add(self, reference: "PackageReference", usage_checks: Iterable[UsageCheck]) -> None:
        """Keep a reference until all usage checks return False."""
        self._retired.append(_RetiredVersion(reference, tuple(usage_checks)))
        self._sweep_count = 0

    def has(self, reference: "PackageReference") -> bool:
        """Return whether a reference is kept here."""
        return any(one.reference is reference for one in self._retired)

    async def collect(self) -> None:
        """Release the versions that nothing uses; check the others again later."""
        await self._collect_unused()
        if self._retired and not self._is_sweeping and not self._tasks.is_closed:
            self._is_sweeping = True
            self._tasks.start("packages: retired versions", self._sweep_until_empty())

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
                await self._engine.collect_versions()
                self._release_unused()
            except StoreError as error:  # retired versions are only kept a while longer
                logger.warning(events.PACKAGE_VERSION_COLLECTION_FAILED, extra={"error": str(error)})

    def _release_unused(self) -> None:
        retired, self._retired = self._retired, []
        for version in retired:
            if any(is_in_use() for is_in_use in version.usage_checks):
                self._retired.append(version)
            else:
                version.reference.release()

    def release_all(self) -> None:
        """Release every version, in use or not."""
        retired, self._retired = self._retired, []
        for version in retired:
            version.reference.release()


class _RetiredVersion(NamedTuple):
    """The imported code of a version, and the checks for what may use it."""

    reference: "PackageReference"
    usage_checks: tuple[UsageCheck, ...]
