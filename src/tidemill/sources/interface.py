"""The interface of sources: what `start` is given, what it yields, and how it reports that the connection is lost.

A source is an object with a method `start(checkpoint)`, or `start(checkpoint, context)` if it needs more than its
checkpoint. `start` connects, and returns an async iterator of deliveries; an async generator is one, too. The code
after a `yield` runs when the events have reached the reactors, so that is where a source acknowledges them.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from tidemill.kernel.author_errors import Fail
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings

Event: TypeAlias = tuple[Any, Any]
"""An event, and the checkpoint from which to continue after it."""

Checkpoint = TypeVar("Checkpoint")


class Moved(msgspec.Struct, frozen=True):
    """Yield it when the position has moved without an event: over messages that nothing reads, or to a first position.

    Without it, a restart would go back to the checkpoint of the last event, or to the beginning if there was none.
    """

    checkpoint: Any


Delivery: TypeAlias = Event | list[Event] | Moved
"""What an iterator yields: one event, a list of events that share a commit, or a checkpoint alone."""

Encoding: TypeAlias = Literal["json", "msgpack"]
"""How the bytes of an event are decoded: the attribute `encoding` of a source, "json" by default."""


class Disconnected(Exception):  # noqa: N818 - a state, as in the health of accumulators
    """Raise it in a source when the connection is lost; the message is the reason that people read.

    Any other exception does the same, and shows with its type. With `retry_after`, in seconds, the other side has asked
    for the pause: Tidemill then waits exactly that long, and does not count a failure.
    """

    def __init__(self, reason: str, *, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class SourceContext:
    """What a source may use in addition to its checkpoint: `start` gets it if it has a parameter named `context`."""

    __slots__ = ("_on_gap", "client_name", "clock", "lag", "name", "settings")

    name: str
    """The name of the accumulator, for messages."""
    client_name: str
    """The name for a consumer or a session at the other side: no accumulator of another tenant has it."""
    settings: Settings
    """The settings of the node, such as the addresses of brokers."""
    clock: Clock
    """The clock of the node. Sleep on it, so that tests need not wait."""
    lag: int | None
    """The number of events that are waiting at the other side. Set it whenever you learn it; None if you cannot say."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        clock: Clock,
        on_gap: Callable[[str], None],
        client_name: str | None = None,
    ) -> None:
        self.name = name
        self.client_name = client_name or f"tidemill-{name}"
        self.settings = settings
        self.clock = clock
        self.lag = None
        self._on_gap = on_gap

    def report_gap(self, reason: str) -> None:
        """Record that events are missing: in `reactor.events()`, and as a warning in the log."""
        self._on_gap(reason)


def read_checkpoint(checkpoint: Any, type: type[Checkpoint], title: str) -> Checkpoint | None:
    """Return a stored checkpoint as its type, None at the first start; Fail if another source has written it."""
    try:
        return None if checkpoint is None else msgspec.convert(checkpoint, type)
    except msgspec.ValidationError as error:
        raise Fail(f"{title}: the checkpoint {checkpoint!r} is of another source; rename the accumulator") from error
