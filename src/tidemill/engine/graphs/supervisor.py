"""The supervisor: brings crashed accumulators and reactors back, later each time, and knows when to stop.

A crash is noticed when it happens. The first restart comes after 1 s, then 2, 4, 8, up to 60; the fifth failure in a
row is final, and so is the twenty-first restart within an hour. A minute of health wipes the slate clean. While
somebody waits to be restarted everything else goes on, and commands are answered.
"""

import logging
from collections import deque
from collections.abc import Iterable

from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.supervision import Component, Overseer
from tidemill.graphs.state import Recovery
from tidemill.kernel.backoff import Backoff
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

NAMES = {
    "crashed": events.COMPONENT_CRASHED,
    "restarted": events.COMPONENT_RESTARTED,
    "failed": events.COMPONENT_FAILED,
    "cancelled": events.STOP_TIMED_OUT,
    "restored": events.RESTORED_IN_PART,
    "undelivered": events.FIRING_UNDELIVERED,
}


class Supervisor(Overseer):
    """Restarts the components of one node, and remembers what it did."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        settings = environment.settings
        self._backoff = Backoff(settings.backoff_base, settings.backoff_max)
        self.recoveries: deque[tuple[str, Recovery]] = deque(maxlen=1000)

    def crashed(self, component: Component, error: BaseException) -> None:
        """Plan the restart of a component that crashed just now, or give it up."""
        record = component.supervision
        if record.is_ended:
            return
        settings = self._environment.settings
        now = self._environment.clock.monotonic()
        failures = record.failed(now, settings.success_reset)
        if failures >= settings.component_max_failures:
            self._give_up(component, f"{failures} failures in a row, the last: {error!r}")
        elif record.restarts_within_hour(now) >= settings.restarts_per_hour:
            self._give_up(component, f"{settings.restarts_per_hour} restarts within an hour, the last error: {error!r}")
        else:
            self._note(component, "crashed", repr(error))
            title = f"supervisor: restart {component.component} {component.name}"
            delay = self._backoff.delay(failures)
            self._environment.tasks.start(title, self._restart_later(component, delay, record.episode))

    async def _restart_later(self, component: Component, delay: float, episode: int) -> None:
        await self._environment.clock.sleep(delay)
        if component.supervision.episode == episode:
            component.supervision.restarted(self._environment.clock.monotonic())
            self._note(component, "restarted", f"after {delay:g} s")
            component.revive()

    def restart(self, component: Component) -> None:
        """Restart a component now, because an operator asked."""
        component.supervision.forgive()
        self._note(component, "restarted", "by an operator")
        component.revive()

    def overran(self, component: Component, reason: str) -> None:
        """Note a component that did not end in time and was cancelled."""
        self._note(component, "cancelled", reason)

    def restored(self, component: Component, reason: str) -> None:
        """Note a component of which not everything could be read back as it was written."""
        self._note(component, "restored", reason)

    def undelivered(self, component: Component, reason: str) -> None:
        """Note a firing of a component that some workflow will never be told of."""
        self._note(component, "undelivered", reason)

    def remember(self, tenant: str, recoveries: Iterable[Recovery]) -> None:
        """Know what earlier lives recorded, oldest first."""
        self.recoveries.extendleft((tenant, recovery) for recovery in reversed(list(recoveries)))

    def _give_up(self, component: Component, reason: str) -> None:
        self._note(component, "failed", reason)
        component.give_up()

    def _note(self, component: Component, action: str, reason: str) -> None:
        recovery = Recovery(
            at=self._environment.clock.now(),
            component=component.component,
            name=component.name,
            action=action,
            reason=reason,
            failures=component.supervision.failures,
        )
        self.recoveries.append((component.tenant, recovery))
        self._environment.keeper.add_recovery(component.tenant, recovery)
        level = logging.ERROR if action in ("failed", "restored") else logging.WARNING
        facts = {"component": component.component, "component_name": component.name, "reason": reason}
        logger.log(level, NAMES[action], extra=facts)
