"""Who runs next on this node: which runs may begin, and which of their task runs get the places that are free.

A task run waits here from the moment it is scheduled. It is given a place, which is reserved for it, and claimed with
the next change of its run. What cannot be run here, because its code, its executor or its pool is elsewhere, is left
for another node to claim.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from tidemill.engine.workflows.admissions import Admissions
from tidemill.engine.workflows.board import ActiveRun
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.places import Places, Waiting
from tidemill.workflows.draft import Draft, Place
from tidemill.workflows.records import RunRow, TaskRow, VersionKey
from tidemill.workflows.states import TaskState

Board = dict[str, ActiveRun]
Rows = Mapping[Place, TaskRow]


class Allotment:
    """Hands out this node's places to the runs of a board."""

    def __init__(
        self,
        environment: Environment,
        board: Board,
        library: Library,
        crew: Crew,
        *,
        nudge: Callable[[str], None],
        have_claimed: Callable[[ActiveRun], None],
    ) -> None:
        self.admissions = Admissions()
        self.places = Places(crew)
        self._environment = environment
        self._board = board
        self._library = library
        self._crew = crew
        self._nudge = nudge
        self._have_claimed = have_claimed
        self._is_giving = False
        self._used: Counter[tuple[str, str]] = Counter()
        """How many places of each tenant's pools are taken, as far as the board tells."""

    # -- waiting

    def offer(self, active: ActiveRun, rows: Collection[TaskRow]) -> None:
        """Let task runs wait for a place, if they can be run here."""
        for row in self._runnable(active, rows):
            self.places.offer(active.run.id, row)

    def _runnable(self, active: ActiveRun, rows: Collection[TaskRow]) -> list[TaskRow]:
        """Return those of some scheduled task runs that could be run here."""
        if not rows or self.admissions.is_paused(active.run) or self._library.workflow(active.version) is None:
            return []
        return [row for row in rows if row.pool is None or row.pool in self._environment.pools]

    def offer_version(self, version: VersionKey) -> None:
        """Let the task runs of a version wait for a place, now that its code is here."""
        for active in self._board.values():
            if active.version == version:
                self.offer(active, active.waiting())
        self.give()

    # -- giving

    def give_soon(self) -> None:
        """Give places once everybody has had a turn who is about to say what follows from what has just ended."""
        if not self._is_giving and self.places.has_queue():
            self._is_giving = True
            asyncio.get_running_loop().call_soon(self.give)

    def give(self) -> None:
        """Give free places to whoever waits, and have that claimed."""
        self._is_giving = False
        for run, place in self.places.grant(self._is_wanted):
            active = self._board[run]
            active.grants.append(place)
            if not active.is_working:
                self._have_claimed(active)
        if self.places.has_crowd() and self._crew.dispatcher.room <= 0:
            self._environment.figures.count("dispatch_at_capacity")

    def _is_wanted(self, waiting: Waiting) -> bool:
        active = self._board.get(waiting.run)
        if active is None or waiting.place in active.grants or self.admissions.is_paused(active.run):
            return False
        row = active.rows.get(waiting.place)
        return row is None or row.state is TaskState.SCHEDULED or active.is_working

    def claim(self, active: ActiveRun, draft: Draft) -> list[TaskRow]:
        """Claim, in a draft, what of a run has been given a place; a place that is not needed is given on."""
        self._offer_new(active, draft)
        claimed: list[TaskRow] = []
        room: dict[str, int] = {}
        self._take_turn(active)
        while active.grants:
            grants, active.grants = active.grants, []
            claimed += [row for place in grants if (row := self._claim(active, draft, place, room)) is not None]
            self._take_turn(active)
        self.give_soon()
        return claimed

    def _offer_new(self, active: ActiveRun, draft: Draft) -> None:
        """Give places to what became ready in a draft: at once, if there is one for each; else it waits its turn."""
        rows = self._runnable(active, draft.scheduled)
        if rows and not active.grants and self.places.take(rows):
            rows.sort(key=lambda row: -row.priority)  # all have a place, but their pool may not have room for all
            active.grants = [(row.task, row.index) for row in rows]
            return
        for row in rows:
            self.places.offer(active.run.id, row)

    def _take_turn(self, active: ActiveRun) -> None:
        """Give a run that is being worked on what is free, as long as it is its turn."""
        if self.places.has_queue():
            active.grants += [place for _, place in self.places.grant(self._is_wanted, only=active.run.id)]

    def _claim(self, active: ActiveRun, draft: Draft, place: Place, room: dict[str, int]) -> TaskRow | None:
        row = draft.rows.get(place)
        if row is None or row.state is not TaskState.SCHEDULED:
            self.places.release(row.executor if row is not None else self._environment.executor)
            return None
        if row.pool is not None:
            if self._room(active, row.pool, room) <= 0:
                self.places.release(row.executor)
                self.places.park(active.run.id, row)
                return None
            room[row.pool] -= 1
        return draft.claim(place, self._environment.owner.id, begins=self.places.is_immediate(row.executor))

    def _room(self, active: ActiveRun, pool: str, known: dict[str, int]) -> int:
        """Return how many more of a pool may be claimed for a run, as far as the board tells; the store decides."""
        if active.is_crowded:
            return 0
        if pool not in known:
            known[pool] = self._environment.pools[pool] - self._used[active.run.tenant, pool]
        return known[pool]

    def count_pools(self, active: ActiveRun, before: Rows, after: Rows) -> None:
        """Take note of what a run takes of pools now; who waits for one that something has left waits for a place."""
        if not active.has_pools:
            return
        was, is_now = _use(before), _use(after)
        for pool in was | is_now:
            self._used[active.run.tenant, pool] += is_now[pool] - was[pool]
        if left := [pool for pool in was if was[pool] > is_now[pool]]:
            for pool in left:
                self.places.unpark(pool)
            self.give()

    # -- giving back

    def take_back(self, active: ActiveRun) -> None:
        """Take back the places that were given to a run, which may no longer want them."""
        for place in active.grants:
            row = active.rows.get(place)
            self.places.release(row.executor if row is not None else self._environment.executor)
        active.grants = []

    def unclaim(self, active: ActiveRun, claimed: Collection[TaskRow]) -> None:
        """Take back the places that were reserved for claims; what could not be claimed waits again."""
        for row in claimed:
            self.places.release(row.executor)
        rows = [found for row in claimed if (found := active.rows.get((row.task, row.index))) is not None]
        self.offer(active, [row for row in rows if row.state is TaskState.SCHEDULED])

    # -- runs

    def heed_pauses(self, paused: set[tuple[str, str]]) -> None:
        """Take note of which workflows are paused; what was held back by a pause goes on."""
        resumed, self.admissions.paused = self.admissions.paused - paused, paused
        for active in self._board.values():
            if (active.run.tenant, active.run.workflow) in resumed:
                self.offer(active, active.waiting())
        for tenant, workflow in resumed:
            self.admit_next(tenant, workflow)
        if resumed:
            self.give()

    async def learn_limit(self, run: RunRow) -> None:
        """Find out how many runs of a run's backfill may run at a time."""
        backfill = run.backfill
        if backfill is not None and backfill not in self.admissions.limits:
            found = await self._environment.store.backfills.get(backfill)
            self.admissions.limits[backfill] = found.limit if found is not None else 1

    def admit_next(self, tenant: str, workflow: str) -> None:
        """Let queued runs of a workflow begin, if they may."""
        for waiting in self.admissions.next_ones(tenant, workflow):
            if self.admissions.may_begin(self._board[waiting].run):
                self._nudge(waiting)


def _use(rows: Rows) -> Counter[str]:
    """Return how many places of each pool task runs take."""
    return Counter(row.pool for row in rows.values() if row.pool is not None and row.state.is_claimed)
