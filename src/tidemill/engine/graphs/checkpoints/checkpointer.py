"""The checkpointer: decides when snapshots are written, and notices when they cannot be.

Everything that is to outlive the process passes here: snapshots of reactors, the journal, dead letters, recoveries and
pauses. A change is noted and written together with all others of the next 200 ms; a reactor with durability="fire", a
dead letter or a recovery has it written at once. One write is on its way at a time, so what comes meanwhile is folded
into the next. What could not be written stays noted and is tried again, an interval later; meanwhile graphs fire on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta

from tidemill.annotations.codec import UnstorableError
from tidemill.engine.graphs.checkpoints.capture import Capture, Circle, capture, circles
from tidemill.engine.graphs.checkpoints.journal import Journal, Witness
from tidemill.engine.graphs.checkpoints.letters import LetterArchive, LetterOwner, Notes
from tidemill.engine.graphs.dead_letters import Archive
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.keeping import CodecFor, Keeper
from tidemill.engine.graphs.reactor import RunningReactor
from tidemill.engine.graphs.step import Step, Stepping
from tidemill.graphs.definition import Durability, Reactor
from tidemill.graphs.result import Receipt
from tidemill.graphs.state import Recovery
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.kernel.ids import sortable
from tidemill.storage.ports import PartKind, Store, StoredRecovery
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

PATIENCE = 0.75  # seconds without a successful write, while one is wanted, that degrade a reactor


class Checkpointer(Keeper, Witness):
    """Keeps what one node's reactors need for their next life."""

    def __init__(self, store: Store, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._interval = environment.settings.checkpoint_interval
        self.journal = Journal(store.checkpoints, self)
        self._noted: dict[RunningReactor, None] = {}
        self._notes = Notes()
        self._callbacks: list[Callable[[], None]] = []
        self._moment = 0
        self._news = asyncio.Event()
        self._news_since = 0.0
        self._hurry = asyncio.Event()
        self._turn = asyncio.Lock()
        self._rests = False  # after a failure, whatever the hurry
        self._wanting: dict[RunningReactor, float] = {}  # since when a write for a reactor is on its way, or fails
        self._watch: asyncio.Task[None] | None = None
        self.last_failed = False
        self._is_refused = False  # whether the store would not take the last write
        self._has_given_up = False

    async def open(self) -> None:
        """Go on with the numbers of earlier lives, and begin to write."""
        kept_from = self._environment.clock.now() - timedelta(seconds=self._environment.settings.retention)
        await self._store.recoveries.forget(kept_from)
        newest = await self._store.checkpoints.newest()
        self._moment = newest.moment
        self.journal.go_on_from(newest.position)
        tasks = self._environment.tasks
        tasks.start("checkpoints", self._work())
        tasks.start("journal", self.journal.work())

    # -- what is asked of it

    def durability(self, reactor: Reactor) -> Durability:
        return reactor.durability or "interval"

    def note(self, reactor: RunningReactor) -> None:
        self._noted[reactor] = None
        if not self._news.is_set():
            self._news_since = self._environment.clock.monotonic()
            self._news.set()

    def hurry(self) -> None:
        self._news.set()
        self._hurry.set()

    def after_write(self, call: Callable[[], None]) -> None:
        self._callbacks.append(call)
        self.hurry()

    def append(self, stepping: Stepping, step: Step, payload: bytes) -> "asyncio.Future[Receipt]":
        return self.journal.append(stepping, step, payload)

    async def keep_letters(self) -> None:
        with suppress(StoreError):  # they stay noted, and are tried again with the next checkpoint
            await self._notes.write(self._store)

    async def all_committed(self) -> None:
        await self.journal.all_committed()

    def go_on_from(self, position: int) -> None:
        self.journal.go_on_from(position)

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        try:
            await self._store.pauses.set(tenant, reactor, paused=paused)
        except StoreError as error:
            word = "paused" if paused else "resumed"
            raise OperationError(
                f"reactor '{reactor}' is {word}, but a restart will not know of it: {error}"
            ) from error

    def archive(self, tenant: str, owner: PartKind, source: str, codec_for: CodecFor | None = None) -> Archive:
        return LetterArchive(self._notes, self.hurry, LetterOwner(tenant, owner, source, codec_for))

    def add_recovery(self, tenant: str, recovery: Recovery) -> None:
        self._notes.recoveries.append(
            StoredRecovery(
                id=sortable(recovery.at),
                tenant=tenant,
                component=recovery.component,
                name=recovery.name,
                at=recovery.at,
                action=recovery.action,
                reason=recovery.reason,
                failures=recovery.failures,
            )
        )
        self.hurry()

    async def close(self) -> None:
        """Write everything a last time. If the store fails, or is silent for a grace: nobody waits for it again."""
        tasks, clock = self._environment.tasks, self._environment.clock
        writing = tasks.start("checkpoints: last write", self._write())
        grace = tasks.start("checkpoints: grace", clock.sleep(self._environment.settings.unload_timeout))
        await asyncio.wait({writing, grace}, return_when=asyncio.FIRST_COMPLETED)
        grace.cancel()
        if not writing.done() or self._is_refused:
            self._has_given_up = True
            self.journal.give_up()

    async def part_with(self, reactor: RunningReactor) -> None:
        if reactor.is_kept:
            self.note(reactor)
            await self.write()
            if reactor in self._noted:
                logger.error(events.LAST_CHECKPOINT_FAILED, extra={"reactor": reactor.name})
        self._noted.pop(reactor, None)
        self._wanting.pop(reactor, None)
        reactor.durability = "none"  # whatever ends here late must not be written over what comes after it

    # -- when it writes

    @property
    def has_news(self) -> bool:
        """Whether something is noted and not yet written."""
        return self._news.is_set()

    @property
    def is_idle(self) -> bool:
        """Whether no write is on its way and none is due at once."""
        is_due = self._hurry.is_set() and not self._rests
        return not self._turn.locked() and not is_due and self.journal.is_idle

    async def _work(self) -> None:
        while not self._has_given_up:
            await self._news.wait()
            await self._gather()
            await self._write()

    async def _gather(self) -> None:
        """Let changes gather for an interval, or until somebody is in a hurry; after a failure always the former."""
        clock = self._environment.clock
        if self._is_refused:
            self._rests = True
            await clock.sleep(self._interval)
            self._rests = False
        elif not self._hurry.is_set():
            tasks, remaining = self._environment.tasks, self._news_since + self._interval - clock.monotonic()
            ends = tasks.start("checkpoints: interval", clock.sleep(remaining))
            hurry = tasks.start("checkpoints: hurry", self._hurry.wait())
            await asyncio.wait({ends, hurry}, return_when=asyncio.FIRST_COMPLETED)
            ends.cancel()
            hurry.cancel()

    async def write(self) -> None:
        """Write everything that is noted by now, also if nobody waits for it; what cannot be written stays noted."""
        await self._environment.tasks.see_through("checkpoints: write", self._write())

    async def _write(self) -> None:
        if self._has_given_up:
            return
        async with self._turn:
            self._news.clear()
            self._hurry.clear()
            self.last_failed = self._is_refused = False
            callbacks, self._callbacks = self._callbacks, []
            captures = self._capture()
            try:
                await self._notes.write(self._store)
                if captures:
                    await self._save(captures)
            except StoreError as error:
                self._is_refused = True
                self._failed([one.circle for one in captures], str(error))
            for call in callbacks:
                call()

    def _capture(self) -> list[Capture]:
        """Take the snapshots of all circles with changes, in one moment."""
        noted, self._noted = self._noted, {}
        self._moment += 1
        captures = []
        for circle in circles(noted):
            try:
                captures.append(capture(circle, self._moment, self._environment.clock.now()))
            except UnstorableError as error:
                self._failed([circle], str(error))
        return captures

    async def _save(self, captures: list[Capture]) -> None:
        reactors = [reactor for one in captures for reactor in one.circle.reactors]
        self._want(reactors)
        parts = [part for one in captures for part in one.parts]
        covered = [entry for one in captures for entry in one.covered]
        await self._store.checkpoints.save(parts, covered)
        for one in captures:
            one.mark_written()
        self._succeeded(reactors)

    # -- whether it can

    def began(self, stepping: Iterable[Stepping]) -> None:
        self._want(_reactors(stepping))

    async def write_notes(self) -> None:
        await self._notes.write(self._store)

    def kept(self, stepping: Iterable[Stepping]) -> None:
        self._succeeded(_reactors(stepping))

    def refused(self, stepping: Iterable[Stepping], reason: str) -> None:
        for reactor in _reactors(stepping):
            reactor.not_saved(reason)
            self.note(reactor)  # so that it is known when the store is well again, although nobody may push meanwhile

    def _failed(self, circles: list[Circle], reason: str) -> None:
        self.last_failed = True
        self._news.set()
        for circle in circles:
            self._want(circle.reactors)
            for reactor in circle.reactors:
                self._noted[reactor] = None
                reactor.not_saved(reason)

    def _succeeded(self, reactors: Iterable[RunningReactor]) -> None:
        for reactor in reactors:
            self._wanting.pop(reactor, None)
            reactor.saved()

    def _want(self, reactors: Iterable[RunningReactor]) -> None:
        """Notice if a write for these reactors takes long, or fails for long."""
        now = self._environment.clock.monotonic()
        for reactor in reactors:
            self._wanting.setdefault(reactor, now)
        if self._wanting and (self._watch is None or self._watch.done()):
            self._watch = self._environment.tasks.start("checkpoints: watch", self._watch_writes())

    async def _watch_writes(self) -> None:
        """Degrade the reactors for which nothing could be written for too long."""
        clock = self._environment.clock
        while self._wanting:
            await clock.sleep(max(min(self._wanting.values()) + PATIENCE - clock.monotonic(), PATIENCE / 10))
            for reactor, since in tuple(self._wanting.items()):
                if clock.monotonic() - since >= PATIENCE:
                    reactor.not_saved_for_long()


def recovery_of(row: StoredRecovery) -> Recovery:
    """Return a stored recovery as people see it."""
    return Recovery(
        at=row.at, component=row.component, name=row.name, action=row.action, reason=row.reason, failures=row.failures
    )


def _reactors(stepping: Iterable[Stepping]) -> list[RunningReactor]:
    """Return the reactors that rely on the journals of these accumulators."""
    found = (target for one in stepping for target, _ in getattr(one, "targets", ()))
    return [target for target in dict.fromkeys(found) if isinstance(target, RunningReactor) and target.commits]
