"""Orders: what a unit is to run, as a server hands it out to `tidemill attempt`."""

import msgspec

from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.kernel.backoff import RetryNumbers
from tidemill.workflows.task_overrides import TaskOverrides


class BundledCode(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Code that the unit downloads: the modules of a package."""

    digest: str
    """Of the bundle."""
    shown: str
    """The author's own folder, shown in tracebacks."""
    tops: tuple[str, ...]
    """The first parts of its modules' names."""
    modules: tuple[str, ...]
    """The modules to import, in that order."""
    settings: dict[str, TaskOverrides] = {}
    """The task settings of the package's manifest."""


class InstalledCode(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Code that the unit has already: a module that it can import, or that is in the same file as on the node."""

    module: str
    file: str
    path: tuple[str, ...]
    """The import path of the node."""


OrderedCode = BundledCode | InstalledCode


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The order of one attempt."""

    request: AttemptRequest
    code: OrderedCode
    retry: RetryNumbers | None = None
    lease: float
    """Seconds that the attempt may run without a heartbeat that was answered."""
    heartbeat_interval: float

    def encode(self) -> bytes:
        """Return the stored form."""
        return _ENCODER.encode(self)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Order)


def decode_order(payload: bytes) -> Order:
    """Return an order from its stored form."""
    return _DECODER.decode(payload)
