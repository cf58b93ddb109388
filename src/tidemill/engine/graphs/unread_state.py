"""Values, or fields of them, that an older version has kept and a newer one does not read: stored, or in a hot swap.

The values of one component are collected, and reported together: which fields, and how many keys have them.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from tidemill.annotations.codec import Codec, UnstorableError, encode_msgpack
from tidemill.annotations.validation import TypeMismatchError
from tidemill.graphs.definition import StateUpgrade
from tidemill.graphs.keys import Key


class _Finding(msgspec.Struct):
    """One kind of values that are not read as they were kept."""

    detail: dict[str, None]
    """The unread fields, or the first error."""
    first_key: Key | None
    last_key: Key | None
    count: int = 1

    @property
    def extent(self) -> str:
        """How many values, or which keys, are concerned."""
        if self.first_key is None:
            return "" if self.count == 1 else f" ({self.count} values)"
        others = "" if self.count == 1 else f" and {self.count - 1} more"
        return f" (key {self.first_key!r}{others})"


class UnreadState:
    """Collects what is not read of one component's values. Values of the same key count as one."""

    def __init__(self) -> None:
        self.key: Key | None = None
        """The key of the values that are read now; None without keys."""
        self._with_unread_fields: dict[str, _Finding] = {}
        self._unfit: dict[str, _Finding] = {}
        self.has_news = False
        """Whether something was found since the last description."""

    def add_fields(self, what: str, fields: list[str]) -> None:
        """Record that a value has fields which its class does not have."""
        self._add(self._with_unread_fields, what).update(dict.fromkeys(fields))

    def add_unfit(self, what: str, error: str) -> None:
        """Record that a value does not fit its declaration, and was left out."""
        detail = self._add(self._unfit, what)
        if not detail:
            detail[error] = None

    def _add(self, findings: dict[str, _Finding], what: str) -> dict[str, None]:
        self.has_news = True
        key = self.key
        finding = findings.get(what)
        if finding is None:
            finding = findings[what] = _Finding({}, key, key)
        elif key is None or key != finding.last_key:
            finding.count += 1
            finding.last_key = key
        return finding.detail

    def describe_fields(self) -> str | None:
        """Return which fields are not read, in words."""
        reasons = [
            f"{what} has fields that its class does not have, and their values are lost: "
            f"{', '.join(one.detail)}{one.extent}"
            for what, one in self._with_unread_fields.items()
        ]
        return "; ".join(reasons) or None

    def describe_unfit(self) -> str | None:
        """Return which values do not fit, in words."""
        reasons = [
            f"{what} no longer fits its declaration and is left out: {''.join(one.detail)}{one.extent}"
            for what, one in self._unfit.items()
        ]
        return "; ".join(reasons) or None

    def describe(self) -> str | None:
        """Return everything that is not read, in words."""
        return "; ".join(one for one in (self.describe_fields(), self.describe_unfit()) if one) or None

    def read(self, codec: Codec, data: bytes, what: str, upgrade: StateUpgrade | None = None) -> Any:
        """Return a stored value, or raise TypeMismatchError; fields that its class does not have are recorded.

        With `upgrade`, a value that does not fit, or has such fields, is upgraded.
        """
        try:
            value = codec.decode(data)
        except TypeMismatchError:
            if upgrade is None:
                raise
            return upgrade(msgspec.msgpack.decode(data))
        if fields := find_unread_fields(codec, data, value):
            if upgrade is not None:
                return upgrade(msgspec.msgpack.decode(data))
            self.add_fields(what, fields)
        return value

    def read_fitting(self, codec: Codec, data: bytes, what: str, upgrade: StateUpgrade | None = None) -> Any:
        """Return a stored value, or None if it does not fit, which is recorded."""
        try:
            return self.read(codec, data, what, upgrade)
        except TypeMismatchError as error:
            self.add_unfit(what, str(error))
            return None


def find_unread_fields(codec: Codec, data: bytes, value: Any) -> list[str]:
    """Return the fields of a stored value that are not in the value which was decoded from it."""
    try:
        kept = codec.encode(value)
    except UnstorableError:  # its class has changed what it holds
        return []
    return [] if kept == data else compare_fields(data, kept, value)


def find_lost_fields(before: Any, after: Any) -> list[str]:
    """Return the fields of a value that are not in the value to which it was converted."""
    try:
        return compare_fields(encode_msgpack(before), encode_msgpack(after), after)
    except UnstorableError:
        return []


def compare_fields(before: bytes, after: bytes, value: Any) -> list[str]:
    """Return the fields that only the first of two encoded values has: "name", or "outer.inner"."""
    stored = dict.fromkeys(_iter_fields(msgspec.msgpack.decode(before), ()))
    kept = {*_iter_fields(msgspec.msgpack.decode(after), ()), *_iter_omitted(value, ())}
    unread = [path for path in stored if path not in kept]
    outermost = [path for path in unread if path[:-1] not in unread]
    return [".".join(map(str, path)) for path in outermost]


def _iter_fields(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield (*path, name)
            yield from _iter_fields(one, (*path, name))
    elif isinstance(value, list):
        for one in value:
            yield from _iter_fields(one, path)


def _iter_omitted(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the fields of structs, which an encoded one may lack because of `omit_defaults`."""
    if isinstance(value, msgspec.Struct):
        for encoded, name in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True):
            yield (*path, encoded)
            yield from _iter_omitted(getattr(value, name), (*path, encoded))
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _iter_omitted(one, (*path, name))
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _iter_omitted(one, path)
