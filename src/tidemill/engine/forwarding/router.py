"""The router of operations: each runs on the node that owns its reactor or accumulator.

An operation on a part that this node runs is a plain call. Otherwise the owner runs it, and its result or error comes
back as if it had been run here. If the owner dies before it has answered, the next owner runs the operation.
"""

from collections.abc import Awaitable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, cast

from tidemill.engine.forwarding.links import LinkRoute, Links, OwnerRoutes, RefusedError
from tidemill.engine.forwarding.receiver import Gate, RequestReceiver, ServedRequests
from tidemill.engine.forwarding.sender import RequestSender
from tidemill.engine.forwarding.wire import (
    Ask,
    LinkIdentity,
    OpenWire,
    Reply,
    decode_answer,
    decode_push,
    encode_error,
    encode_result,
)
from tidemill.engine.graphs.client.operations import GraphOperations
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
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import ProducerPosition, PushSummary
from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import OperationError, RequestError, StoreError, TidemillError
from tidemill.storage.graph_ports import PartKey, PartKind
from tidemill.storage.mailbox_port import StoredRequest
from tidemill.storage.store import Store
from tidemill.telemetry.metrics import Sample


class OwnerRouter(OperationRouter, OwnershipListener):
    """Runs operations on the reactors and accumulators of every node of the store."""

    def __init__(
        self,
        here: GraphOperations,
        scheduler: GraphScheduler,
        store: Store,
        ownership: ReactorOwnership,
        open_wire: OpenWire,
        served: ServedRequests,
    ) -> None:
        self.local = LocalRouter(scheduler, here, self)
        """Runs operations on this node."""
        self._scheduler = scheduler
        self._loaded = scheduler.loaded
        self._store = store
        self._ownership = ownership
        self.node = ownership.node
        """This node, as the others know it."""
        clock, tasks = scheduler.runtime.clock, scheduler.runtime.tasks
        identity = LinkIdentity(ownership.owner_id)
        self.gate = Gate(identity, store.peers, self._begin, self.on_mail, tasks)
        """Takes the links of other nodes."""
        self.links = Links(identity, ownership.node, store.peers, open_wire, clock, tasks)
        """The links to other nodes."""
        self._routes = OwnerRoutes(self.links, store.part_owners, clock, tasks)
        self._sender = RequestSender(store.mailbox, ownership.owner, clock, tasks)
        self._receiver = RequestReceiver(
            store.mailbox, ownership.owner, self._serve, self.gate.end, served, clock, tasks
        )
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

    async def take_links_at(self, url: str) -> None:
        """Let other nodes open links to this one, which answers at a URL."""
        await self.links.take_links_at(url)

    async def close(self) -> None:
        self.gate.end_all()
        with suppress(StoreError):  # the row stays, and the node does not answer
            await self.links.unlist_self()

    @property
    def is_idle(self) -> bool:
        return self._receiver.is_idle

    def samples(self) -> Iterator[Sample]:
        """Yield the samples of what this node forwards."""
        for way, count in self._sender.sent.items():
            yield Sample("forwarded_requests_total", count, (("way", way),))
        yield Sample("links_open", self.links.open_count)
        yield Sample("links_unreached", self.links.unreached_count)

    # -- calling

    def at(self, part: PartKey) -> AnyPart:
        return self.local.at(part) if self._loaded.runs(part) else self._elsewhere(part)

    def at_partition(self, part: PartKey) -> AnyPartition:
        """Return the operations on a partition of a keyed reactor, here or at its owner."""
        return self.local.at_partition(part) if self._loaded.runs(part) else self._elsewhere(part)

    def at_host(self, host: PartKey) -> AnyHost:
        """Return the operations on the share of a host, here or at that host."""
        return self.local.at_host(host) if self._is_here(host) else RemoteHostOperations(partial(self._ask, host))

    def _elsewhere(self, part: PartKey) -> RemoteOperations:
        return RemoteOperations(partial(self._ask, part))

    def _is_here(self, part: PartKey) -> bool:
        """Return whether this node runs a part, or is the host that the part addresses."""
        offer = HostId.parse(part.name)
        return self._loaded.runs(part) if offer is None else offer.host == self._ownership.owner_id

    def _here(self, part: PartKey) -> AnyPart | AnyHost:
        """Return the operations of this node on a part, or on its share of a keyed reactor."""
        return self.local.at(part) if HostId.parse(part.name) is None else self.local.at_host(part)

    async def owned_names(self, tenant: str, kind: PartKind) -> list[str]:
        return await self._store.part_owners.owned_names(tenant, kind)

    async def _ask(self, part: PartKey, operation: PartOperation[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        """Return the answer of the owner of a part; if there is none, that of this node, which says so."""
        if self._loaded.is_closed or self._is_here(part):
            return await operation.of(self._here(part))(*arguments, **keywords)
        if (route := self._find_route(part, operation)) is not None:
            try:
                return await self._ask_elsewhere(part, operation, arguments, keywords, route)
            except RefusedError:
                self._routes.forget(part)
        if not await self._is_elsewhere(part):
            return await operation.of(self._here(part))(*arguments, **keywords)
        try:
            route = self._find_route(part, operation)
            return await self._ask_elsewhere(part, operation, arguments, keywords, route)
        except RefusedError:  # it has another owner by now, or is about to
            self._routes.forget(part)
            return await self._ask_elsewhere(part, operation, arguments, keywords, None)

    async def _ask_elsewhere(
        self, part: PartKey, operation: PartOperation[..., Any], arguments: Any, keywords: Any, route: LinkRoute | None
    ) -> Any:
        payload = operation.encode(*arguments, **keywords)
        answer = await self._sender.ask(part, operation.name, payload, route, is_numbered=operation.is_push)
        return decode_answer(answer, operation.answer_type)

    def _find_route(self, part: PartKey, operation: PartOperation[..., Any]) -> LinkRoute | None:
        return None if operation.is_command else self._routes.find(part)

    async def _is_elsewhere(self, target: PartKey) -> bool:
        """Return whether another node owns a part, or did and is about to be replaced."""
        if self._loaded.is_closed or self._is_here(target):
            return False
        is_awaited = target in self._loaded.standby or self._loaded.is_partition(target)
        if is_awaited and self._routes.is_known(target):
            return True
        owners = await self._store.part_owners.owners_of([target])
        for one in owners:
            self._routes.learn(one)
        return is_awaited or bool(owners)

    # -- serving

    def _begin(self, id: str, ask: Ask) -> Awaitable[Reply]:
        """Begin a request that came over a link; one for another epoch is for an ownership that has ended."""
        target = PartKey(ask.tenant, cast(PartKind, ask.kind), ask.name)
        fence = self._ownership.fences.get(target)
        is_current = fence is not None and fence.epoch == ask.epoch
        if not is_current or not self._owns(target) or target in self._loaded.leaving:
            return _refuse(ask)
        request = StoredRequest(
            id=id,
            target=target,
            sender="",
            operation=ask.operation,
            payload=ask.payload,
            at=self._scheduler.runtime.clock.now(),
        )
        return _reply(ask, self._receiver.begin(request))

    async def _serve(self, request: StoredRequest, is_copy: bool) -> bytes | None:
        """Run an operation for another node; return None if this node does not own its target, even afterwards."""
        if not self._owns(request.target) or request.target in self._loaded.leaving:
            return None
        try:
            result = await self._run_operation(request, is_copy=is_copy)
            if request.target in self._loaded.leaving and _is_rejected(result):
                return None  # the next owner serves it
            answer = encode_result(result)
        except TidemillError as error:
            answer = encode_error(error)
        except Exception as error:  # author code: a firing runs graphs, a restart opens sources
            answer = encode_error(OperationError(f"'{request.operation}' failed: {describe(error)}"))
        return answer if self._owns(request.target) else None

    async def _run_operation(self, request: StoredRequest, *, is_copy: bool) -> Any:
        """Run an operation. A push is numbered by its request, so that the next owner does not apply it again."""
        target = request.target
        operation = _find_operation(request)
        if request.applied is not None:
            return decode_push(request.applied, operation.answer_type)
        fields = operation.decode(request.payload)
        if operation.is_push and fields["position"] is None:
            fields["position"] = ProducerPosition(request.id, 1)
            if not is_copy and not self._loaded.is_partitioned(target):
                self._loaded.accumulator(target.tenant, target.name).pushes.add_new_producer(request.id)
        return await operation.of(self._here(target))(**fields)

    def _owns(self, target: PartKey) -> bool:
        """Return whether this node owns a part, even while it finishes what it has started to serve for it."""
        is_whole = self._loaded.is_partitioned(target) or HostId.parse(target.name) is not None
        return target in self._ownership.fences and (is_whole or self._loaded.has_running(target))


async def _refuse(ask: Ask) -> Reply:
    return Reply(ask.number, None, is_refused=True)


async def _reply(ask: Ask, serving: Awaitable[bytes | None]) -> Reply:
    return Reply(ask.number, await serving)


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
