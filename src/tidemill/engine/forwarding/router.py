"""The router of operations: each runs on the node that owns its reactor or accumulator.

An operation on a part that this node runs is a plain call. Otherwise the owner runs it, and its result or error comes
back as if it had been run here. If the owner dies before it has answered, the next owner runs the operation.
"""

from collections.abc import Collection
from functools import partial
from typing import Any

from tidemill.engine.forwarding.receiver import RequestReceiver
from tidemill.engine.forwarding.sender import RequestSender
from tidemill.engine.forwarding.wire import decode_answer, decode_push, encode_error, encode_result
from tidemill.engine.graphs.client.part_operations import (
    HOST_OPERATIONS,
    PART_OPERATIONS,
    AnyHost,
    AnyPartition,
    PartOperation,
    RemoteHostOperations,
    RemoteOperations,
)
from tidemill.engine.graphs.client.routing import AnyPart, LocalRouter, OperationRouter
from tidemill.engine.graphs.durability.ownership import OwnershipListener, ReactorOwnership
from tidemill.engine.graphs.partitions.membership import HostId
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.tasks import wait_until
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import ProducerPosition, PushSummary
from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import OperationError, RequestError, TidemillError
from tidemill.storage.graph_ports import PartKey, PartKind
from tidemill.storage.mailbox_port import StoredRequest
from tidemill.storage.store import Store


class OwnerRouter(OperationRouter, OwnershipListener):
    """Runs operations on the reactors and accumulators of every node of the store."""

    def __init__(
        self, local: LocalRouter, scheduler: GraphScheduler, store: Store, ownership: ReactorOwnership
    ) -> None:
        self._local = local
        self._scheduler = scheduler
        self._loaded = scheduler.loaded
        self._store = store
        self._ownership = ownership
        clock, tasks = scheduler.runtime.clock, scheduler.runtime.tasks
        self._sender = RequestSender(store.mailbox, ownership.owner, clock, tasks)
        self._receiver = RequestReceiver(store.mailbox, ownership.owner, self._serve, clock, tasks)

        ownership.listen(self)

    async def open(self) -> None:
        await self._store.listen(self.on_mail, "mail")
        self._receiver.on_mail()
        self._scheduler.runtime.tasks.start("forwarding: requests", self._receiver.run())

    def on_mail(self) -> None:
        """Look for answers and requests: some may have come, or this node may own more than before."""
        self._sender.on_mail()
        self._receiver.on_mail()

    def on_owned(self) -> None:
        self.on_mail()

    @property
    def is_idle(self) -> bool:
        return self._receiver.is_idle

    async def finish_requests(self, parts: Collection[PartKey]) -> None:
        """Wait until the requests in progress for some parts are answered, for as long as an unload may take."""
        timeout = self._scheduler.runtime.settings.unload_timeout
        await wait_until(lambda: not self._receiver.is_serving(parts), timeout)

    # -- calling

    def at(self, part: PartKey) -> AnyPart:
        return self._local.at(part) if self._loaded.runs(part) else self._elsewhere(part)

    def at_partition(self, part: PartKey) -> AnyPartition:
        """Return the operations on a partition of a keyed reactor, here or at its owner."""
        return self._local.at_partition(part) if self._loaded.runs(part) else self._elsewhere(part)

    def at_host(self, host: PartKey) -> AnyHost:
        """Return the operations on the share of a host, here or at that host."""
        return self._local.at_host(host) if self._is_here(host) else RemoteHostOperations(partial(self._ask, host))

    def _elsewhere(self, part: PartKey) -> RemoteOperations:
        return RemoteOperations(partial(self._ask, part))

    def _is_here(self, part: PartKey) -> bool:
        """Return whether this node runs a part, or is the host that the part addresses."""
        offer = HostId.parse(part.name)
        return self._loaded.runs(part) if offer is None else offer.host == self._ownership.owner_id

    def _here(self, part: PartKey) -> AnyPart | AnyHost:
        """Return the operations of this node on a part, or on its share of a keyed reactor."""
        return self._local.at(part) if HostId.parse(part.name) is None else self._local.at_host(part)

    async def owned_names(self, tenant: str, kind: PartKind) -> list[str]:
        return await self._store.part_owners.owned_names(tenant, kind)

    async def _ask(self, part: PartKey, operation: PartOperation[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        """Return the answer of the owner of a part; if there is none, that of this node, which says so."""
        if not await self._is_elsewhere(part):
            return await operation.of(self._here(part))(*arguments, **keywords)
        answer = await self._sender.ask(part, operation.name, operation.encode(*arguments, **keywords))
        return decode_answer(answer, operation.answer_type)

    async def _is_elsewhere(self, target: PartKey) -> bool:
        """Return whether another node owns a part, or did and is about to be replaced."""
        if self._loaded.is_closed or self._is_here(target):
            return False
        is_awaited = target in self._loaded.standby or self._loaded.is_partition(target)
        return is_awaited or bool(await self._store.part_owners.owners_of([target]))

    # -- serving

    async def _serve(self, request: StoredRequest) -> bytes | None:
        """Run an operation for another node; return None if this node does not own its target, even afterwards."""
        if not self._owns(request.target) or request.target in self._loaded.leaving:
            return None
        try:
            result = await self._run_operation(request)
            if request.target in self._loaded.leaving and _is_rejected(result):
                return None  # the next owner serves it
            answer = encode_result(result)
        except TidemillError as error:
            answer = encode_error(error)
        except Exception as error:  # author code: a firing runs graphs, a restart opens sources
            answer = encode_error(OperationError(f"'{request.operation}' failed: {describe(error)}"))
        return answer if self._owns(request.target) else None

    async def _run_operation(self, request: StoredRequest) -> Any:
        """Run an operation. A push is numbered by its request, so that the next owner does not apply it again."""
        target = request.target
        operation = _find_operation(request)
        if request.applied is not None:
            return decode_push(request.applied, operation.answer_type)
        fields = operation.decode(request.payload)
        if operation.is_push and fields["position"] is None:
            fields["position"] = ProducerPosition(request.id, 1)
            if not self._loaded.is_partitioned(target):
                self._loaded.accumulator(target.tenant, target.name).pushes.add_new_producer(request.id)
        return await operation.of(self._here(target))(**fields)

    def _owns(self, target: PartKey) -> bool:
        """Return whether this node owns a part, even while it finishes what it has started to serve for it."""
        is_whole = self._loaded.is_partitioned(target) or HostId.parse(target.name) is not None
        return target in self._ownership.fences and (is_whole or self._loaded.has_running(target))


def _is_rejected(result: Any) -> bool:
    """Return whether a push was rejected as a whole."""
    if isinstance(result, Receipt):
        return result.outcome == "rejected"
    return isinstance(result, PushSummary) and result.is_rejected


def _find_operation(request: StoredRequest) -> PartOperation[..., Any]:
    """Return the operation of a request; RequestError if this version of Tidemill does not have it."""
    target = request.target
    known = PART_OPERATIONS if HostId.parse(target.name) is None else HOST_OPERATIONS
    if (operation := known.get(request.operation)) is None:
        subject = f"the node that owns {target.kind} '{target.name}'"
        message = f"{subject} runs another version of Tidemill, which has no operation '{request.operation}'"
        raise RequestError(f"{message}: upgrade all nodes", code="unknown_operation", status=501)
    return operation
