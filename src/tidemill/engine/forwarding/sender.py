"""The sending side of forwarding: requests to the owners of parts, and the callers that wait for their answers."""

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from datetime import timedelta

from tidemill.engine.forwarding.links import LinkLostError, LinkRoute, OverdueError, request_id
from tidemill.engine.tasks import TaskScope
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, RequestError, StoreError
from tidemill.kernel.ids import new_sortable_id
from tidemill.storage.graph_ports import PartKey
from tidemill.storage.mailbox_port import Mailbox, StoredRequest
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT = 30.0
"""Seconds that a caller waits: longer than another node takes to become the owner of a part."""
MAX_REQUEST_AGE = 300.0
"""Seconds after which a request is deleted and not served: the node that sent it has died."""
MAX_OUTSTANDING = 1_000
"""Requests of one node that wait for an answer at a time."""
MAX_OUTSTANDING_BYTES = 64 * 1024 * 1024
LOOK_INTERVAL = 0.5
"""Seconds between looks for answers if no notification comes."""
MAX_LINK_BYTES = 4 * 1024 * 1024 - 4096
"""Bytes of a request over a link: a server takes frames of 4 MiB."""
CLEANING_INTERVAL = 1.0
"""Seconds between two times at which the numbers of pushes are deleted that were answered over links."""


class _Waiter:
    """A caller that waits for the answer to a request."""

    def __init__(self, request: StoredRequest, deadline: float) -> None:
        self.request = request
        self.deadline = deadline
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class RequestSender:
    """Sends the requests of one node."""

    def __init__(self, mailbox: Mailbox, node: str, clock: Clock, tasks: TaskScope) -> None:
        self._mailbox = mailbox
        self._node = node
        self._clock = clock
        self._tasks = tasks
        self._mail = asyncio.Event()
        self._waiters: dict[str, _Waiter] = {}
        self._outstanding = self._outstanding_bytes = 0
        self.sent: Counter[str] = Counter()
        """The requests by the way that they took."""
        self._finished: list[StoredRequest] = []  # to be deleted
        self._answered: list[StoredRequest] = []  # over links: their numbers are to be deleted
        self._is_reading = self._is_deleting = self._is_cleaning = False
        self._next_pruning = 0.0

    def on_mail(self) -> None:
        """Look for answers, if any are awaited."""
        if self._waiters:
            self._mail.set()

    async def ask(
        self,
        target: PartKey,
        operation: str,
        payload: bytes,
        route: LinkRoute | None = None,
        *,
        is_numbered: bool = True,
    ) -> bytes:
        """Send a request to the owner of a part, whichever node that is, and return its answer.

        One that gets no answer over its route goes through the mailbox. RefusedError if the route leads to a node
        that has not started it. `is_numbered` if the owner may store its number.
        """
        self._check_bounds(len(payload))
        now, number = self._clock.now(), 0
        if route is not None and len(payload) > MAX_LINK_BYTES:
            route = None
        if route is not None:
            number = route.link.next_number()
        request = StoredRequest(
            id=new_sortable_id(now) if route is None else request_id(route.link.id, number),
            target=target,
            sender=self._node,
            operation=operation,
            payload=payload,
            at=now,
        )
        deadline = self._clock.monotonic() + ANSWER_TIMEOUT
        self._outstanding += 1
        self._outstanding_bytes += len(payload)
        try:
            if route is not None:
                with suppress(LinkLostError):
                    return await self._ask_over_link(route, number, request, deadline, is_numbered=is_numbered)
            self.sent["mailbox"] += 1
            return await self._ask_in_store(request, deadline)
        finally:
            self._outstanding -= 1
            self._outstanding_bytes -= len(payload)

    async def _ask_over_link(
        self, route: LinkRoute, number: int, request: StoredRequest, deadline: float, *, is_numbered: bool
    ) -> bytes:
        try:
            answer = await route.link.ask(number, request, route.epoch, deadline)
        except OverdueError:
            raise _no_answer_error(request) from None
        self.sent["link"] += 1
        if is_numbered:
            self._delete_later(request)
        return answer

    async def _ask_in_store(self, request: StoredRequest, deadline: float) -> bytes:
        waiter = self._waiters[request.id] = _Waiter(request, deadline)
        try:
            await self._mailbox.send(request)
            self._start_reading()
            return await waiter.answer
        finally:
            del self._waiters[request.id]
            self._delete_soon(request)

    def _check_bounds(self, size: int) -> None:
        if size > MAX_OUTSTANDING_BYTES:
            message = f"{size:,} bytes cannot be sent to another node at a time, only {MAX_OUTSTANDING_BYTES:,}"
            raise RequestError(f"{message}: push fewer events together", code="invalid_value")
        if self._outstanding >= MAX_OUTSTANDING or self._outstanding_bytes + size > MAX_OUTSTANDING_BYTES:
            message = (
                f"{self._outstanding} requests of this node wait for other nodes, which is as many as it sends at a "
                "time: try again, or call the node that owns the reactor"
            )
            raise RequestError(message, code="forwarding_busy", status=429)

    def _start_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._tasks.start("forwarding: answers", self._read_answers())

    async def _read_answers(self) -> None:
        """Hand out answers as long as callers wait for some."""
        try:
            look = self._tasks.start("forwarding: look", self._look_regularly())
            while self._waiters:
                await self._mail.wait()
                self._mail.clear()
                await self._read_once()
                self._expire()
            look.cancel()
        finally:
            self._is_reading = False
            self._fail_all(OperationError("the node ended before the owner of the reactor answered"))

    async def _look_regularly(self) -> None:
        """Look for answers without a notification, which may be lost, and for callers that have waited too long."""
        while True:
            await self._clock.sleep(LOOK_INTERVAL)
            self._mail.set()

    async def _read_once(self) -> None:
        try:
            answers = await self._mailbox.read_answers(self._node)
        except StoreError as error:
            logger.warning(events.FORWARDING_FAILED, extra={"error": str(error)})
            return
        for answer in answers:
            waiter = self._waiters.get(answer.request)
            if waiter is not None and not waiter.answer.done():
                waiter.answer.set_result(answer.payload)

    def _fail_all(self, error: OperationError) -> None:
        """Fail the callers that still wait: there are some only if this node ends."""
        for waiter in self._waiters.values():
            if not waiter.answer.done():
                waiter.answer.set_exception(error)

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for waiter in self._waiters.values():
            if now >= waiter.deadline and not waiter.answer.done():
                waiter.answer.set_exception(_no_answer_error(waiter.request))

    # -- cleaning up

    def _delete_soon(self, request: StoredRequest) -> None:
        self._finished.append(request)
        if not self._is_deleting and not self._tasks.is_closed:
            self._is_deleting = True
            self._tasks.start("forwarding: cleaning", self._delete_finished())

    def _delete_later(self, request: StoredRequest) -> None:
        """Delete the number of a push together with those of others: it is not in anybody's way."""
        self._answered.append(request)
        if not self._is_cleaning and not self._tasks.is_closed:
            self._is_cleaning = True
            self._tasks.start("forwarding: numbers", self._delete_numbers())

    async def _delete_numbers(self) -> None:
        try:
            await self._clock.sleep(CLEANING_INTERVAL)
        finally:  # even if the node ends
            self._is_cleaning = False
            answered, self._answered = self._answered, []
            self._finished += answered
            await self._delete_finished()

    async def _delete_finished(self) -> None:
        """Delete requests that no caller still waits for, and now and then those of nodes that died."""
        try:
            while self._finished:
                finished, self._finished = self._finished, []
                await self._mailbox.delete(finished)
            if self._clock.monotonic() >= self._next_pruning:
                self._next_pruning = self._clock.monotonic() + MAX_REQUEST_AGE
                await self._mailbox.delete_before(self._clock.now() - timedelta(seconds=MAX_REQUEST_AGE))
        except StoreError as error:
            logger.warning(events.FORWARDING_FAILED, extra={"error": str(error)})
        finally:
            self._is_deleting = False


def _no_answer_error(request: StoredRequest) -> RequestError:
    subject = f"the node that owns {request.target.kind} '{request.target.name}'"
    message = f"{subject} has not answered for {ANSWER_TIMEOUT:.0f} s; whether it has served the request is not known"
    return RequestError(message, code="owner_silent", status=503)
