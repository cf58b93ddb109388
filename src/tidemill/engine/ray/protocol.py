"""The messages between a node and its gateway to Ray: JSON, one message per line.

    node               gateway                 Ray
     | ----- Connect ----> | --- ray.init -----> |
     | <---- Connected --- |                     |
     | <---- Listed ------ | <-- named actors -- |      again and again: the gateway has reached the cluster
     | ----- Create -----> | --- new actor ----> |
     | <---- Created ----- |                     |
     | <---- StatusSeen -- | <-- its calls ----- |      at every change
     | ----- Stop -------> | --- stop, or kill > |
     | ----- Remove -----> | --- wait, kill ---> |

A gateway whose connection to the node is closed ends. The actors live on.
"""

from typing import Any, Literal

import msgspec

LINE_LIMIT = 16 * 1024 * 1024
"""The longest message in bytes. The longest ones list the actors."""

ProcessState = Literal["pending", "running", "ended", "missing"]
"""The state of a process. "missing" is final: its actor existed, and is gone without a trace of how it ended."""

ProcessCause = Literal["completed", "error", "oom", "evicted", "deleted", "node_lost", "refused"]
"""Why a process has ended. "refused": it cannot be started, and could not at a second try."""


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What Ray shows of the process of an actor."""

    state: ProcessState
    reason: str = ""
    """A sentence for people."""
    cause: ProcessCause | None = None
    """Why it has ended; None while it has not."""
    exit: int | None = None
    """Its exit code, negative for the signal that ended it."""
    log_tail: str = ""
    """The end of what it has printed."""

    @property
    def is_over(self) -> bool:
        """Whether the process runs no more."""
        return self.state in ("ended", "missing")


class Connect(msgspec.Struct, frozen=True, tag=True):
    """To the gateway: connect to a cluster, and observe the actors of a namespace whose names have a prefix."""

    address: str
    namespace: str
    prefix: str


class Create(msgspec.Struct, frozen=True, tag=True):
    """To the gateway: create an actor with a process, unless there is one of its name."""

    number: int
    name: str
    arguments: list[str]
    """The arguments of the Python of the cluster's node."""
    environment: dict[str, str]
    options: dict[str, Any]
    """The options of the actor, as Ray names them."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """To the gateway: end the process of an actor by SIGTERM, then by SIGKILL after `grace` seconds."""

    name: str
    grace: float


class Remove(msgspec.Struct, frozen=True, tag=True):
    """To the gateway: end an actor once its process has ended. A process that does not end soon is killed."""

    name: str


class Connected(msgspec.Struct, frozen=True, tag=True):
    """From the gateway: it is connected to this session of a cluster."""

    session: str
    """Identifies the cluster. A restarted one has another session, unless its head keeps its state."""


class Listed(msgspec.Struct, frozen=True, tag=True):
    """From the gateway: all actors that there are now. A status follows for each one that is new to the gateway."""

    names: list[str]


class Created(msgspec.Struct, frozen=True, tag=True):
    """From the gateway: the answer to a Create. The actor exists, or there is an error."""

    number: int
    error: str = ""
    is_refused: bool = False
    """Whether the error would be the same at a second try."""


class StatusSeen(msgspec.Struct, frozen=True, tag=True):
    """From the gateway: the status of an actor's process."""

    name: str
    status: ProcessStatus


class ClusterLost(msgspec.Struct, frozen=True, tag=True):
    """From the gateway, before it exits: it cannot reach the cluster."""

    reason: str


ToGateway = Connect | Create | Stop | Remove
FromGateway = Connected | Listed | Created | StatusSeen | ClusterLost

TO_GATEWAY_DECODER = msgspec.json.Decoder(ToGateway)
FROM_GATEWAY_DECODER = msgspec.json.Decoder(FromGateway)
_ENCODER = msgspec.json.Encoder()


def encode_line(message: ToGateway | FromGateway) -> bytes:
    """Return a message as a line."""
    return _ENCODER.encode(message) + b"\n"
