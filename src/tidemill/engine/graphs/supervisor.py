"""The supervisor: brings crashed accumulators and reactors back, later each time, and knows when to stop.

A crash is noticed when it happens. The first restart comes after 1 s, then 2, 4, 8, up to 60; the fifth failure in a
row is final, and so is the twenty-first restart within an hour. A minute of health wipes the slate clean. While
somebody waits to be restarted everything else goes on, and commands are answered.
"""

import logging
from collections import deque
from collections.abc import Iterable

from tidemill.engine.graphs.restart_state import Overseer, Supervised
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.state import Recovery
from tidemill.kernel.backoff import Backoff
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

EVENT_BY_ACTION = {
    "crashed": events.COMPONENT_CRASHED,
    "restarted": events.COMPONENT_RESTARTED,
    "failed": events.COMPONENT_FAILED,
    "cancelled": events.COMPONENT_STOP_TIMED_OUT,
    "restored": events.CHECKPOINT_PARTIALLY_RESTORED,
    "undelivered": events.FIRING_UNDELIVERED,
}


class Supervisor(Overseer):
    """Restarts the components of one node, and remembers what it did."""

    def __init__(self, runtime: GraphRuntime) -> None:
        self._runtime = runtime
        settings = runtime.settings
        self._backoff = Backoff(settings.backoff_base, settings.backoff_max)
        self.recoveries: deque[tuple[str, Recovery]] = deque(maxlen=1000)

    def on_crash(self, component: Supervised, error: BaseException) -> None:
        """Plan the restart of a component that crashed just now, or give it up."""
        record = component.restart_state
        if record.is_ended:
            return
        settings = self._runtime.settings
        now = self._runtime.clock.monotonic()
        failures = record.record_failure(now, settings.success_reset)
        if failures >= settings.component_max_failures:
            self._mark_failed(component, f"{failures} failures in a row, the last: {error!r}")
        elif record.restarts_within_hour(now) >= settings.restarts_per_hour:
            self._mark_failed(
                component, f"{settings.restarts_per_hour} restarts within an hour, the last error: {error!r}"
            )
        else:
            self._record(component, "crashed", repr(error))
            title = f"supervisor: restart {component.component} {component.name}"
            delay = self._backoff.delay(failures)
            self._runtime.tasks.start(title, self._restart_later(component, delay, record.episode))

    async def _restart_later(self, component: Supervised, delay: float, episode: int) -> None:
        await self._runtime.clock.sleep(delay)
        if component.restart_state.episode == episode:
            component.restart_state.record_restart(self._runtime.clock.monotonic())
            self._record(component, "restarted", f"after {delay:g} s")
            component.restart()

    def restart(self, component: Supervised) -> None:
        """Restart a component now, because an operator asked."""
        component.restart_state.reset()
        self._record(component, "restarted", "by an operator")
        component.restart()

    def on_stop_timeout(self, component: Supervised, reason: str) -> None:
        """Note a component that did not end in time and was cancelled."""
        self._record(component, "cancelled", reason)

    def on_partial_restore(self, component: Supervised, reason: str) -> None:
        """Note a component of which not everything could be read back as it was written."""
        self._record(component, "restored", reason)

    def on_undelivered(self, component: Supervised, reason: str) -> None:
        """Note a firing of a component that some workflow will never be told of."""
        self._record(component, "undelivered", reason)

    def load_history(self, tenant: str, recoveries: Iterable[Recovery]) -> None:
        """Know what earlier lives recorded, oldest first."""
        self.recoveries.extendleft((tenant, recovery) for recovery in reversed(list(recoveries)))

    def _mark_failed(self, component: Supervised, reason: str) -> None:
        self._record(component, "failed", reason)
        component.mark_failed()

    def _record(self, component: Supervised, action: str, reason: str) -> None:
        recovery = Recovery(
            at=self._runtime.clock.now(),
            component=component.component,
            name=component.name,
            action=action,
            reason=reason,
            failures=component.restart_state.failures,
        )
        self.recoveries.append((component.tenant, recovery))
        self._runtime.durability.add_recovery(component.tenant, recovery)
        level = logging.ERROR if action in ("failed", "restored") else logging.WARNING
        facts = {"component": component.component, "component_name": component.name, "reason": reason}
        logger.log(level, EVENT_BY_ACTION[action], extra=facts)
