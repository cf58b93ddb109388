"""The two forms of frames: JSON in text frames, and msgpack in binary ones."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill.server.live.closing import CloseCode, CloseError, bad_frame

JSON_SUBPROTOCOL = "tidemill.json"
MSGPACK_SUBPROTOCOL = "tidemill.msgpack"


class FrameCodec(msgspec.Struct, frozen=True):
    """Encodes and decodes the frames of a connection."""

    name: str
    """The encoding of events, as accumulators know it."""
    subprotocol: str | None
    is_binary: bool

    def encode(self, value: Any) -> dict[str, Any]:
        """Return the message that sends a value as a frame."""
        if self.is_binary:
            return {"type": "websocket.send", "bytes": msgspec.msgpack.encode(value)}
        return {"type": "websocket.send", "text": msgspec.json.encode(value).decode()}

    def decoder(self, kind: Any) -> Any:
        """Return a decoder for frames of one type."""
        return msgspec.msgpack.Decoder(kind) if self.is_binary else msgspec.json.Decoder(kind)

    def payload(self, message: Any) -> bytes | str:
        """Return the content of a received message; CloseError if it is not in the form of this connection."""
        content: bytes | str | None = message.get("bytes" if self.is_binary else "text")
        if content is None:
            wanted = "binary frames with msgpack" if self.is_binary else "text frames with JSON"
            raise bad_frame(f"this connection takes {wanted}; the subprotocol {MSGPACK_SUBPROTOCOL} means msgpack")
        return content


JSON_CODEC = FrameCodec("json", None, is_binary=False)


def choose_codec(offered: Sequence[str]) -> FrameCodec:
    """Return the codec for the subprotocols that a client offers; CloseError if it knows none of ours."""
    if MSGPACK_SUBPROTOCOL in offered:
        return FrameCodec("msgpack", MSGPACK_SUBPROTOCOL, is_binary=True)
    if JSON_SUBPROTOCOL in offered:
        return FrameCodec("json", JSON_SUBPROTOCOL, is_binary=False)
    if offered:
        known = f"{JSON_SUBPROTOCOL} or {MSGPACK_SUBPROTOCOL}"
        raise CloseError(CloseCode.WRONG_SUBPROTOCOL, f"unknown subprotocol {offered[0]!r}: offer {known}")
    return JSON_CODEC


def decode_frame(decoder: Any, payload: bytes | str) -> Any:
    """Return a decoded frame; CloseError says what is wrong with it, and where."""
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise bad_frame(f"bad frame: {error}") from error
    except RecursionError as error:
        raise bad_frame("bad frame: it is nested too deeply") from error
