"""Plain values: what authors return and pass, as JSON and msgpack show it."""

from typing import Any

import msgspec


def to_plain(value: Any) -> Any:
    """Return a value that every format can hold: keys become texts, unknown objects their description."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)
