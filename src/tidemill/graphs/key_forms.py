"""The forms in which keys of keyed reactors are sent and shown: as JSON values, and as text in addresses and commands.

In JSON, text and whole numbers are what they are, a tuple is a list, and bytes are `{"bytes": BASE64}`. As text, a key
is its JSON, and text needs no quotes unless it would be read as another key: `BTC`, `42`, `"42"`, `["XETRA","SAP"]`.
"""

import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec

from tidemill.kernel.errors import RequestError

if TYPE_CHECKING:
    from tidemill.graphs.keys import Key

MAX_KEY_DEPTH = 32
"""Tuples within tuples that a key may have if it comes over the network."""


def key_to_json(key: "Key") -> Any:
    """Return the JSON form of a key. One that has this form already stays as it is."""
    if isinstance(key, bytes):
        return {"bytes": base64.b64encode(key).decode()}
    return [key_to_json(one) for one in key] if isinstance(key, tuple | list) else key


def key_from_json(form: Any, depth: int = MAX_KEY_DEPTH) -> Any:
    """Return the key of a JSON form. What is not a key stays as it is: the reactor says what is wrong with it."""
    match form:
        case list() if depth == 0:
            message = f"a key has at most {MAX_KEY_DEPTH} lists within lists"
            raise RequestError(message, code="invalid_event_key")
        case list():
            return tuple(key_from_json(one, depth - 1) for one in form)
        case {"bytes": str(encoded)} if len(form) == 1:
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error:
                return form
    return form


def parse_key(text: str) -> Any:
    """Return the key that a text names: its JSON, or else the text itself."""
    try:
        form = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    if isinstance(form, bool) or not isinstance(form, int | str | list | dict):
        return text
    key = key_from_json(form)
    return text if isinstance(key, dict) else key


def format_key(key: "Key") -> str:
    """Return the text that names a key."""
    if isinstance(key, str) and parse_key(key) == key:
        return key
    return msgspec.json.encode(key_to_json(key)).decode()
