"""Older versions of packages: what was imported for them is kept until nothing that runs needs it any more.

A run goes on with the version that it began with, a task and a firing end on the code that they began on, and each may
import from its package at any moment. Nobody tells when the last of them has ended: it is looked for, at once, and then
again and again with growing delays, as long as there is something to look for.
"""

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from tidemill.engine.service import Tasks
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

Need = Callable[[], bool]
"""Asks whether something that was needed when this was made still is."""


class Keepsake(Protocol):
    """What must outlive a package that was imported: its modules, and the files they came from."""

    def discard(self) -> None:
        """Let it all go; again is no error."""


class Tidier(Protocol):
    """What knows which versions of workflows runs need."""

    async def tidy(self, forgotten: Callable[[], None]) -> None:
        """Forget versions that no run needs any more; `forgotten` is called now, and whenever one is forgotten."""


class Superseded:
    """What is kept of versions that are no longer in place."""

    def __init__(self, engine: Tidier, tasks: Tasks, clock: Clock, backoff: Backoff) -> None:
        self._engine = engine
        self._tasks = tasks
        self._clock = clock
        self._backoff = backoff
        self._older: list[_Older] = []
        self._looks = 0
        self._is_looking = False

    def add(self, keepsake: Keepsake, needs: Iterable[Need]) -> None:
        """Keep this as long as any of these needs holds."""
        self._older.append(_Older(keepsake, tuple(needs)))
        self._looks = 0

    def has(self, keepsake: Keepsake) -> bool:
        """Return whether this is kept here."""
        return any(one.keepsake is keepsake for one in self._older)

    async def tidy(self) -> None:
        """Let go of what nothing needs any more; look again later for what is left."""
        await self._look()
        if self._older and not self._is_looking and not self._tasks.is_closed:
            self._is_looking = True
            self._tasks.start("packages: older versions", self._look_again())

    async def _look_again(self) -> None:
        try:
            while self._older:
                self._looks += 1
                await self._clock.sleep(self._backoff.delay(self._looks))
                await self._look()
        finally:
            self._is_looking = False

    async def _look(self) -> None:
        if self._older:
            try:
                await self._engine.tidy(self._sweep)
            except StoreError as error:  # it only means that older versions are kept a while longer
                logger.warning(events.PACKAGE_KEPT, extra={"error": str(error)})

    def _sweep(self) -> None:
        older, self._older = self._older, []
        for one in older:
            if any(is_needed() for is_needed in one.needs):
                self._older.append(one)
            else:
                one.keepsake.discard()

    def discard(self) -> None:
        """Let everything go, needed or not."""
        older, self._older = self._older, []
        for one in older:
            one.keepsake.discard()


class _Older(NamedTuple):
    """What was imported for a version, and who may need it."""

    keepsake: Keepsake
    needs: tuple[Need, ...]
