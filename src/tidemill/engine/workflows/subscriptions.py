"""Subscriptions: runs that firings of reactors start, on whatever node the reactor runs.

Each subscription, a workflow and a reactor, has a line of its own, in the order of the firings, so that one that is
held up holds up no other. A firing whose expression cannot be evaluated, or whose values the workflow does not take, is
tried again a few times, then given up, and the line goes on. A store that fails is waited for. That a firing starts at
most one run of a workflow, for ever, is the store's business: the fire's key is the firing's id.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidemill.engine.service import Tasks, wait_until
from tidemill.engine.wakeups import Alarm
from tidemill.engine.workflows.environment import STORE_RETRY, Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.starting import Starter, Wish
from tidemill.graphs.result import Firing, plain
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe, is_cut_off
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError, TidemillError
from tidemill.telemetry import events
from tidemill.workflows.condition import Condition
from tidemill.workflows.definition import OnFiring
from tidemill.workflows.firings import firing_params
from tidemill.workflows.naming import PausedError
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

TRIES = 5
CROWD = 64  # firings behind one that fails: with so many it is not tried again

Done = Callable[[str | None], None]


class _Key(NamedTuple):
    tenant: str
    reactor: str
    workflow: str


class _Line:
    """One subscription, and the firings that it has not dealt with, oldest first."""

    def __init__(self, key: _Key, condition: Condition | None, clock: Clock) -> None:
        self.key = key
        self.condition = condition
        self.waiting: deque[tuple[Firing, Done]] = deque()
        self.rest = Alarm(clock)
        self.failures = 0  # of the first of them
        self.given_up = 0  # in a row
        self.is_over = False

    @property
    def is_crowded(self) -> bool:
        return len(self.waiting) > CROWD

    @property
    def facts(self) -> dict[str, str]:
        return {"workflow": self.key.workflow, "reactor": self.key.reactor}


class Subscriptions:
    """Starts the runs that firings on this node lead to."""

    def __init__(self, environment: Environment, library: Library, starter: Starter) -> None:
        self._clock = environment.clock
        self._figures = environment.figures
        settings = environment.settings
        least = STORE_RETRY.first  # whatever the settings say: a store that is away would be asked in a tight loop
        self._backoff = Backoff(max(settings.backoff_base, least), max(settings.backoff_max, least))
        self._library = library
        self._starter = starter
        self._tasks = environment.tasks
        self._changed: Callable[[str, str], None] = lambda tenant, reactor: None  # noqa: ARG005
        self._lines: dict[_Key, _Line] = {}
        self._working: set[_Line] = set()

    def connect(self, tasks: Tasks, changed: Callable[[str, str], None]) -> None:
        """Work in these tasks, which must outlive the reactors, and tell who is followed by others than before."""
        self._tasks = tasks
        self._changed = changed

    # -- who follows whom

    def put(self, tenant: str, workflow: Workflow) -> None:
        """Let a workflow follow the reactors that it names, and no others; what it was told already is not lost."""
        wanted = {_Key(tenant, one.reactor, workflow.name): one.when for one in _wishes(workflow)}
        self._end(key for key in self._of(tenant, workflow.name) if key not in wanted)
        for key, when in wanted.items():
            condition = None if when is None else Condition(when)
            if key in self._lines:
                self._lines[key].condition = condition
            else:
                self._lines[key] = _Line(key, condition, self._clock)
                self._changed(tenant, key.reactor)

    def drop(self, tenant: str, workflow: str) -> None:
        """Let a workflow follow nobody."""
        self._end(iter(self._of(tenant, workflow)))

    def _of(self, tenant: str, workflow: str) -> list[_Key]:
        return [key for key in self._lines if (key.tenant, key.workflow) == (tenant, workflow)]

    def _end(self, keys: Iterator[_Key]) -> None:
        for key in keys:
            line = self._lines.pop(key)
            line.is_over = True
            line.rest.ring()
            self._changed(key.tenant, key.reactor)

    def names(self, tenant: str, reactor: str) -> frozenset[str]:
        """Return which workflows a reactor's firings start."""
        return frozenset(key.workflow for key in self._lines if (key.tenant, key.reactor) == (tenant, reactor))

    # -- telling them

    def deliver(self, tenant: str, workflow: str, firing: Firing, done: Done) -> None:
        """Start a run for a firing if its subscription wants one, after those before it."""
        line = self._lines[_Key(tenant, firing.reactor, workflow)]
        line.waiting.append((firing, done))
        if line not in self._working:
            self._working.add(line)
            self._tasks.start(f"firings of {firing.reactor} to {workflow}", self._work(line))
        elif line.failures and line.is_crowded:
            line.rest.ring()

    async def _work(self, line: _Line) -> None:
        try:
            while line.waiting and not line.is_over:
                firing, done = line.waiting[0]
                reason = await self._see_to(line, firing)
                line.waiting.popleft()
                line.failures = 0
                done(reason)
        finally:
            self._working.discard(line)

    async def _see_to(self, line: _Line, firing: Firing) -> str | None:
        """Start the run of a firing, as often as it takes; return why it was given up, if that is worth a record."""
        tries = 0
        while not line.is_over:
            try:
                await self._start(line, firing)
                line.given_up = 0
                return None
            except StoreError as error:  # no fault of this firing: it waits
                self._complain(line, firing, error)
            except AUTHOR_ERRORS as error:  # author code: the class of the params may refuse them in its own way
                if is_cut_off(error):
                    raise
                line.failures += 1
                self._complain(line, firing, error)
                if line.failures >= TRIES or line.is_crowded:
                    return self._give_up(line, firing, error)
            tries += 1
            await line.rest.sleep(self._backoff.delay(tries))
        return None

    async def _start(self, line: _Line, firing: Firing) -> None:
        tenant, reactor, name = line.key
        version = self._library.current(tenant, name)
        workflow = None if version is None else self._library.workflow(version)
        payload = {source: plain(value) for source, value in firing.inputs.items()}
        if workflow is None or not (line.condition is None or line.condition.holds(payload, reactor, tenant)):
            return
        wish = Wish(
            tenant=tenant,
            workflow=workflow,
            params=firing_params(workflow.params, payload, firing.id),
            origin="firing",
            key=f"firing:{reactor}:{firing.id}",
            once=True,
        )
        try:
            if await self._starter.start(wish) is not None:
                self._figures.count("subscription_runs_total", 1, **line.facts)
        except PausedError:  # a firing in a pause starts nothing, then or later
            return

    # -- trouble

    def _complain(self, line: _Line, firing: Firing, error: BaseException) -> None:
        self._figures.count("subscription_errors_total", 1, **line.facts)
        facts = {**line.facts, "firing": firing.id, "error": _text(error)}
        logger.warning(events.SUBSCRIPTION_FAILED, extra=facts)

    def _give_up(self, line: _Line, firing: Firing, error: BaseException) -> str | None:
        """Put a firing aside; return why if it is the first in a row: the others have the same to say."""
        line.given_up += 1
        self._figures.count("subscription_dead_letters_total", 1, **line.facts)
        facts = {**line.facts, "firing": firing.id, "error": _text(error)}
        logger.error(events.SUBSCRIPTION_DEAD, extra=facts)
        return _text(error) if line.given_up == 1 else None

    # -- looking

    @property
    def is_busy(self) -> bool:
        """Whether some run is about to be started; what waits for its next try does not count."""
        return any(not line.rest.is_asleep for line in self._working)

    async def drain(self, patience: float) -> None:
        """Wait, in real time, until every firing has had its runs, but not for ever."""
        await wait_until(lambda: not self.is_busy, patience)


def _wishes(workflow: Workflow) -> list[OnFiring]:
    return [one for one in workflow.triggers if isinstance(one, OnFiring)]


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, TidemillError) else describe(error)
