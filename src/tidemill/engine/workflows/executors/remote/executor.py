"""Runs attempts in units of a cluster, such as pods, which outlive the node.

The node writes the order of an attempt and launches its unit. From then on the attempt is on its own: it reports to any
server, and renews its lease. The node renews the lease only while the unit is pending, deletes the unit if the attempt
is no longer wanted, and decides what became of a unit that ended without a report, or that does not start.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from msgspec.structs import replace

from tidemill.engine.tasks import TaskScope, run_forever
from tidemill.engine.workflows.executors.attempt_table import AttemptTable
from tidemill.engine.workflows.executors.code import LoadedWorkflows
from tidemill.engine.workflows.executors.interface import (
    STOP_GRACE_PERIOD,
    AttemptListener,
    AttemptRequest,
    Executor,
)
from tidemill.engine.workflows.executors.remote.interface import (
    AttemptLauncher,
    ClusterUnavailableError,
    UnitObserver,
    UnitStatus,
)
from tidemill.engine.workflows.executors.remote.launch_blocks import LaunchBlocks
from tidemill.engine.workflows.executors.remote.order_writer import OrderWriter
from tidemill.engine.workflows.executors.remote.remote_attempt import RETRY_BACKOFF, AttemptRecords, RemoteAttempt
from tidemill.engine.workflows.executors.remote.unit_results import judge_unit
from tidemill.engine.workflows.executors.remote.unit_sweeper import UnitSweeper
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, StoreError, TidemillError
from tidemill.kernel.ids import new_instance_id
from tidemill.kernel.masking import SecretMask
from tidemill.kernel.settings import Settings
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import AttemptResult, Cancelled, HandedBack
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.states import TaskState

logger = logging.getLogger(__name__)

RESULT_GRACE = 2.0
"""Seconds after the end of a unit in which a result that is on its way counts."""

EXPIRY_INTERVAL = 1.0
"""Seconds between two looks for units that do not start."""

NOTICE_INTERVAL = 10.0
"""Seconds between two looks for attempts that have started unseen."""

ADOPTION_GRACE = 15.0
"""Seconds after an adoption in which the unit may come into sight: its node may have launched it at the last moment."""

_RECORDED_ELSEWHERE = Cancelled("another server has recorded its end")


class RemoteExecutor(Executor, UnitObserver):
    """Runs attempts in the units of one launcher."""

    is_immediate = False
    outlives_node = True

    def __init__(
        self,
        launcher: AttemptLauncher,
        store: WorkflowStore,
        workflows: LoadedWorkflows,
        listener: AttemptListener,
        clock: Clock,
        settings: Settings,
        *,
        owner: str,
        server_url: Callable[[], str | None],
        mask: SecretMask,
        grace: float = STOP_GRACE_PERIOD,
    ) -> None:
        self.name = launcher.name
        self._launcher = launcher
        self._store = store
        self._orders = OrderWriter(store, workflows, clock, settings)
        self._listener = listener
        self._clock = clock
        self._owner = owner
        self._server_url = server_url
        self._mask = mask
        self._grace = grace
        self._tasks = TaskScope()
        self._attempts: AttemptTable[RemoteAttempt] = AttemptTable()
        self._units: dict[AttemptKey, UnitStatus] = {}
        """The units that the launcher has reported, of all nodes on the store."""
        self._blocks = LaunchBlocks(clock)
        self._records = AttemptRecords(store, clock)
        self._sweeper = UnitSweeper(
            launcher, store.attempt_orders, clock, attempts=self._attempts, units=self._units, grace=grace
        )
        self._next_notice = 0.0
        self._is_closed = False

    async def open(self) -> None:
        await self._tasks.open()
        self._tasks.start("expire units", run_forever(self._wait_and_expire, self._on_expiry_error))
        await self._launcher.open(self, await self._store.attempt_orders.instance(new_instance_id()))

    async def close(self, timeout: float) -> None:
        """Stop observing: the units run on, and another node adopts them."""
        self._is_closed = True
        await self._tasks.close(timeout)
        await self._launcher.close()

    def free_slots(self) -> int:
        is_blocked = self._is_closed or self._blocks.are_all_blocked
        return 0 if is_blocked else max(0, self._launcher.free_slots())

    def blocked_tenants(self) -> Collection[str]:
        return self._blocks.tenants()

    @property
    def known_units(self) -> int:
        """The number of units that exist, as far as the launcher has reported."""
        return len(self._units)

    def running(self) -> set[AttemptKey]:
        return self._attempts.keys()

    def self_renewing(self) -> set[AttemptKey]:
        """Return the attempts whose unit is not known to be pending: they renew their leases, or lose them."""
        return {one.request.key for one in self._attempts if not self._is_pending(one)}

    def on_leases_renewed(self) -> None:
        """Do nothing: units do not depend on this node."""
        return

    def _is_pending(self, attempt: RemoteAttempt) -> bool:
        if attempt.has_begun:
            return False
        status = self._units.get(attempt.request.key)
        if status is None:  # it is being launched, or the unit of another node is yet to be seen
            return not attempt.launched.is_set() or attempt.adopted_at is not None
        return status.state == "pending"

    # -- launching

    async def submit(self, request: AttemptRequest) -> None:
        if self._attempts.is_known(request.key):
            return
        url = self._server_url()
        if url is None:
            raise OperationError(
                f"units of executor '{self.name}' need the address of a server: set server_url, or "
                "TIDEMILL_SERVER_URL, to one that they can reach"
            )
        self._orders.check(request)
        attempt = RemoteAttempt(request)
        self._attempts.add(attempt)
        try:
            await self._launch(attempt, url)
        except BaseException:
            self._attempts.forget(attempt)
            raise
        finally:
            attempt.launched.set()

    async def _launch(self, attempt: RemoteAttempt, server_url: str) -> None:
        """Write the order of an attempt, and start its unit. An attempt whose unit was not started is handed back."""
        request = attempt.request
        try:
            if self._is_closed:
                raise OperationError("the node is closing")
            if request.tenant in self._blocks.tenants():  # it was claimed before
                raise OperationError("the cluster has rejected another unit of its tenant")
            launch = await self._orders.write(request, server_url)
        except TidemillError as error:
            self._hand_back(attempt, error)
            return
        try:
            await self._launcher.launch(launch)
        except Exception as error:  # once it is closed, a launcher raises whatever its client does
            if not isinstance(error, TidemillError) and not self._is_closed:
                raise
            await self._on_launch_failed(attempt, error)
        else:
            self._blocks.record_success(request.tenant)

    async def _on_launch_failed(self, attempt: RemoteAttempt, error: Exception) -> None:
        """Hand an attempt back, unless its unit was started although the cluster did not say so."""
        claim = await self._records.read_claim(attempt.request.key)
        if claim is not None and claim.owner == self._owner and claim.state is TaskState.RUNNING:
            attempt.has_begun = True
        else:
            self._hand_back(attempt, error)

    def _hand_back(self, attempt: RemoteAttempt, error: Exception) -> None:
        """Hand an attempt back whose unit was not started, and start no other one that would fail too for a while."""
        is_own = isinstance(error, OperationError) and not isinstance(error, ClusterUnavailableError)
        self._blocks.record_failure(attempt.request.tenant if is_own else None)
        key = attempt.request.key
        logger.warning(events.UNIT_NOT_LAUNCHED, extra={"attempt": str(key), "error": str(error)})
        if self._attempts.remove(attempt) and not attempt.is_reported:
            self._listener.on_ended(key, attempt.stop_ending or HandedBack(f"its unit was not started: {error}"))

    # -- adopting

    def adopt(self, request: AttemptRequest) -> None:
        if self._attempts.is_known(request.key):
            return
        attempt = RemoteAttempt(request, adopted_at=self._clock.monotonic(), has_begun=request.has_begun)
        self._attempts.add(attempt)
        if (status := self._units.get(request.key)) is not None:
            self._observe(attempt, status)

    # -- observing

    def on_unit(self, key: AttemptKey, status: UnitStatus) -> None:
        attempt = self._attempts.get(key)
        if attempt is None and status.state == "missing":
            self._units.pop(key, None)  # nothing is left of it to remove
            return
        known = self._units.get(key)
        if known is not None and (known.state, status.state) == ("running", "pending"):
            return  # a unit that has run does not wait again: the launcher has only lost sight of it
        self._units[key] = status
        if attempt is not None:
            self._observe(attempt, status)

    def _observe(self, attempt: RemoteAttempt, status: UnitStatus) -> None:
        attempt.deadline.update(status, self._clock.monotonic())
        if status.is_over:
            self._start_judging(attempt, self._judge(attempt))

    def on_removed(self, key: AttemptKey) -> None:
        attempt, status = self._attempts.get(key), self._units.get(key)
        if attempt is not None:
            if status is None or status.state != "running":
                return  # how it ended is yet to be judged
            attempt.has_begun = True  # its lease decides
        self._units.pop(key, None)

    def on_reported(self, key: AttemptKey) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            self._finish(attempt)

    def _start_judging(self, attempt: RemoteAttempt, judge: Coroutine[Any, Any, None]) -> None:
        if attempt.is_judged or self._is_closed:
            judge.close()
        else:
            attempt.is_judged = True
            self._tasks.start(f"unit ended: {attempt.request.key}", judge)

    async def _judge(self, attempt: RemoteAttempt) -> None:
        """Decide what became of an attempt whose unit is over, unless its result arrives."""
        key = attempt.request.key
        await self._clock.sleep(RESULT_GRACE)
        claim = await self._records.read_claim(key)
        if attempt.is_reported or self._attempts.get(key) is not attempt:
            return
        if claim is None or claim.owner != self._owner:
            self._end(attempt, _RECORDED_ELSEWHERE)
            return
        status = self._units[key]
        status = replace(status, reason=self._mask.mask(status.reason), log_tail=self._mask.mask(status.log_tail))
        await self._records.write_tail(key, status)
        self._end(attempt, judge_unit(status, claim.state))

    def _end(self, attempt: RemoteAttempt, result: AttemptResult) -> None:
        """Report the result of an attempt, unless it has reported one itself meanwhile."""
        key = attempt.request.key
        if not attempt.is_reported and self._attempts.get(key) is attempt:
            self._listener.on_ended(key, attempt.stop_ending or result)
            self._finish(attempt)

    def _finish(self, attempt: RemoteAttempt) -> None:
        """Forget an attempt that has ended, and let the launcher remove its unit."""
        key = attempt.request.key
        attempt.is_reported = True
        if self._attempts.remove(attempt) and not self._is_closed:
            self._tasks.start(f"discard: {key}", self._discard(key))

    async def _discard(self, key: AttemptKey) -> None:
        await self._repeat(key, lambda: self._launcher.discard(key))
        self._units.pop(key, None)

    # -- units that do not start

    async def _wait_and_expire(self) -> None:
        await self._clock.sleep(EXPIRY_INTERVAL)
        for attempt in self._attempts:
            if (result := self._find_overdue(attempt)) is not None:
                self._start_judging(attempt, self._give_up(attempt, result))
        await self._notice_begun()

    def _on_expiry_error(self, error: Exception) -> None:
        traceback = None if isinstance(error, StoreError) else error
        logger.warning(events.UNIT_CALL_FAILED, exc_info=traceback, extra={"error": str(error)})

    async def _notice_begun(self) -> None:
        """Find out which attempts have started while the cluster is out of sight: they renew their own leases."""
        unseen = {
            one.request.key: one
            for one in self._attempts
            if self._is_pending(one) and not self._launcher.is_watching(one.request.tenant)
        }
        if not unseen or self._clock.monotonic() < self._next_notice:
            return
        self._next_notice = self._clock.monotonic() + NOTICE_INTERVAL
        claims = await self._store.attempt_orders.claims(list(unseen))
        for key, claim in claims.items():
            unseen[key].has_begun = claim.state is TaskState.RUNNING

    def _find_overdue(self, attempt: RemoteAttempt) -> AttemptResult | None:
        """Return the result of an attempt that should have started long ago, as far as the cluster can be seen."""
        request, now = attempt.request, self._clock.monotonic()
        if attempt.is_judged or attempt.has_begun or not self._launcher.is_watching(request.tenant):
            return None
        if request.key not in self._units:
            is_missing = attempt.adopted_at is not None and now - attempt.adopted_at >= ADOPTION_GRACE
            return HandedBack("its node ended before it had launched its unit") if is_missing else None
        end = attempt.deadline.find_end(self._launcher.start_timeouts, now)
        return None if end is None else judge_unit(end, TaskState.QUEUED)

    async def _give_up(self, attempt: RemoteAttempt, result: AttemptResult) -> None:
        """End an attempt whose unit did not start, and the unit with it; not if the attempt has started unseen."""
        key = attempt.request.key
        claim = await self._records.read_claim(key)
        if claim is None or claim.owner != self._owner:
            self._end(attempt, _RECORDED_ELSEWHERE)
        elif claim.state is TaskState.RUNNING:
            attempt.has_begun, attempt.is_judged = True, False
            if (status := self._units.get(key)) is not None:
                self._observe(attempt, status)  # it may have ended meanwhile
        else:
            if (status := self._units.get(key)) is not None:
                await self._sweeper.remove(key, status)
            self._end(attempt, result)

    # -- stopping

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None and attempt.stop_ending is None and not self._is_closed:
            attempt.stop_ending = Cancelled(reason)
            self._tasks.start(f"cancel: {key}", self._stop(attempt, attempt.stop_ending))

    async def _stop(self, attempt: RemoteAttempt, ending: Cancelled) -> None:
        """Delete the unit of an attempt, unless another node has adopted it; then this one lets it go."""
        key = attempt.request.key
        await attempt.launched.wait()  # a unit that is being created would not be deleted
        claim = await self._records.read_claim(key)
        if claim is None or claim.owner == self._owner:
            await self._repeat(key, lambda: self._launcher.delete(key, self._grace))
        if self._attempts.remove(attempt) and not attempt.is_reported:
            attempt.is_reported = True
            self._listener.on_ended(key, ending)

    async def _repeat(self, key: AttemptKey, call: Callable[[], Awaitable[None]]) -> None:
        """Call the launcher until the cluster answers."""
        failures = 0
        while True:
            try:
                await call()
                return
            except OperationError as error:
                failures += 1
                logger.warning(events.UNIT_CALL_FAILED, extra={"attempt": str(key), "error": str(error)})
                await self._clock.sleep(RETRY_BACKOFF.delay(failures))

    def request_sweep(self) -> None:
        if not self._is_closed:
            self._sweeper.request(self._tasks)
