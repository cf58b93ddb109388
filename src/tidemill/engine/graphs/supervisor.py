"""The supervisor: restarts crashed accumulators and reactors, with growing delays, and gives up in the end.

A crash is noticed when it happens. The first restart comes after 1 s, then 2, 4, 8, up to 60; the fifth failure in a
row is final, and so is the twenty-first restart within an hour. A minute of health resets the count. While a component
waits for its restart, everything else keeps running and commands are answered. Two kinds of error are different: the
source of a stream that is lost is tried without end and without a limit per hour, every 60 s after five failures in a
row, and `tm.Fail` is final at once.
"""

import logging
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from tidemill.engine.graphs.durability.backend import DurabilityBackend
from tidemill.engine.tasks import TaskScope
from tidemill.graphs.state import Recovery
from tidemill.kernel.author_errors import Fail
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings
from tidemill.storage.graph_ports import PartKind
from tidemill.telemetry import events
from tidemill.telemetry.node_events import NodeEvents

logger = logging.getLogger(__name__)

HOUR_SECONDS = 3600.0
SHORTEST_SOURCE_RETRY = 0.01  # seconds between endless tries, even if the settings say 0

EVENT_BY_ACTION = {
    "crashed": events.COMPONENT_CRASHED,
    "restarted": events.COMPONENT_RESTARTED,
    "disconnected": events.COMPONENT_DISCONNECTED,
    "fenced": events.REACTOR_OWNERSHIP_LOST,
    "failed": events.COMPONENT_FAILED,
    "cancelled": events.COMPONENT_STOP_TIMED_OUT,
    "restored": events.CHECKPOINT_PARTIALLY_RESTORED,
    "unread": events.STATE_UNREAD,
    "undelivered": events.FIRING_UNDELIVERED,
    "gap": events.SOURCE_GAP,
}


class RestartState:
    """The supervisor's record of one component."""

    def __init__(self) -> None:
        self.failures = 0
        self.restarts = 0
        self.started_at: float | None = None
        self.recent_restarts: deque[float] = deque()
        self.is_ended = False
        self.has_tries_left = True  # False while a source is tried at the longest interval
        self.episode = 0  # a restart planned in an earlier episode is void

    def record_start(self, now: float) -> None:
        """Record that the component started."""
        self.started_at = now
        self.episode += 1

    def record_end(self) -> None:
        """Record that the component has ended and is never restarted."""
        self.is_ended = True
        self.episode += 1

    def record_failure(self, now: float, reset_after: float) -> int:
        """Record a crash; return how many there were in a row."""
        if self.started_at is not None and now - self.started_at >= reset_after:
            self.failures = 0
        self.failures += 1
        self.started_at = None
        self.episode += 1
        return self.failures

    def record_restart(self, now: float) -> None:
        """Record a restart by the supervisor after a crash."""
        self.restarts += 1
        self.recent_restarts.append(now)

    def restarts_within_hour(self, now: float) -> int:
        """Return how many restarts there were within the last hour."""
        while self.recent_restarts and self.recent_restarts[0] <= now - HOUR_SECONDS:
            self.recent_restarts.popleft()
        return len(self.recent_restarts)

    def reset(self) -> None:
        """Clear the failure counts for a restart by an operator."""
        self.failures = 0
        self.has_tries_left = True
        self.recent_restarts.clear()
        self.restarts += 1


class Supervised(Protocol):
    """A component that the supervisor restarts: an accumulator or a reactor."""

    component: PartKind
    name: str
    tenant: str
    restart_state: RestartState

    def restart(self) -> None:
        """Start again."""

    def mark_failed(self) -> None:
        """Stay down until an operator restarts it."""


class Supervisor:
    """Restarts the components of one node, and records each of its actions."""

    def __init__(
        self,
        clock: Clock,
        settings: Settings,
        tasks: TaskScope,
        durability: DurabilityBackend,
        node_events: NodeEvents,
    ) -> None:
        self._clock = clock
        self._node_events = node_events
        self._settings = settings
        self._tasks = tasks
        self._durability = durability
        self._backoff = Backoff(settings.backoff_base, settings.backoff_max)
        self.recoveries: deque[tuple[str, Recovery]] = deque(maxlen=1000)

    def on_crash(self, component: Supervised, error: BaseException) -> None:
        """Plan the restart of a component that crashed, or give it up."""
        state = component.restart_state
        if state.is_ended:
            return
        exhausted = self._count_crash(state)
        if isinstance(error, Fail):
            self._mark_failed(component, f"a retry cannot help: {error}")
        elif exhausted is not None:
            self._mark_failed(component, f"{exhausted}, the last: {error!r}")
        else:
            self._record(component, "crashed", repr(error))
            title = f"supervisor: restart {component.component} {component.name}"
            delay = self._backoff.delay(state.failures)
            self._tasks.start(title, self._restart_later(component, delay, state.episode))

    def _count_failure(self, state: RestartState) -> str | None:
        """Count a failure; return that there were too many in a row, or None if another try is allowed."""
        failures = state.record_failure(self._clock.monotonic(), self._settings.success_reset)
        if failures >= self._settings.component_max_failures:
            return f"{failures} failure{'s' if failures > 1 else ''} in a row"
        return None

    def _count_crash(self, state: RestartState) -> str | None:
        """Count a crash; return which limit is reached, or None if another restart is allowed."""
        exhausted = self._count_failure(state)
        if (
            exhausted is None
            and state.restarts_within_hour(self._clock.monotonic()) >= self._settings.restarts_per_hour
        ):
            return f"{self._settings.restarts_per_hour} restarts within an hour"
        return exhausted

    def on_source_lost(self, stream: Supervised, reason: str) -> float:
        """Count a failed try to read a source, and return the delay before the next: a stream is never given up.

        The limit per hour is for crashes. A feed that is cut once a minute and healthy in between is connected quickly.
        """
        state = stream.restart_state
        had_tries_left = state.has_tries_left
        exhausted = self._count_failure(state)
        state.has_tries_left = exhausted is None
        if exhausted is None:
            self._record(stream, "crashed", reason)
            return self._backoff.delay(state.failures)
        interval = max(self._settings.backoff_max, SHORTEST_SOURCE_RETRY)
        if had_tries_left:
            remedy = f"start the source or correct its address; it is tried again every {interval:g} s"
            self._record(stream, "disconnected", f"{exhausted}, the last: {reason}; {remedy}")
        return interval

    def on_source_retry(self, stream: Supervised, delay: float) -> None:
        """Count another try to read a source; those at the longest interval are not recorded one by one."""
        stream.restart_state.restarts += 1
        if stream.restart_state.has_tries_left:
            self._record(stream, "restarted", f"after {delay:g} s")

    def on_source_gap(self, stream: Supervised, reason: str) -> None:
        """Record that events of a source are missing."""
        self._record(stream, "gap", reason)

    async def _restart_later(self, component: Supervised, delay: float, episode: int) -> None:
        await self._clock.sleep(delay)
        if component.restart_state.episode == episode:
            component.restart_state.record_restart(self._clock.monotonic())
            self._record(component, "restarted", f"after {delay:g} s")
            component.restart()

    def restart(self, component: Supervised) -> None:
        """Restart a component now, because an operator asked for it."""
        component.restart_state.reset()
        self._record(component, "restarted", "by an operator")
        component.restart()

    def on_stop_timeout(self, component: Supervised, reason: str) -> None:
        """Record that a component did not stop in time and was cancelled."""
        self._record(component, "cancelled", reason)

    def on_partial_restore(self, component: Supervised, reason: str) -> None:
        """Record that some of a component's stored state could not be restored."""
        self._record(component, "restored", reason)

    def on_unread_state(self, component: Supervised, reason: str | None) -> None:
        """Record that a newer version does not read some of a component's state; None if it reads everything."""
        if reason is not None:
            self._record(component, "unread", reason)

    def on_ownership_lost(self, component: Supervised) -> None:
        """Record that another node owns a component now, and stop it."""
        reason = "another node owns it now: this node was frozen, or was cut off from its store"
        self._record(component, "fenced", reason)
        component.mark_failed()

    def on_reclaimed(self, component: Supervised) -> None:
        """Record that this node owns a component again and has restarted it."""
        self._record(component, "restarted", "by an operator: this node owns it again")

    def on_undelivered(self, component: Supervised, reason: str) -> None:
        """Record that a firing will never reach one of its workflows."""
        self._record(component, "undelivered", reason)

    def load_history(self, tenant: str, recoveries: Iterable[Recovery]) -> None:
        """Add recoveries that earlier processes recorded, oldest first."""
        self.recoveries.extendleft((tenant, recovery) for recovery in reversed(list(recoveries)))

    def _mark_failed(self, component: Supervised, reason: str) -> None:
        self._record(component, "failed", reason)
        component.mark_failed()

    def _record(self, component: Supervised, action: str, reason: str) -> None:
        recovery = Recovery(
            at=self._clock.now(),
            component=component.component,
            name=component.name,
            action=action,
            reason=reason,
            failures=component.restart_state.failures,
        )
        self.recoveries.append((component.tenant, recovery))
        self._durability.add_recovery(component.tenant, recovery)
        level = logging.ERROR if action in ("failed", "restored", "fenced") else logging.WARNING
        facts = {"component": component.component, "component_name": component.name, "reason": reason}
        logger.log(level, EVENT_BY_ACTION[action], extra=facts)
        fields = {name: getattr(recovery, name) for name in ("component", "name", "action", "reason", "failures")}
        self._node_events.publish(events.COMPONENT_RECOVERY, component.tenant, **fields)
