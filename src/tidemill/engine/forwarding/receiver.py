"""The receiving side of forwarding: serves the requests for the parts that this node owns."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta

from tidemill.engine.forwarding.sender import MAX_REQUEST_AGE
from tidemill.engine.tasks import TaskScope
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import PartKey
from tidemill.storage.mailbox_port import Mailbox, StoredAnswer, StoredRequest
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

ANSWER_RETRY_INTERVAL = 0.2
"""Seconds until an answer that could not be stored is stored again: the operation must not be repeated for it."""

Serve = Callable[[StoredRequest], Awaitable[bytes | None]]
"""Serves a request and returns its answer; None if this node does not own the target, or no longer."""


class RequestReceiver:
    """Serves the requests to one node, each in a separate task, started in the order in which they were sent."""

    def __init__(self, mailbox: Mailbox, owner: str, serve: Serve, clock: Clock, tasks: TaskScope) -> None:
        self._mailbox = mailbox
        self._owner = owner
        self._serve = serve
        self._clock = clock
        self._tasks = tasks
        self._mail = asyncio.Event()
        self._in_progress: dict[str, PartKey] = {}  # the targets of requests, by their ids

    @property
    def is_idle(self) -> bool:
        """Whether no request is being served."""
        return not self._in_progress

    def is_serving(self, parts: Collection[PartKey]) -> bool:
        """Return whether a request for one of some parts is being served."""
        return any(target in parts for target in self._in_progress.values())

    def on_mail(self) -> None:
        """Look for requests: some may have come, or this node may own their targets now."""
        self._mail.set()

    async def run(self) -> None:
        """Serve requests until cancelled."""
        while True:
            await self._mail.wait()
            self._mail.clear()
            try:
                requests = await self._mailbox.read_requests(self._owner, self._in_progress)
            except StoreError as error:  # the next renewal of the ownership looks again
                logger.warning(events.FORWARDING_FAILED, extra={"error": str(error)})
                continue
            oldest = self._clock.now() - timedelta(seconds=MAX_REQUEST_AGE)
            for request in requests:
                if request.at >= oldest:
                    self._in_progress[request.id] = request.target
                    self._tasks.start(f"forwarding: {request.operation}", self._answer(request))

    async def _answer(self, request: StoredRequest) -> None:
        """Serve a request. One that is not answered here is served by the next owner."""
        try:
            payload = await self._serve(request)
            if payload is not None:
                await self._store_answer(StoredAnswer(request.id, payload))
        finally:
            del self._in_progress[request.id]

    async def _store_answer(self, answer: StoredAnswer) -> None:
        while True:
            try:
                await self._mailbox.answer(answer)
            except StoreError as error:
                logger.warning(events.FORWARDING_FAILED, extra={"error": str(error)})
                await self._clock.sleep(ANSWER_RETRY_INTERVAL)
            else:
                return
