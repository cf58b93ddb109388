"""The operations that nodes ask each other for: each is declared here once, under the name that its requests have.

The fields of a request and the type of the answer are those of the method that carries the operation out. Nodes of two
versions ask each other during an upgrade, so names and fields stay, and a new field has a default.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from inspect import signature
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

import msgspec

from tidemill.engine.graphs.client.host_operations import HostOperations
from tidemill.engine.graphs.client.operations import GraphOperations
from tidemill.kernel.errors import RequestError

P = ParamSpec("P")
Answer = TypeVar("Answer")


class PartOperation(Generic[P, Answer]):
    """One operation that a node may ask another one for. As an attribute of `Remote` it asks."""

    def __init__(self, method: Callable[Concatenate[Any, P], Awaitable[Answer]], *, is_command: bool = False) -> None:
        self.is_command = is_command
        """Whether a repetition has another effect, and nothing recognizes it: no link carries it."""
        form = signature(method)
        self.name = method.__name__
        self.answer_type: Any = form.return_annotation
        self.is_push = "position" in form.parameters
        """Whether a producer may number it."""
        self._fields = list(form.parameters.values())[1:]

    def __get__(self, remote: "Remote", _: type) -> Callable[P, Awaitable[Answer]]:
        """Return what asks another node for the operation."""
        return partial(remote.ask, self)

    def of(self, operations: object) -> Callable[P, Awaitable[Answer]]:
        """Return what carries the operation out on this node."""
        method: Callable[P, Awaitable[Answer]] = getattr(operations, self.name)
        return method

    @cached_property
    def request_type(self) -> Callable[P, msgspec.Struct]:
        """The struct of a request. A field that has its default is not sent: an older node need not know it."""
        defaults = [msgspec.field() if one.default is one.empty else one.default for one in self._fields]
        fields = [(one.name, one.annotation, default) for one, default in zip(self._fields, defaults, strict=True)]
        return msgspec.defstruct(self.name, fields, omit_defaults=True, forbid_unknown_fields=True)

    def encode(self, *arguments: P.args, **keywords: P.kwargs) -> bytes:
        """Encode a request; RequestError if a value cannot be sent."""
        request = self.request_type(*arguments, **keywords)
        try:
            return msgspec.msgpack.encode(request)
        except (TypeError, ValueError, OverflowError) as error:
            message = f"another node owns the accumulator or reactor, and the value cannot be sent there: {error}"
            raise RequestError(message, code="invalid_value") from error

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Return the fields of a request."""
        request: msgspec.Struct = msgspec.msgpack.decode(payload, type=self.request_type)
        return msgspec.structs.asdict(request)


class Remote:
    """Something that another node runs."""

    def __init__(self, ask: Callable[..., Awaitable[Any]]) -> None:
        self.ask = ask
        """Takes an operation and the fields of a request."""


class RemoteOperations(Remote):
    """The operations on a reactor or an accumulator that another node runs."""

    check_reactor = PartOperation(GraphOperations.check_reactor)
    reactor_state = PartOperation(GraphOperations.reactor_state)
    listed_state = PartOperation(GraphOperations.listed_state)
    observe = PartOperation(GraphOperations.observe)
    health_report = PartOperation(GraphOperations.health_report)
    firings = PartOperation(GraphOperations.firings)
    timeseries = PartOperation(GraphOperations.timeseries)
    courses = PartOperation(GraphOperations.courses)
    recoveries = PartOperation(GraphOperations.recoveries)
    command = PartOperation(GraphOperations.command, is_command=True)
    check_accumulator = PartOperation(GraphOperations.check_accumulator)
    accumulator_state = PartOperation(GraphOperations.accumulator_state)
    accumulator = PartOperation(GraphOperations.accumulator)
    restart_accumulator = PartOperation(GraphOperations.restart_accumulator, is_command=True)
    push = PartOperation(GraphOperations.push)
    push_many = PartOperation(GraphOperations.push_many)
    relay = PartOperation(GraphOperations.relay)
    batch_space = PartOperation(GraphOperations.batch_space)
    last_position = PartOperation(GraphOperations.last_position)
    dead_letters = PartOperation(GraphOperations.dead_letters)
    dead_letter = PartOperation(GraphOperations.dead_letter)
    replay = PartOperation(GraphOperations.replay, is_command=True)
    drop = PartOperation(GraphOperations.drop, is_command=True)


class RemoteHostOperations(Remote):
    """The operations on the partitions of a keyed reactor that another node runs."""

    states = PartOperation(HostOperations.states)
    health_report = PartOperation(HostOperations.health_report)
    firings = PartOperation(HostOperations.firings)
    timeseries = PartOperation(HostOperations.timeseries)
    courses = PartOperation(HostOperations.courses)
    recoveries = PartOperation(HostOperations.recoveries)
    command = PartOperation(HostOperations.command, is_command=True)
    accumulators = PartOperation(HostOperations.accumulators)
    restart_accumulator = PartOperation(HostOperations.restart_accumulator, is_command=True)
    mark_source = PartOperation(HostOperations.mark_source)
    last_positions = PartOperation(HostOperations.last_positions)
    dead_letters = PartOperation(HostOperations.dead_letters)
    dead_letter = PartOperation(HostOperations.dead_letter)
    replay = PartOperation(HostOperations.replay, is_command=True)
    drop = PartOperation(HostOperations.drop, is_command=True)


AnyPartition: TypeAlias = GraphOperations | RemoteOperations
"""The operations on a partition, or on a reactor without keys, wherever it runs."""
AnyHost: TypeAlias = HostOperations | RemoteHostOperations
"""The operations on a host's partitions of a keyed reactor, whichever node that is."""


def _declared_by(remote: type[Remote]) -> Mapping[str, PartOperation[..., Any]]:
    return {name: one for name, one in vars(remote).items() if isinstance(one, PartOperation)}


PART_OPERATIONS = _declared_by(RemoteOperations)
"""By name; a request in the store is for one of these, or, if it addresses a host, for one of the others."""
HOST_OPERATIONS = _declared_by(RemoteHostOperations)
