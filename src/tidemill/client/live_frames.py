"""Frames of WebSocket connections, as the server sends them."""

import msgspec

from tidemill.api.errors import ProblemDetails
from tidemill.graphs.state import ReactorState


class ReactorFrame(msgspec.Struct, frozen=True):
    """A frame about a reactor: a state that is watched, or the problem of a command."""

    id: int | None = None
    state: ReactorState | None = None
    error: ProblemDetails | None = None
